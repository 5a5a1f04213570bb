"""Repeated launches of a Triton kernel with five arguments, two of them tensors: ours, C's and Triton's."""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _environment import ROOT
from launching.c_launch import CLaunch
from launching.repeated_launches import Batch, timed

from cuda_ext.runtime.driver.driver import open_driver

N = 64


def import_kernels(package: Path) -> Any:
    """The kernels of the package that was built from ``examples/front_ends``."""
    sys.path.insert(0, str(package))
    return importlib.import_module("front_ends.kernels")


def import_sources() -> Any:
    """Triton's functions that the package was built from."""
    sys.path.insert(0, str(ROOT / "examples" / "front_ends"))
    for name in ("softmax", "matmul", "attention"):
        importlib.import_module(f"kernels.{name}")
    return sys.modules["kernels"]


def _tensors() -> tuple[Any, Any]:
    import torch

    return torch.empty(1, N, device="cuda"), torch.zeros(1, N, device="cuda")


def _c(kernels: Any, directory: Path) -> Iterator[tuple[str, Batch]]:
    import torch

    out, x = _tensors()
    kernel = kernels.softmax["fp32, BLOCK=1024"]
    kernel(out, x, N, N, 1.0, grid=1)
    loaded = kernel.candidates[0].kernel._load(open_driver().device(0))
    values: list[Any] = [
        *(ctypes.c_void_p(tensor.data_ptr()) for tensor in (out, x)),
        *(ctypes.c_int(N), ctypes.c_int(N), ctypes.c_float(1)),
        *(ctypes.c_void_p(0), ctypes.c_void_p(0)),
    ]
    compiled, stream = CLaunch(directory), torch.cuda.current_stream().cuda_stream
    block, shared = loaded.fixed.block[0], loaded.fixed.shared

    def launch(times: int, _: Any = (out, x)) -> float:
        return compiled.seconds(loaded.function, stream, values, times, block, shared)

    yield "C", launch


def _cuda_ext(kernels: Any, _: Path) -> Iterator[tuple[str, Batch]]:
    out, x = _tensors()
    softmax = kernels.softmax["fp32, BLOCK=1024"]
    names = {"N": N, "kernels": kernels, "softmax": softmax, "out": out, "x": x}
    yield "cuda_ext, by name in brackets", timed("softmax(out, x, N, N, 1.0, grid=1)", **names)
    yield (
        "cuda_ext, looked up each time",
        timed('kernels.softmax["fp32, BLOCK=1024"](out, x, N, N, 1.0, grid=1)', **names),
    )
    yield (
        "cuda_ext, by dtypes and BLOCK=",
        timed("kernels.softmax(out, x, N, N, 1.0, BLOCK=1024, grid=1)", **names),
    )
    yield (
        "cuda_ext, by dtypes and BLOCK=, not divisible",
        timed("kernels.softmax(out, x, 63, 63, 1.0, BLOCK=1024, grid=1)", **names),
    )


def _triton(_: Any, __: Path) -> Iterator[tuple[str, Batch]]:
    out, x = _tensors()
    softmax = import_sources().softmax.softmax
    names = {"N": N, "softmax": softmax, "out": out, "x": x}
    yield "Triton", timed("softmax[(1,)](out, x, N, N, 1.0, BLOCK=1024, num_warps=8)", **names)


GROUPS = (_c, _cuda_ext, _triton)
