"""``cuda-ext cmake-dir``, which takes no other package."""

from __future__ import annotations

from pathlib import Path

__all__ = ["cmake_dir"]


def cmake_dir() -> None:
    """Print the directory for CMAKE_PREFIX_PATH.

    CMake finds the package CudaExt there, with the function cuda_ext_add_module.
    """
    print((Path(__file__).parents[1] / "cmake").as_posix())
