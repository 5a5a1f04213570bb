"""Choose and open compilers, for builds, compilation at run time, editors and ``doctor``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from cuda_ext.compiler.spelled_settings import spell_setting
from cuda_ext.errors import ToolchainError
from cuda_ext.toolchain import cuda_packages

if TYPE_CHECKING:
    from pathlib import Path

    from cuda_ext.compiler.translation_unit import Compiler
    from cuda_ext.toolchain.nvcc import Nvcc

_Check = Callable[["Nvcc"], object]


class CompilerChoice(NamedTuple):
    """The choice of a compiler: ``nvrtc``, ``nvcc``, or the name of a front-end.

    ``executable`` is the configured nvcc; without it, the first that works is used. ``launcher`` is a program
    that runs nvcc, such as ``sccache``.
    """

    name: str = "nvrtc"
    executable: str | None = None
    launcher: str | None = None


def open_compiler(
    choice: CompilerChoice,
    environ: Mapping[str, str],
    *,
    scratch: Path | None = None,
    timed: bool = False,
    check: _Check = attrgetter("version"),
) -> Compiler:
    """Open the compiler of `choice`; NVRTC and front-ends are loaded when they are first needed.

    With a `scratch` directory, the compiler records the headers that it reads; if `timed`, it measures each
    phase. `check` tests a candidate for nvcc. Raises :class:`~cuda_ext.errors.ToolchainError`.
    """
    match choice.name:
        case "nvrtc":
            from cuda_ext.toolchain.nvrtc import Nvrtc

            return Nvrtc(scratch, timed)
        case "tile":
            from cuda_ext.toolchain.front_ends.tile_cpp import TileCpp

            return TileCpp(scratch, timed)
        case "cutile":
            from cuda_ext.toolchain.front_ends.cutile import CuTile

            return CuTile()
        case "triton":
            from cuda_ext.toolchain.front_ends.triton import Triton

            return Triton()
    nvcc = find_nvcc(choice.executable, environ, choice.launcher, check)
    nvcc.scratch, nvcc.timed = scratch, timed
    return nvcc


def find_nvcc(
    configured: str | None,
    environ: Mapping[str, str],
    launcher: str | None = None,
    check: _Check = attrgetter("version"),
) -> Nvcc:
    """Find nvcc: only `configured`, or else the first that passes `check`.

    The order is ``CUDA_PATH``, ``CUDA_HOME``, the registry's wheel, ``PATH``. Raises
    :class:`~cuda_ext.errors.ToolchainError` with the reason why each of them was rejected.
    """
    rejected = []
    for origin, nvcc in try_nvccs(configured, environ, launcher, check):
        if not isinstance(nvcc, str | ToolchainError):
            return nvcc
        rejected.append(f"  {origin}: {nvcc}".replace("\n", "\n    "))
    remedy = 'install "cuda-ext[nvcc-cu13]", or set CUDA_PATH to a CUDA toolkit'
    if configured is not None:
        remedy = f"correct the key {spell_setting('nvcc')}, or remove it so that others are tried"
    raise ToolchainError(
        "\n".join(["no nvcc can be used:", *rejected]),
        remedy=f"{remedy}; {spell_setting('compiler', 'nvrtc')} needs neither nvcc nor a host compiler",
    )


def try_nvccs(
    configured: str | None,
    environ: Mapping[str, str],
    launcher: str | None = None,
    check: _Check = attrgetter("version"),
) -> Iterator[tuple[str, Nvcc | ToolchainError | str]]:
    """Try each place where nvcc may be; yield it with its nvcc, an error, or the reason why it has none."""
    from cuda_ext.toolchain.nvcc import Nvcc

    for origin, candidate in _candidates(configured, environ):
        if isinstance(candidate, str):
            yield origin, candidate
            continue
        nvcc = Nvcc(candidate, environ, launcher)
        try:
            check(nvcc)
        except ToolchainError as error:
            yield origin, error
        else:
            yield origin, nvcc


def _candidates(configured: str | None, environ: Mapping[str, str]) -> Iterator[tuple[str, Path | str]]:
    """Yield the places where nvcc may be, each with a path, or with the reason why there is none."""
    import shutil  # slow to import, and not needed for NVRTC
    from pathlib import Path

    search_path = environ.get("PATH", "")
    if configured is not None:
        yield "configured", Path(shutil.which(configured, path=search_path) or configured)
        return
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        value = environ.get(variable)
        yield variable, Path(value, "bin", "nvcc") if value else "not set"
    # The packages for CUDA 12, under other names, hold ptxas and libNVVM but no nvcc.
    wheel = shutil.which("nvcc", path=os.pathsep.join(cuda_packages.wheel_programs()))
    yield "nvidia-cuda-nvcc", Path(wheel) if wheel else "not installed"
    on_path = shutil.which("nvcc", path=search_path)
    yield "PATH", Path(on_path) if on_path else "holds no nvcc"
