"""Measure launches on the first GPU while the second is current: what it costs to change contexts."""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cuda_ext.runtime.driver.driver import open_driver
from launching.c_launch import CLaunch, ContextChange
from launching.kernels import NAME
from launching.repeated_launches import Batch, N, measure_groups, summarise, timed

_OTHER = ", the other GPU current"
_PUSHED = "C, context pushed and popped"


def measure(package: Path, directory: Path, rounds: int, batch: int) -> dict[str, Any]:
    """Measure the microseconds per launch with either GPU current, and the ratios of these."""
    sys.path.insert(0, str(package))
    kernels: Any = importlib.import_module(NAME)
    launches = measure_groups((_c, _cuda_ext), kernels, directory, rounds, batch)
    results = summarise(launches, rounds, batch)
    return {**results, "ratios": dict(_ratios(results["contenders"]))}


def _ratios(contenders: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, str]]:
    """Compare launches beside the other GPU with the same ones on the current GPU, and with those from C."""
    for name, times in contenders.items():
        own = name.removesuffix(_OTHER)
        if own != name:
            yield f"{name} / its GPU current", f"{times['median'] / contenders[own]['median']:.2f}"
            if _PUSHED in contenders:
                yield f"{name} / {_PUSHED}", f"{times['median'] / contenders[_PUSHED]['median']:.2f}"


def _beside(launch: Batch) -> Batch:
    """Return the measurement `launch` with the second GPU current."""
    import torch

    def measured(times: int) -> float:
        with torch.cuda.device(1):
            return launch(times)

    return measured


def _tensors() -> tuple[Any, Any]:
    import torch

    return torch.zeros(N, device="cuda:0"), torch.zeros(N, device="cuda:0")


def _c(kernels: Any, directory: Path) -> Iterator[tuple[str, Batch]]:
    import torch

    compiled = CLaunch(directory)
    x, y = _tensors()
    kernels.axpy_c(N, 2.0, x, y, grid=1, block=32)
    first, second = (open_driver().device(number) for number in (0, 1))
    function = kernels.axpy_c._load(first).function
    values = ctypes.c_int(N), ctypes.c_float(2), ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    default = torch.cuda.current_stream(0).cuda_stream
    side = torch.cuda.Stream(0)

    def loop(stream: int, change: ContextChange | None = None) -> Batch:
        return lambda times, _=(x, y, side): compiled.seconds(function, stream, values, times, change=change)

    yield "C, 4 arguments", loop(default)
    yield _PUSHED, _beside(loop(default, ContextChange.pushed(first.context)))
    yield (
        "C, context set and set back",
        _beside(loop(default, ContextChange.set(first.context, second.context))),
    )
    yield "C, a stream of its own", loop(side.cuda_stream)
    yield f"C, a stream of its own{_OTHER}", _beside(loop(side.cuda_stream))


def _cuda_ext(kernels: Any, _: Path) -> Iterator[tuple[str, Batch]]:
    import torch

    x, y = _tensors()
    axpy = kernels.axpy["float"]
    default, side = torch.cuda.current_stream(0), torch.cuda.Stream(0)
    names = {
        "axpy": axpy,
        "bound": axpy.bind(grid=1, block=32),
        "bound_in_stream": axpy.bind(grid=1, block=32, stream=default),
        "x": x,
        "y": y,
        "a": x.data_ptr(),
        "b": y.data_ptr(),
        "default": default,
        "side": side,
        "handle": side.cuda_stream,
    }
    for name, statement in {
        "torch tensors": "axpy(N, 2.0, x, y, grid=1, block=32)",
        "threads=": "axpy(N, 2.0, x, y, threads=N)",
        "addresses, like=": "axpy(N, 2.0, a, b, grid=1, block=32, like=x)",
        "addresses, stream object": "axpy(N, 2.0, a, b, grid=1, block=32, stream=default)",
        "torch tensors, handle of a stream": "axpy(N, 2.0, x, y, grid=1, block=32, stream=handle)",
        "addresses, handle of a stream": "axpy(N, 2.0, a, b, grid=1, block=32, stream=handle)",
        "bind, torch tensors": "bound(N, 2.0, x, y)",
        "bind, addresses": "bound_in_stream(N, 2.0, a, b)",
    }.items():
        launch = timed(statement, **names)
        yield f"cuda_ext, {name}", launch
        yield f"cuda_ext, {name}{_OTHER}", _beside(launch)
