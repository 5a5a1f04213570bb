"""What a module was not built with: compiled on this machine when it is first asked for, and kept.

Compiling happens outside of all locks that launches and loads take. Of several threads, and of several
processes, one compiles, and the others wait for its record.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

from cuda_ext.compiler.name_expressions import kernel_names, plain_name
from cuda_ext.errors import KernelNotFoundError, ToolchainError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.manifest import Manifest, Source, Unit
from cuda_ext.runtime.driver.driver import Prepared
from cuda_ext.runtime.jit import user_cache
from cuda_ext.runtime.jit.entry import Record, read_record, reference
from cuda_ext.runtime.jit.request import Demand
from cuda_ext.toolchain.identity import installed_nvrtc

if TYPE_CHECKING:
    from cuda_ext.compiler.translation_unit import Compiler

__all__ = ["Made", "OnDemand", "Owner"]


class Made(NamedTuple):
    """A record, and the key that it is kept under."""

    key: str
    record: Record


class Owner(NamedTuple):
    """The source that defines a kernel template, and the number of the unit that it is in."""

    unit: int
    source: str


class OnDemand:
    """Compiles the sources that `manifest` tells of; `read` gives the content of the module's files."""

    def __init__(self, manifest: Manifest, read: Callable[[str], bytes]) -> None:
        self._manifest = manifest
        self._read = read
        self._made: Prepared[str, Made] = Prepared()
        # A signal's handler may ask for what its thread is compiling.
        self._locks: Prepared[str, threading.RLock] = Prepared()

    def why_not(self, unit: Unit | None = None, driver: tuple[int, int] | None = None) -> str:
        """Why nothing can be compiled, or not `unit`, or not for `driver`; empty if it can."""
        if self._manifest.embedded is None:
            return "off"
        if os.environ.get("CUDA_EXT_JIT") == "0":
            return "turned off by CUDA_EXT_JIT=0"
        for source in unit.sources if unit else ():
            if not _is_known(source):
                return f"nobody knows how {source.name} was compiled"
            if option := source.options.outside:
                return (
                    f"{source.name} was compiled with {option}, and other machines may have other files there"
                )
        try:
            nvrtc = installed_nvrtc()
        except ToolchainError as error:
            return str(error)
        if driver and driver[0] < nvrtc.major:
            return (
                f"NVRTC {nvrtc.major} makes what this NVIDIA driver does not load, which supports CUDA up to "
                f'{driver[0]}.{driver[1]}; upgrade the driver, or install "cuda-ext[cu{driver[0]}]"'
            )
        return ""

    def owner(self, expression: str) -> Owner | None:
        """The source that defines the kernel of `expression`, as far as its text tells.

        Raises :class:`KernelNotFoundError` if there are several.
        """
        name = plain_name(expression)
        built = {k.unit for k in self._manifest.kernels if plain_name(k.expression) == name}
        # With split instantiations, one source makes several units.
        owners = {
            source.name: Owner(index, source.name)
            for index, unit in reversed(list(enumerate(self._manifest.units)))
            for source in unit.sources
            if source.name.endswith(".cu") and _is_known(source) and (not built or index in built)
        }
        found = list(owners)
        if not built or len(found) > 1:
            plain = name.rpartition("::")[2]
            found = [source for source in owners if plain in self._kernels_in(source)]
            found = found or [source for source in owners if self._reaches(source, plain)]
        if len(found) > 1:
            raise KernelNotFoundError(
                f"{self._manifest.module}: {expression} was not built ahead, and {' and '.join(found)} each "
                f"define {name}; add it to `instantiate` of one of them and build again"
            )
        return owners[found[0]] if found else None

    def instantiations(self, owner: Owner, expressions: Sequence[str], capability: int) -> Demand:
        """The demand for `expressions` of kernels that `owner` defines, on a GPU of that capability.

        Raises :class:`KernelNotFoundError` where they would have variables of their own.
        """
        unit = self._manifest.units[owner.unit]
        if variables := [s.name for s in self._manifest.symbols if s.unit == owner.unit]:
            listed = ", ".join(expressions)
            raise KernelNotFoundError(
                f"{self._manifest.module}: {listed} was not built ahead and cannot be compiled on demand: "
                f"{unit.title} has the variable {variables[0]!r}, of which it would have a copy of its own; "
                f'add "{listed}" to `instantiate` and build again'
            )
        sources = tuple(
            replace(source, instantiate=tuple(expressions) if source.name == owner.source else ())
            for source in unit.sources
        )
        return self._demand(unit, sources, capability)

    def whole(self, unit: Unit, capability: int) -> Demand:
        """The demand for `unit` as it was built, on a GPU of that capability."""
        return self._demand(unit, unit.sources, capability)

    def known(self, demand: Demand) -> Made | None:
        """The record of `demand`, if there is one."""
        return self._known(demand.key(installed_nvrtc().identity))

    def made(self, demand: Demand) -> Made:
        """The record of `demand`, which is compiled if there is none.

        Raises :class:`~cuda_ext.errors.BuildError`.
        """
        key = demand.key(installed_nvrtc().identity)
        if key not in self._made:
            with self._locks.once(key, threading.RLock):
                if self._known(key) is None:
                    self._made[key] = self._compiled_alone(key, demand)
        return self._made[key]

    def refer(self, demands: Iterable[Demand], made: Made) -> None:
        """Let `made`, which has all of `demands`, be the record of each."""
        for demand in demands:
            key = demand.key(installed_nvrtc().identity)
            self._made[key] = made
            user_cache.keep(key, reference(made.key))

    def _demand(self, unit: Unit, sources: tuple[Source, ...], capability: int) -> Demand:
        # Sources that were built for what only some GPUs have may need it here too.
        is_special = any(Architecture.parse(image.architecture).suffix for image in unit.images)
        is_linked = any(source.options.relocatable for source in sources)
        architecture = Architecture("cubin", capability, "a" if is_special else "")
        return Demand(sources, architecture, self._manifest.module if is_linked else None)

    def _known(self, key: str) -> Made | None:
        """The record under `key`; many a key leads to the same."""
        if key not in self._made:
            found = _kept(key)
            if isinstance(found, Record):
                self._made[key] = Made(key, found)
            elif found and re.fullmatch("[0-9a-f]{64}", found):
                # A reference leads to a record, and never to another reference.
                if found not in self._made and isinstance(record := _kept(found), Record):
                    self._made[found] = Made(found, record)
                if found in self._made:
                    self._made[key] = self._made[found]
        return self._made.get(key)

    def _compiled_alone(self, key: str, demand: Demand) -> Made:
        with user_cache.alone(key):
            return self._known(key) or self._compiled(key, demand)

    def _compiled(self, key: str, demand: Demand) -> Made:
        from cuda_ext.runtime.jit.compile_request import (
            fulfil,  # where nothing is compiled, the compiler is not needed
        )

        began = time.perf_counter()
        record = fulfil(demand, self._texts, _nvrtc())
        user_cache.keep(key, record.encode())
        _tell(f"{self._manifest.module}: compiled {demand} in {time.perf_counter() - began:.3f} s")
        return Made(key, record)

    @cached_property
    def _texts(self) -> dict[str, bytes]:
        """The embedded sources and headers. One that cannot be read is not what the module was built from."""
        texts = {}
        for name in self._manifest.embedded or ():
            with suppress(OSError):
                texts[name] = self._read(f"sources/{name}")
        return texts

    @cache  # noqa: B019 - it lives as long as the module
    def _kernels_in(self, name: str) -> set[str]:
        return kernel_names(self._texts.get(name, b""))

    def _reaches(self, name: str, kernel: str) -> bool:
        """Whether a header that the source `name` can reach defines `kernel`."""
        from cuda_ext.compiler.headers import closure

        headers = closure(self._texts.get(name, b""), (), self._texts)
        return any(kernel in self._kernels_in(header) for header in headers)


def _is_known(source: Source) -> bool:
    return source.name.endswith((".cu", ".ptx")) and bool(source.sha256)


@cache
def _nvrtc() -> Compiler:
    from cuda_ext.toolchain.nvrtc import Nvrtc

    return Nvrtc()


def _kept(key: str) -> Record | str | None:
    """What the cache has under `key`: a record, or the key of one."""
    content = user_cache.find(key)
    return read_record(content) if content is not None else None


def _tell(what: str) -> None:
    """Log `what`. Where nobody has imported logging, which takes a while, nobody listens."""
    if logging := sys.modules.get("logging"):
        logging.getLogger("cuda_ext").info(what)
