"""``cuda_ext.compile``: a source string or file becomes a module, on any machine.

Compiling needs no GPU and no driver. The result lists its kernels and images like any module of this package,
and launches where there is a GPU.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from cuda_ext import manifest as manifest_file
from cuda_ext.compiler import headers as project_headers
from cuda_ext.compiler.architectures import Architecture, expand
from cuda_ext.compiler.fatbin import Compression
from cuda_ext.compiler.module import ModulePlan, UnitPlan, compile_module
from cuda_ext.compiler.translation_unit import Compiler, Options, TranslationUnit
from cuda_ext.errors import BuildError, ManifestError

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
) -> types.ModuleType:
    """Compile `source`, which is CUDA C++ text or the path of a ``.cu`` file.

    `architectures` are spelled as in the configuration (``sm_90a``, ``compute_90``, ``all-major``); by default
    they are those of the GPUs in this machine, or ``all-major`` where it has none. `instantiate` lists
    C++ name expressions; kernels that are not templates need no listing. `headers` maps names to the text
    of headers that the source may include besides those found in `include_dirs`. `report` receives the
    compiler's warnings.

    >>> import cuda_ext
    >>> module = cuda_ext.compile(
    ...     "template <class T> __global__ void fill(T* x, T value) { x[threadIdx.x] = value; }",
    ...     instantiate=["fill<float>"], architectures=["sm_90"])
    >>> [kernel.signature for kernel in cuda_ext.describe(module).kernels]
    ['fill<float>(float* x, float value)']

    Raises :class:`~cuda_ext.errors.BuildError`: :class:`~cuda_ext.errors.CompilationError` with the compiler's
    text, :class:`~cuda_ext.errors.ToolchainError` if there is no compiler.
    """
    tool = _compiler(compiler)
    unit = _unit(source, name, [Path(os.path.realpath(d)) for d in include_dirs], dict(headers or {}))
    unit = TranslationUnit(
        unit.name,
        unit.source,
        headers=unit.headers,
        options=Options(
            std=std,
            define=dict(define or {}),
            raw=tuple(options),
            fast_math=fast_math,
            relaxed_constexpr=relaxed_constexpr,
        ),
        instantiate=tuple(instantiate),
    )
    plan = ModulePlan(name, (UnitPlan(unit, _targets(architectures, tool)),), compress)
    module = compile_module(plan, tool, report)
    return _module(module.manifest, module.files.__getitem__, module.files)


def save(module: types.ModuleType, directory: str | os.PathLike[str]) -> None:
    """Write `module`, a result of :func:`compile`, into `directory` for :func:`load`.

    The manifest appears last, so that a directory with one is complete.
    """
    files = getattr(module, "__cuda_ext_files__", None)
    if files is None:
        raise TypeError(f"{module!r} is not a result of cuda_ext.compile")
    target = Path(directory)
    for path, content in files.items():
        _write(target / path, content)


def load(directory: str | os.PathLike[str]) -> types.ModuleType:
    """Read what :func:`save` wrote. Raises :class:`~cuda_ext.errors.ManifestError` if it is damaged."""
    folder = Path(directory)
    file = folder / manifest_file.FILE_NAME
    try:
        text = file.read_bytes()
    except OSError as error:
        raise ManifestError(f"{file}: {error.strerror}; save a module there first") from None
    return _module(manifest_file.loads(text, str(file)), lambda name: (folder / name).read_bytes(), None)
