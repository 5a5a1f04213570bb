"""``cuda_ext.compile``: a source string or file becomes a module, on any machine.

Compiling needs no GPU and no driver. The result lists its kernels and images like any module of this package,
can be saved, and launches where there is a GPU. What NVRTC compiled is kept in the user's cache.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from cuda_ext import manifest as manifest_file
from cuda_ext.compiler import headers as project_headers
from cuda_ext.compiler.nvrtc_options import nvrtc_options
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import BuildError, ManifestError, ToolchainError
from cuda_ext.formats import netstring
from cuda_ext.manifest import Compression, Manifest, Options
from cuda_ext.runtime.jit import user_cache
from cuda_ext.runtime.module import module_from
from cuda_ext.toolchain import native_gpus
from cuda_ext.toolchain.identity import installed_nvrtc

if TYPE_CHECKING:
    from cuda_ext.compiler.translation_unit import Compiler

__all__ = ["compile"]


def compile(  # noqa: A001 - reads as cuda_ext.compile
    source: str | os.PathLike[str],
    *,
    architectures: Sequence[str] | None = None,
    instantiate: Sequence[str] = (),
    name: str = "kernels",
    compiler: Literal["nvrtc", "nvcc"] = "nvrtc",
    std: str = "c++17",
    define: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    include_dirs: Sequence[str | os.PathLike[str]] = (),
    headers: Mapping[str, str] | None = None,
    fast_math: bool = False,
    relaxed_constexpr: bool = False,
    compress: Compression = "size",
    report: Callable[[str], None] = lambda _: None,
) -> ModuleType:
    """Compile `source`, which is CUDA C++ text or the path of a ``.cu`` file.

    `architectures` are spelled as in the configuration (``sm_90a``, ``compute_90``, ``all-major``); by
    default they are those of the GPUs in this machine, or ``all-major`` where it has none. `instantiate`
    lists C++ name expressions; kernels that are not templates need no listing. `headers` maps names to
    the text of headers that the source may include besides those found in `include_dirs`. `report`
    receives the compiler's warnings.

    What NVRTC made is kept in the user's cache, and found there while the source, all headers, the options
    and the tool chain are what they were. With `options` that name files or directories it is not kept, since
    nobody knows what is in them; name them under `include_dirs`.

    >>> import cuda_ext
    >>> module = cuda_ext.compile(
    ...     "template <class T> __global__ void fill(T* x, T value) { x[threadIdx.x] = value; }",
    ...     instantiate=["fill<float>"], architectures=["sm_90"])
    >>> [kernel.signature for kernel in cuda_ext.describe(module).kernels]
    ['fill<float>(float* x, float value)']

    Raises :class:`~cuda_ext.errors.BuildError`: :class:`~cuda_ext.errors.CompilationError` with the
    compiler's text, :class:`~cuda_ext.errors.ToolchainError` if there is no compiler.
    """
    for argument, value in {
        "architectures": architectures,
        "instantiate": instantiate,
        "options": options,
        "include_dirs": include_dirs,
    }.items():
        if isinstance(value, str):
            raise TypeError(f'{argument}: expected a list of strings; write ["{value}"]')
    choices = {"compress": get_args(Compression), "compiler": ("nvrtc", "nvcc")}
    for argument, chosen in {"compress": compress, "compiler": compiler}.items():
        if chosen not in choices[argument]:
            expected = " or ".join(map(repr, choices[argument]))
            raise ValueError(f"{argument}: expected {expected}, found {chosen!r}")
    if architectures is not None and not architectures:
        raise BuildError('architectures: is empty; name at least one, such as "sm_90" or "all-major"')
    native = native_gpus.capabilities() if architectures is None or "native" in architectures else []
    names = architectures or (["native"] if native else ["all-major"])
    options_of_unit = Options(
        std=std,
        define=dict(sorted((define or {}).items())),
        raw=tuple(options),
        fast_math=fast_math,
        relaxed_constexpr=relaxed_constexpr,
    )
    file, text, found = _gather(source, f"{name}.cu", include_dirs)
    embedded = {header: content.encode() for header, content in (headers or {}).items()}
    unit = TranslationUnit(file, text, "cu", {**found, **embedded}, options_of_unit, tuple(instantiate))

    def make() -> _Made:
        # Where something is found, the compiler is not needed.
        from cuda_ext.compiler.architectures import expand
        from cuda_ext.compiler.module_plan import ModulePlan, UnitPlan, compile_module

        tool = _compiler(compiler)
        targets = expand(names, tool, "architectures", native)
        log: list[str] = []
        made = compile_module(ModulePlan(name, (UnitPlan(unit, targets),), compress), tool, log.append)
        return _Made(made.manifest, made.files, tuple(log))

    key = _key(unit, name, names, native, compress) if compiler == "nvrtc" else None
    made = make() if key is None else _once(key, make)
    for line in made.log:
        report(line)
    return module_from(made.manifest, made.files.__getitem__)


class _Made(NamedTuple):
    """A module: its manifest and the files that this names, and what the compiler said."""

    manifest: Manifest
    files: Mapping[str, bytes]
    log: tuple[str, ...]

    def encode(self) -> bytes:
        files = (field for item in self.files.items() for field in item)
        head = manifest_file.dumps(self.manifest), str(len(self.log)), *self.log
        return netstring.encode([_FORMAT, *head, *files])

    @classmethod
    def decode(cls, content: bytes) -> _Made | None:
        """What :meth:`encode` wrote, or nothing."""
        try:
            form, text, count, *rest = netstring.decode(content)
            logs = int(count or b"")
            names = [(name or b"").decode() for name in rest[logs::2]]
            log = tuple((line or b"").decode() for line in rest[:logs])
            files = dict(zip(names, (file or b"" for file in rest[logs + 1 :: 2]), strict=True))
            known = form == _FORMAT.encode()
            return cls(manifest_file.loads(text or b"", "the cache"), files, log) if known else None
        except (ManifestError, ValueError):
            return None


_FORMAT = "cuda-ext compiled 1"
# Includes that lead to nobody knows which content: by a macro's name, or by an absolute path.
_UNTOLD = re.compile(rb'#[ \t]*include[ \t]*(?:[A-Za-z_]|[<"](?:/|[A-Za-z]:))')


def _key(
    unit: TranslationUnit, name: str, names: Sequence[str], native: Sequence[int], compress: str
) -> str | None:
    """The key of all that decides on a module; ``None`` where something else does."""
    if unit.options.outside or any(map(_UNTOLD.search, (unit.source, *unit.headers.values()))):
        return None
    try:
        identity = installed_nvrtc().identity
    except ToolchainError:
        return None  # which is said when it is to compile
    options = nvrtc_options(unit.name, unit.options)
    lists = (options, unit.instantiate, names, list(map(str, native)))
    counted = (field for each in lists for field in (str(len(each)), *each))
    return netstring.key_of(_FORMAT, identity, name, unit.name, unit.sha256, compress, *counted)


def _once(key: str, make: Callable[[], _Made]) -> _Made:
    if known := _Made.decode(user_cache.find(key) or b""):
        return known
    with user_cache.alone(key):
        if known := _Made.decode(user_cache.find(key) or b""):
            return known
        made = make()
        user_cache.keep(key, made.encode())
        return made


def _compiler(name: str) -> Compiler:
    if name == "nvcc":
        from cuda_ext.toolchain.nvcc import find_nvcc

        return find_nvcc(None, os.environ)
    from cuda_ext.toolchain.nvrtc import Nvrtc

    return Nvrtc()


def _gather(
    source: str | os.PathLike[str], name: str, include_dirs: Sequence[str | os.PathLike[str]]
) -> tuple[str, bytes, dict[str, bytes]]:
    """The name, text and headers of `source`. Names are relative to the directory that all files share."""
    directories = [Path(os.path.realpath(d)) for d in include_dirs]
    for directory in directories:
        if not directory.is_dir():
            raise BuildError(f"include_dirs: {str(directory)!r} is not a directory; correct the path")
    if isinstance(source, str):
        if source.endswith(".cu") and "\n" not in source:
            raise TypeError(
                f"source: expected CUDA C++ text, found what looks like a path; pass pathlib.Path({source!r})"
            )
        place, text = (
            (directories[0] if directories else Path(os.path.realpath(os.curdir))) / name,
            source.encode(),
        )
    else:
        place, text = Path(os.path.realpath(source)), None
        if not place.is_file():
            raise BuildError(f"{os.fspath(source)}: is not a file; correct the path")
    root = Path(os.path.commonpath([place.parent, *directories]))
    rewritten, found = project_headers.gather(place, root, directories, text=text)
    return place.relative_to(root).as_posix(), rewritten, found
