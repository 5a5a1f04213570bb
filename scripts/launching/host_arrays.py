"""Measure calls with numpy arrays, and copies through pinned memory that are written by hand."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.tables import format_spread

from launching.kernels import NAME

_COUNT = 16 << 20
_TIMES = 15


def measure(package: Path) -> dict[str, str]:
    """Measure the rate in GB/s of copying 64 MB to the GPU and 64 MB back."""
    import cupy
    import numpy

    import cuda_ext

    sys.path.insert(0, str(package))
    kernels: Any = importlib.import_module(NAME)
    x = numpy.random.default_rng(0).random(_COUNT, dtype="f4")
    y = numpy.zeros(_COUNT, "f4")
    pinned_x, pinned_y = (_copy_to_pinned(cupy, numpy, x) for _ in range(2))
    gpu_x, gpu_y = cupy.empty(_COUNT, "f4"), cupy.empty(_COUNT, "f4")
    stream = cupy.cuda.Stream()
    launch = {"threads": _COUNT}

    def with_numpy() -> None:
        kernels.add_one(_COUNT, x, cuda_ext.out(y), **launch)

    def by_hand() -> None:
        with stream:
            numpy.copyto(pinned_x, x)
            gpu_x.set(pinned_x, stream=stream)
            kernels.add_one(_COUNT, gpu_x, gpu_y, stream=stream, **launch)
            gpu_y.get(stream=stream, out=pinned_y)
            stream.synchronize()
            numpy.copyto(y, pinned_y)

    def by_hand_with_pinned_arrays() -> None:
        with stream:
            gpu_x.set(pinned_x, stream=stream)
            kernels.add_one(_COUNT, gpu_x, gpu_y, stream=stream, **launch)
            gpu_y.get(stream=stream, out=pinned_y)
            stream.synchronize()

    def with_pinned_arrays() -> None:
        kernels.add_one(_COUNT, pinned_x, cuda_ext.out(pinned_y), **launch)

    def by_hand_unpinned() -> None:
        gpu = cupy.asarray(x)
        kernels.add_one(_COUNT, gpu, gpu_y, **launch)
        gpu_y.get(out=y)

    contenders: dict[str, Callable[[], None]] = {
        "cuda_ext, numpy arrays": with_numpy,
        "by hand through pinned memory (CuPy)": by_hand,
        "by hand, cupy.asarray and get": by_hand_unpinned,
        "cuda_ext, arrays in pinned memory": with_pinned_arrays,
        "by hand, arrays in pinned memory (CuPy)": by_hand_with_pinned_arrays,
    }
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(_TIMES + 2):
        for name, call in contenders.items():
            y[:] = 0
            cupy.cuda.Device().synchronize()
            began = time.perf_counter()
            call()
            seconds = time.perf_counter() - began
            if number >= 2:
                taken[name].append(2 * x.nbytes / seconds / 1e9)
            result = pinned_y if "pinned memory" in name and call is not by_hand else y
            numpy.testing.assert_array_equal(result, x + numpy.float32(1))
    rates = {name: median(rates) for name, rates in taken.items()}
    spreads = {name: format_spread(samples, 2) for name, samples in taken.items()}
    ratio = rates["cuda_ext, numpy arrays"] / rates["by hand through pinned memory (CuPy)"]
    pinned = rates["cuda_ext, arrays in pinned memory"] / rates["by hand, arrays in pinned memory (CuPy)"]
    return {**spreads, "ratio": f"{ratio:.3f}", "ratio, pinned": f"{pinned:.3f}"}


def _copy_to_pinned(cupy: Any, numpy: Any, like: Any) -> Any:
    memory = cupy.cuda.alloc_pinned_memory(like.nbytes)
    array = numpy.frombuffer(memory, like.dtype, like.size)
    array[:] = like
    return array
