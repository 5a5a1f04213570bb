"""Compilation on demand: compile missing kernels on this machine at their first use, and cache them.

It runs outside of the locks of launches and loads. If several threads or processes request the same kernel,
one compiles it and the others wait for its cache entry.
"""

from __future__ import annotations

import os
import sys
import time
from _thread import RLock
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

from cuda_ext.compiler.compile_options import on_demand_obstacle
from cuda_ext.errors import CompilationError, KernelNotFoundError, ToolchainError
from cuda_ext.facts import codec
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.codec import sha256
from cuda_ext.facts.manifest import Manifest, Unit
from cuda_ext.facts.sources import Options, Source
from cuda_ext.formats.spelling import plain_name
from cuda_ext.runtime.driver.driver import ProcessCache
from cuda_ext.runtime.jit.request import Entry, Request, join_requests
from cuda_ext.runtime.jit.user_cache import compile_once, read_cache, write_cache
from cuda_ext.toolchain.identity import installed_nvrtc

if TYPE_CHECKING:
    from cuda_ext.compiler.translation_unit import Compiler
    from cuda_ext.runtime.jit.python_sources import PythonSource


class Owner(NamedTuple):
    """The source that defines a kernel template, and the index of its unit in the manifest."""

    unit: int
    source: str


class OnDemand:
    """Compiles the embedded sources of `manifest`; `read` returns the content of the module's files."""

    def __init__(self, manifest: Manifest, read: Callable[[str], bytes]) -> None:
        self.manifest = manifest
        self._read = read
        self._entries: dict[str, Entry] = {}
        # Reentrant, since a signal handler may request the kernel that its thread is compiling.
        self._locks = ProcessCache()

    def obstacle(self, unit: Unit | None = None, driver: tuple[int, int] | None = None) -> str:
        """Say why nothing, or `unit`, or nothing for `driver`, can be compiled; empty if it can."""
        embedded = self.manifest.embedded
        if not embedded:
            return "off" if embedded is None else "no source that can be compiled on demand is embedded"
        if os.environ.get("CUDA_EXT_JIT") == "0":
            return "turned off by CUDA_EXT_JIT=0"
        for source in unit.sources if unit else ():
            if source.name.endswith(".py") and source.name in self.python:
                return self._python_obstacle(source.name)
            if not _has_options(source):
                return f"the manifest lacks the compile options of {source.name}"
            if obstacle := on_demand_obstacle(source.options):
                return f"{source.name} {obstacle}"
            if source.name not in embedded:
                return f"{source.name} is not embedded, since NVRTC does not compile it"
        try:
            nvrtc = installed_nvrtc()
        except ToolchainError as error:
            return str(error)
        if driver and driver[0] < nvrtc.major:
            return (
                f"NVRTC {nvrtc.major} output is too new for this NVIDIA driver, which supports CUDA up to "
                f'{driver[0]}.{driver[1]}; upgrade the driver, or install "cuda-ext[cu{driver[0]}]"'
            )
        return ""

    def _python_obstacle(self, source: str) -> str:
        from cuda_ext.runtime.jit.python_sources import front_end_identity

        try:
            front_end_identity(self.python[source].front_end)
        except ToolchainError as error:
            return str(error)
        return ""

    @cached_property
    def python(self) -> Mapping[str, PythonSource]:
        """The embedded Python sources by name."""
        if not any(name.endswith(".py") for name in self.manifest.embedded or ()):
            return {}
        from cuda_ext.runtime.jit.python_sources import find_sources

        return find_sources(self.manifest, self._texts)

    def python_owner(self, function: str) -> Owner | None:
        """Find the embedded Python source that has a decorated `function`; that of a built kernel first."""
        found = (Owner(min(s.units), s.name) for s in self.python.values() if function in s.functions)
        return min(found, key=lambda owner: not self.python[owner.source].built(function), default=None)

    def owner(self, expression: str) -> Owner | None:
        """Find the source that defines the kernel of `expression`, as far as the source text shows.

        Raises :class:`KernelNotFoundError` if several sources each define such a kernel.
        """
        name = plain_name(expression)
        units = self.manifest.units
        # With split instantiations, one source makes several units.
        owners = {
            source.name: Owner(index, source.name)
            for index, unit in reversed(list(enumerate(units)))
            for source in unit.sources
            if source.name.endswith(".cu") and _has_options(source)
        }
        built = {
            s.name for index in self._units_of.get(name, ()) for s in units[index].sources
        } & owners.keys()
        if len(built) == 1 and self._can_compile(owners[min(built)]):
            return owners[min(built)]
        # Most modules do not need it: one source defines the kernel.
        from cuda_ext.compiler.kernel_sources import choose_sources

        in_order = sorted(owners, key=lambda source: owners[source].unit)
        chosen = choose_sources(
            name.rpartition("::")[2],
            in_order,
            built,
            self._kernels_of,
            lambda source: self._can_compile(owners[source]),
        )
        chosen = chosen or sorted(built)[:1]  # a macro defines the kernel
        if len(chosen) > 1:
            raise KernelNotFoundError(
                f"{expression} was not built ahead, and {' and '.join(chosen)} each define {name}",
                where=self.manifest.module,
                remedy="add it to `instantiate` of one of them and build again",
            )
        return owners[chosen[0]] if chosen else None

    def _can_compile(self, owner: Owner) -> bool:
        """Return True if further instantiations of the source of `owner` may be compiled."""
        sources = self.manifest.units[owner.unit].sources
        is_embedded = all(source.name in (self.manifest.embedded or ()) for source in sources)
        is_free = not any(symbol.unit == owner.unit for symbol in self.manifest.symbols)
        return is_embedded and is_free and not any(on_demand_obstacle(source.options) for source in sources)

    def request_kernel(self, owner: Owner, expression: str, capability: int) -> Request:
        """Make the request for the kernel of `expression`, defined by `owner`, on a GPU of `capability`.

        Raises :class:`KernelNotFoundError` if the unit has variables, which a new image would duplicate.
        """
        unit = self.manifest.units[owner.unit]
        if variables := [s.name for s in self.manifest.symbols if s.unit == owner.unit]:
            raise KernelNotFoundError(
                f"{expression} was not built ahead and cannot be compiled on demand: {unit.title} has the "
                f"variable {variables[0]!r}, of which the kernel would have a separate copy",
                where=self.manifest.module,
                remedy=f'add "{expression}" to `instantiate` and build again',
            )
        sources = tuple(
            source._replace(instantiate=(expression,) if source.name == owner.source else ())
            for source in unit.sources
        )
        if owner.source.endswith(".py"):  # a unit of a Python source has the instantiation of one kernel
            sources = (unit.sources[0]._replace(instantiate=(expression,)),)
        return self._request(unit, sources, capability)

    def request_unit(self, unit: Unit, capability: int) -> Request:
        """Make the request for `unit` as it was built, on a GPU of `capability`."""
        return self._request(unit, tuple(unit.sources), capability)

    def capabilities(self) -> tuple[int, ...]:
        """Return the compute capabilities that the compiler supports."""
        return _open_nvrtc().capabilities()

    def find(self, request: Request) -> Entry | None:
        """Return the cached entry of `request`, or ``None``."""
        key = self._key(request)
        if key not in self._entries and (entry := _read_entry(key)):
            self._entries[key] = entry
        return self._entries.get(key)

    def compile(self, request: Request) -> Entry:
        """Return the entry of `request`, and compile it unless it is cached.

        Raises :class:`~cuda_ext.errors.BuildError`.
        """
        key = self._key(request)
        if key not in self._entries:
            with self._locks.get_or_create(key, RLock):
                self._entries[key] = compile_once(
                    key,
                    f"{self.manifest.module}: {request}",
                    lambda: self.find(request),
                    lambda: self._compile(request),
                    codec.encode,
                )
        return self._entries[key]

    def compile_together(self, requests: Sequence[Request]) -> None:
        """Compile `requests`, which differ only in their expressions, at once, and cache each result."""
        request = join_requests(requests)
        entry = self.compile(request)
        for each in requests:
            if each != request:
                self._entries[self._key(each)] = entry
                write_cache(self._key(each), self._key(request).encode())

    def _key(self, request: Request) -> str:
        if request.is_python:
            from cuda_ext.runtime.jit.python_sources import front_end_identity

            return request.key(front_end_identity(self.python[request.sources[0].name].front_end))
        return request.key(installed_nvrtc().identity)

    def _request(self, unit: Unit, sources: tuple[Source, ...], capability: int) -> Request:
        # Sources that were built with features of one GPU may need such features here, too.
        is_specific = any(image.target.suffix for image in unit.images)
        is_linked = any(source.options.relocatable for source in sources)
        architecture = Architecture("cubin", capability, "a" if is_specific else "")
        return Request(sources, architecture, self.manifest.module if is_linked else None)

    def _compile(self, request: Request) -> Entry:
        from cuda_ext.runtime.jit.compile_request import compile_request  # cached entries need no compiler

        start = time.perf_counter()
        try:
            if request.is_python:
                from cuda_ext.runtime.jit.python_sources import compile_apart

                front_end = self.python[request.sources[0].name].front_end
                entry = compile_apart(request, self._python_texts(), front_end)
            else:
                entry = compile_request(request, self._texts, _open_nvrtc())
        except CompilationError as error:
            if self.manifest.compiler != "nvcc" or request.is_python:
                raise
            raise CompilationError(
                f"{error.statement}\nnvcc built this module, and NVRTC compiles on demand; add what it lacks "
                "to `instantiate` or architectures, and build again"
            ) from None
        # Log only if the program has imported logging, which is slow to import.
        if logging := sys.modules.get("logging"):
            seconds = time.perf_counter() - start
            logging.getLogger("cuda_ext").info(
                f"{self.manifest.module}: compiled {request} in {seconds:.3f} s"
            )
        return entry

    @cached_property
    def _units_of(self) -> dict[str, set[int]]:
        """The units with built kernels, by the plain name of the kernel."""
        units: dict[str, set[int]] = {}
        for kernel in self.manifest.kernels:
            units.setdefault(plain_name(kernel.expression), set()).add(kernel.unit)
        return units

    def _python_texts(self) -> dict[str, bytes]:
        """Return the embedded Python files. Raises :class:`CompilationError` for one that was changed."""
        texts = {name: text for name, text in self._texts.items() if name.endswith(".py")}
        for name, digest in (self.manifest.embedded or {}).items():
            if name.endswith(".py") and sha256(texts.get(name, b"")).hex() != digest:
                raise CompilationError(
                    "is not what the module was built from",
                    where=name,
                    remedy="reinstall the package that holds it",
                )
        return texts

    @cached_property
    def _texts(self) -> dict[str, bytes]:
        """The embedded sources and headers. A missing file is reported because its digest differs."""
        texts = {}
        for name in self.manifest.embedded or ():
            with suppress(OSError):
                texts[name] = self._read(f"sources/{name}")
        return texts

    @cached_property
    def kernels(self) -> Sequence[str]:
        """The kernels in the embedded sources that are in no namespace."""
        from cuda_ext.text.declarations import find_declarations  # only for modules without built kernels

        texts = [text for name, text in self._texts.items() if not name.endswith(".py")]
        names = {kernel.name for kernel in find_declarations(texts).kernels}
        return sorted(name for name in names if name.isidentifier())

    @cached_property
    def doc_comments(self) -> Mapping[str, str]:
        """The comments above kernels in the embedded sources, by their names with namespaces."""
        from cuda_ext.text.doc_comments import find_doc_comments  # only for help

        return find_doc_comments(text for name, text in self._texts.items() if not name.endswith(".py"))

    @cache  # noqa: B019 - lives as long as the module
    def _kernels_in(self, name: str) -> frozenset[str]:
        from cuda_ext.text.declarations import kernel_names

        return kernel_names(self._texts.get(name, b""))

    def _kernels_of(self, source: str) -> list[tuple[str, frozenset[str]]]:
        """List `source` and the headers that it includes, each with the kernels that it defines."""
        from cuda_ext.compiler.headers import closure

        headers = closure(self._texts.get(source, b""), Options(), self._texts)
        return [(name, self._kernels_in(name)) for name in (source, *headers)]


def _has_options(source: Source) -> bool:
    return source.name.endswith((".cu", ".ptx")) and bool(source.sha256)


@cache
def _open_nvrtc() -> Compiler:
    from cuda_ext.toolchain.compilers import CompilerChoice, open_compiler

    return open_compiler(CompilerChoice(), os.environ)


def _read_entry(key: str) -> Entry | None:
    """Read the entry under `key`, or the one whose key is there: of kernels that were compiled together."""
    with suppress(ValueError):
        content = read_cache(key) or b""
        if len(content) == len(key):
            content = read_cache(content.decode()) or b""
        return codec.decode(Entry, content)
    return None
