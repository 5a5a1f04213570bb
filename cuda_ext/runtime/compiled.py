"""``cuda_ext.compile``: a source string or file becomes a module, on any machine.

Compiling needs no GPU and no driver. The result lists its kernels and images like any module of this package,
can be saved, and launches where there is a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Literal, get_args

from cuda_ext import devices
from cuda_ext import manifest as manifest_file
from cuda_ext.compiler import headers as project_headers
from cuda_ext.compiler.architectures import Architecture, expand
from cuda_ext.compiler.fatbin import Compression
from cuda_ext.compiler.module import ModulePlan, UnitPlan, compile_module
from cuda_ext.compiler.translation_unit import Compiler, TranslationUnit
from cuda_ext.errors import BuildError, ManifestError
from cuda_ext.generated import foreign
from cuda_ext.manifest import Options
from cuda_ext.replace import replace_directory
from cuda_ext.runtime.module import KernelModule, library_of, module_from

__all__ = ["compile", "load", "save"]


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
    tool = _compiler(compiler)
    options_of_unit = Options(
        std=std,
        define=dict(define or {}),
        raw=tuple(options),
        fast_math=fast_math,
        relaxed_constexpr=relaxed_constexpr,
    )
    file, text, found = _gather(source, f"{name}.cu", include_dirs)
    embedded = {header: content.encode() for header, content in (headers or {}).items()}
    unit = TranslationUnit(file, text, "cu", {**found, **embedded}, options_of_unit, tuple(instantiate))
    plan = ModulePlan(name, (UnitPlan(unit, _architectures(architectures, tool)),), compress)
    module = compile_module(plan, tool, report)
    return module_from(module.manifest, module.files.__getitem__)


def save(module: ModuleType, directory: str | os.PathLike[str]) -> None:
    """Make `directory` hold `module`, for :func:`load`; an earlier module in it is replaced as a whole.

    Raises :class:`FileExistsError` if anything else would be lost.
    """
    if not isinstance(module, KernelModule):
        raise TypeError(f"expected a module of kernels, found {module!r}")
    library = library_of(module)
    manifest = library.manifest
    images = {image.file for unit in manifest.units for image in unit.images}
    names = [*sorted(images), *(f"sources/{name}" for name in manifest.embedded or {})]
    files = {name: library.read(name) for name in names}
    files[manifest_file.FILE_NAME] = manifest_file.dumps(manifest).encode()
    replace_directory(Path(os.path.abspath(directory)), files, _refuse_others)  # noqa: PTH100 - keeps links


def load(directory: str | os.PathLike[str]) -> ModuleType:
    """The module that :func:`save` put into `directory`.

    Raises :class:`~cuda_ext.errors.ManifestError` if it is missing or damaged.
    """
    folder = Path(os.path.abspath(directory))  # noqa: PTH100 - the working directory may change, links stay
    file = folder / manifest_file.FILE_NAME
    try:
        text = file.read_bytes()
    except OSError as error:
        raise ManifestError(f"{file}: {error.strerror}; cuda_ext.save puts a module there") from None
    return module_from(manifest_file.loads(text, str(file)), lambda name: (folder / name).read_bytes())


def _refuse_others(directory: Path) -> None:
    if found := foreign(directory):
        raise FileExistsError(f"{found}: is no part of a saved module, and would be lost; save elsewhere")


def _compiler(name: str) -> Compiler:
    if name == "nvcc":
        from cuda_ext.compiler.nvcc import find_nvcc

        return find_nvcc(None, os.environ)
    from cuda_ext.compiler.nvrtc import Nvrtc

    return Nvrtc()


def _gather(
    source: str | os.PathLike[str], name: str, include_dirs: Sequence[str | os.PathLike[str]]
) -> tuple[str, bytes, dict[str, bytes]]:
    """The name, text and headers of `source`. Names are relative to the directory that all files share."""
    directories = [Path(os.path.realpath(d)) for d in include_dirs]
    for directory in directories:
        if not directory.is_dir():
            raise BuildError(f"include_dirs: {str(directory)!r} is not a directory")
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
            raise BuildError(f"{os.fspath(source)}: is not a file")
    root = Path(os.path.commonpath([place.parent, *directories]))
    if text is not None and not directories:
        return name, text, {}
    rewritten, found = project_headers.gather(place, root, directories, text=text)
    return place.relative_to(root).as_posix(), rewritten, found


def _architectures(names: Sequence[str] | None, compiler: Compiler) -> tuple[Architecture, ...]:
    native = devices.capabilities() if names is None or "native" in names else []
    if names is not None and not names:
        raise BuildError('architectures: is empty; name at least one, such as "sm_90" or "all-major"')
    if names is None:
        names = ["native"] if native else ["all-major"]
    return expand(names, compiler, "architectures", native)
