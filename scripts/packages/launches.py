"""Launch the ``axpy`` of one contender, in a process of its own: the first time, and many times beside C.

Arguments: the contender's key; ``first``, or ``many`` with the package of ``launching.kernels``, a directory
for the loop in C, the rounds, and the launches of a round. Prints JSON: the milliseconds from the import to
the result, or the microseconds of a launch from C and of one of the contender.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["STATEMENTS"]

N = 32

# A launch with tensors of PyTorch, in its current stream, as users of the package write it.
STATEMENTS = {
    "cuda_ext": "axpy(N, 2.0, x, y, threads=N)",
    "scikit_build_core": "axpy(2.0, x, y, current_stream().cuda_stream)",
    "torch_extension": "axpy(2.0, x, y)",
    "cupy_raw_module": "axpy(2.0, asarray(x), asarray(y))",
}


def main(key: str, part: str, *arguments: str) -> None:
    import torch

    names: dict[str, Any] = {"N": N, "current_stream": torch.cuda.current_stream}
    if key == "cupy_raw_module":
        names["asarray"] = importlib.import_module("cupy").asarray
    names["x"], names["y"] = (torch.ones(N, device="cuda") for _ in range(2))
    torch.cuda.synchronize()
    launch = compile(STATEMENTS[key], key, "eval")
    began = time.perf_counter()
    package = importlib.import_module("vector_kernels")
    names["axpy"] = package.kernels.axpy["float"] if key == "cuda_ext" else package.axpy
    eval(launch, names)
    torch.cuda.synchronize()
    milliseconds = 1e3 * (time.perf_counter() - began)
    if names["y"].tolist() != [3.0] * N:
        sys.exit(f"{key}: wrong result")
    print(json.dumps(milliseconds if part == "first" else _many(key, names, *arguments)))


def _many(
    key: str, names: dict[str, Any], package: str, directory: str, rounds: str, batch: str
) -> list[float]:
    import torch
    from launching.repeated_launches import timed

    loops = _loop_in_c(package, Path(directory), names), timed(STATEMENTS[key], **names)
    samples: list[list[float]] = [[] for _ in loops]
    for number in range(1 + int(rounds)):
        for loop, taken in zip(loops, samples, strict=True):
            torch.cuda.synchronize()
            seconds = loop(int(batch))
            taken += [1e6 * seconds] if number else []  # the first one warms up
    return list(map(median, samples))


def _loop_in_c(package: str, directory: Path, names: dict[str, Any]) -> Callable[[int], float]:
    import torch
    from launching.c_launch import CLaunch
    from launching.kernels import NAME

    from cuda_ext.runtime.driver.driver import open_driver

    sys.path.insert(0, package)
    kernel = importlib.import_module(NAME).axpy_c
    x, y = names["x"], names["y"]
    kernel(N, 2.0, x, y, grid=1, block=32)
    values = [ctypes.c_int(N), ctypes.c_float(2), *(ctypes.c_void_p(each.data_ptr()) for each in (x, y))]
    function = kernel._load(open_driver().device(0)).function
    compiled, stream = CLaunch(directory), torch.cuda.current_stream().cuda_stream
    return lambda times: compiled.seconds(function, stream, values, times)


if __name__ == "__main__":
    main(*sys.argv[1:])
