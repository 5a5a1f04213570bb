"""``cuda-ext cmake-dir``, which needs no other package."""

from __future__ import annotations

from pathlib import Path

import cuda_ext


def cmake_dir() -> None:
    """Print the directory for CMAKE_PREFIX_PATH.

    There CMake finds the package CudaExt, which has the function cuda_ext_add_module.
    """
    package = Path(cuda_ext.__file__).parent
    # A checkout has the folder beside the package, and an installed package has it inside.
    folders = (package / "cmake", package.parent / "cmake" / "CudaExt")
    print(next(folder for folder in folders if folder.is_dir()).as_posix())
