"""The ways to package the kernels in ``device/``. Each has its own project beside this file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["ARCHITECTURES", "CONTENDERS", "KERNELS", "Contender", "parse_contenders"]

ARCHITECTURES = frozenset({"sm_80", "sm_90", "compute_90"})
KERNELS = 6  # three templates for float and double


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to package kernels.

    ``requirements`` are the packages that build and run it, besides a host compiler. ``wheels`` is the number
    of wheels for Python 3.11 to 3.14 on one platform, and ``tag`` that of the wheel which this Python builds.
    ``framework`` is imported by the package, and usually by its users before. Without ``compiles``, kernels
    are compiled on the user's machine. ``launchers`` are the variables to set to ccache if it is installed;
    PyTorch finds it itself.
    """

    key: str
    title: str
    requirements: tuple[str, ...]
    wheels: str
    tag: str
    host_compiler: bool
    framework: str | None = None
    toolkit: bool = False
    compiles: bool = True
    variables: Mapping[str, str] = field(default_factory=dict)
    launchers: tuple[str, ...] = ()

    @property
    def project(self) -> Path:
        return Path(__file__).parent / self.key


CONTENDERS = (
    Contender(
        "cuda_ext",
        "cuda_ext",
        ("setuptools>=77", "cuda-ext[cu13]"),
        wheels="1",
        tag="py3-none-any",
        host_compiler=False,
    ),
    Contender(
        "scikit_build_core",
        "scikit-build-core, CUDA",
        (
            "scikit-build-core",
            "nanobind",
            "cmake",
            "ninja",
            "nvidia-cuda-nvcc==13.*",
            "nvidia-cuda-cccl==13.*",
            "nvidia-cuda-runtime==13.*",
        ),
        wheels="2: cp311, and cp312-abi3",
        tag="cp312-abi3" if sys.version_info >= (3, 12) else "cp311-cp311",
        host_compiler=True,
        toolkit=True,
        launchers=("CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_CUDA_COMPILER_LAUNCHER"),
    ),
    Contender(
        "torch_extension",
        "PyTorch CUDAExtension",
        ("setuptools>=77", "ninja", "numpy", "torch"),
        wheels="1 for each CUDA of PyTorch",
        tag="cp311-abi3",
        host_compiler=True,
        framework="torch",
        toolkit=True,
        variables={"TORCH_CUDA_ARCH_LIST": "8.0;9.0+PTX"},
    ),
    Contender(
        "cupy_raw_module",
        "CuPy RawModule",
        ("setuptools>=77", "cupy-cuda13x", "nvidia-cuda-nvrtc==13.*", "nvidia-cuda-runtime==13.*"),
        wheels="1",
        tag="py3-none-any",
        host_compiler=False,
        framework="cupy",
        compiles=False,
    ),
)


def parse_contenders(text: str) -> list[Contender]:
    """The contenders of these keys, which commas separate, as an argument of a command."""
    by_key = {contender.key: contender for contender in CONTENDERS}
    if unknown := [key for key in text.split(",") if key not in by_key]:
        raise argparse.ArgumentTypeError(
            f"unknown: {', '.join(unknown)}; the contenders are {', '.join(by_key)}"
        )
    return [by_key[key] for key in text.split(",")]
