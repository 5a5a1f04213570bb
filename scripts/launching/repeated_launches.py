"""Measure repeated launches of small kernels with cuda_ext and other libraries."""

from __future__ import annotations

import ctypes
import importlib
import sys
import timeit
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

import cuda_ext
from cuda_ext.runtime.driver.driver import open_driver
from launching.c_launch import CLaunch
from launching.cpp_launch import CppLaunch
from launching.kernels import NAME, SOURCE
from launching.tvm_ffi_launch import load_axpy

Batch = Callable[[int], float]
Group = Callable[[Any, Path], Iterator[tuple[str, Batch]]]
N = 32


def measure(package: Path, directory: Path, rounds: int, batch: int) -> dict[str, Any]:
    """Measure the microseconds per launch of each contender; report why others are left out."""
    sys.path.insert(0, str(package))
    kernels: Any = importlib.import_module(NAME)
    return summarise(measure_groups(_GROUPS, kernels, directory, rounds, batch), rounds, batch)


class Launches(NamedTuple):
    """The microseconds of launches by contender, and why others are left out."""

    samples: dict[str, list[float]]
    left_out: dict[str, str]


def summarise(launches: Launches, rounds: int, batch: int) -> dict[str, Any]:
    """The median and the spread of each contender's microseconds."""
    result = {
        name: {"median": median(taken), "p10": quantiles(taken, n=10)[0], "p90": quantiles(taken, n=10)[-1]}
        for name, taken in launches.samples.items()
    }
    return {"contenders": result, "left_out": launches.left_out, "rounds": rounds, "batch": batch}


def measure_groups(
    groups: Iterable[Group], kernels: Any, directory: Path, rounds: int, batch: int
) -> Launches:
    """Measure the contenders of `groups`, which take turns."""
    import torch

    contenders: dict[str, Batch] = {}
    left_out: dict[str, str] = {}
    for group in groups:
        try:
            for name, launch in group(kernels, directory):
                launch(batch)  # compiles, loads, warms up
                contenders[name] = launch
        except Exception as error:  # a failing contender must not end the others
            left_out[group.__name__.strip("_")] = f"{type(error).__name__}: {error}".splitlines()[0]
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, launch in contenders.items():
            torch.cuda.synchronize()
            samples[name].append(1e6 * launch(batch))
    torch.cuda.synchronize()
    return Launches(samples, left_out)


def timed(statement: str, **names: object) -> Batch:
    """Return a function that times `statement` in a loop without further overhead."""
    timer = timeit.Timer(statement, globals={"N": N, **names})
    return lambda times: timer.timeit(times) / times


def _tensors(count: int) -> list[Any]:
    import torch

    return [torch.zeros(N, device="cuda") for _ in range(count)]


def _c(kernels: Any, directory: Path) -> Iterator[tuple[str, Batch]]:
    import torch

    compiled = CLaunch(directory)
    stream = torch.cuda.current_stream().cuda_stream
    x, y = _tensors(2)
    kernels.axpy_c(N, 2.0, x, y, grid=1, block=32)
    values: list[Any] = [
        ctypes.c_int(N),
        ctypes.c_float(2),
        ctypes.c_void_p(x.data_ptr()),
        ctypes.c_void_p(y.data_ptr()),
    ]
    device = open_driver().device(0)
    function = kernels.axpy_c._load(device).function
    yield "C, 4 arguments", lambda times, _=(x, y): compiled.seconds(function, stream, values, times)
    tensors = _tensors(9)
    kernels.many(N, 2.0, *tensors, 1, 2, 3.0, 4.0, 5, grid=1, block=32)
    numbers = [ctypes.c_int(1), ctypes.c_int(2), ctypes.c_float(3), ctypes.c_float(4), ctypes.c_longlong(5)]
    more = [*values[:2], *(ctypes.c_void_p(t.data_ptr()) for t in tensors), *numbers]
    wide = kernels.many._load(device).function
    yield "C, 16 arguments", lambda times, _=tensors: compiled.seconds(wide, stream, more, times)


def _cpp(kernels: Any, directory: Path) -> Iterator[tuple[str, Batch]]:
    import torch

    compiled = CppLaunch(Path(kernels.__file__).parents[2], directory)
    stream = torch.cuda.current_stream().cuda_stream
    x, y = _tensors(2)

    def loop(name: str) -> Batch:
        return lambda times, _=(x, y): compiled.seconds(name, stream, x.data_ptr(), y.data_ptr(), times)

    yield "cuda_ext, from C++, typed wrapper", loop("launch_axpy")
    yield "cuda_ext, from C++, 16 arguments", loop("launch_many")


def _cuda_ext(kernels: Any, _: Path) -> Iterator[tuple[str, Batch]]:
    import torch

    x, y = _tensors(2)
    a, b = x.data_ptr(), y.data_ptr()
    axpy = kernels.axpy["float"]
    stream = torch.cuda.current_stream().cuda_stream
    # Beside PyTorch, addresses take a stream, or an array that says which.
    yield "cuda_ext, addresses", timed("axpy(N, 2.0, a, b, grid=1, block=32, stream=stream)", **vars())
    yield "cuda_ext, addresses, like=", timed("axpy(N, 2.0, a, b, grid=1, block=32, like=x)", **vars())
    yield "cuda_ext, torch tensors", timed("axpy(N, 2.0, x, y, grid=1, block=32)", **vars())
    yield (
        "cuda_ext, looked up each time",
        timed('kernels.axpy["float"](N, 2.0, x, y, grid=1, block=32)', **vars()),
    )
    yield (
        "cuda_ext, instantiation from dtypes",
        timed("kernels.axpy(N, 2.0, x, y, grid=1, block=32)", **vars()),
    )
    yield "cuda_ext, threads=", timed("axpy(N, 2.0, x, y, threads=N)", **vars())
    yield (
        "cuda_ext, parameters by name",
        timed("axpy(N, 2.0, x=x, y=y, grid=1, block=32)", **vars()),
    )
    yield (
        "cuda_ext, grid and block as tuples",
        timed("axpy(N, 2.0, x, y, grid=(1, 1), block=(32, 1))", **vars()),
    )
    bound = axpy.bind(grid=1, block=32, stream=stream)
    yield "cuda_ext, bind, addresses", timed("bound(N, 2.0, a, b)", **vars())
    yield "cuda_ext, bind, torch tensors", timed("bound(N, 2.0, x, y)", **vars())
    tensors = _tensors(9)
    yield (
        "cuda_ext, 16 arguments, 9 torch tensors",
        timed(
            "many(N, 2.0, p, q, r, s, t, u, v, w, x, 1, 2, 3.0, 4.0, 5, grid=1, block=32)",
            many=kernels.many,
            **dict(zip("pqrstuvwx", tensors, strict=True)),
        ),
    )


def _cuda_ext_with_cupy(kernels: Any, _: Path) -> Iterator[tuple[str, Batch]]:
    import cupy

    x, y = cupy.zeros(N, "f4"), cupy.zeros(N, "f4")
    axpy = kernels.axpy["float"]
    yield "cuda_ext, CuPy arrays", timed("axpy(N, 2.0, x, y, grid=1, block=32)", **vars())


def _cuda_core(_kernels: Any, _: Path) -> Iterator[tuple[str, Batch]]:
    import torch
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

    device = Device(0)
    device.set_current()
    options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    program = Program(SOURCE, code_type="c++", options=options)
    kernel = program.compile("cubin", name_expressions=("axpy<float>",)).get_kernel("axpy<float>")
    x, y = _tensors(2)

    class Current:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, torch.cuda.current_stream().cuda_stream

    def as_used() -> None:
        stream = device.create_stream(Current())
        config = LaunchConfig(grid=1, block=32)
        launch(stream, config, kernel, ctypes.c_int(N), ctypes.c_float(2), x.data_ptr(), y.data_ptr())

    yield "cuda.core, as used with torch", timed("as_used()", **vars())
    stream, config = device.create_stream(Current()), LaunchConfig(grid=1, block=32)
    n, a, p, q = ctypes.c_int(N), ctypes.c_float(2), x.data_ptr(), y.data_ptr()
    yield "cuda.core, all prepared", timed("launch(stream, config, kernel, n, a, p, q)", **vars())


def _cupy(_kernels: Any, _: Path) -> Iterator[tuple[str, Batch]]:
    import cupy

    kernel = cupy.RawKernel(SOURCE, "axpy_c")
    x, y = cupy.zeros(N, "f4"), cupy.zeros(N, "f4")
    n, a = cupy.int32(N), cupy.float32(2)
    yield "CuPy RawKernel, CuPy arrays", timed("kernel((1,), (32,), (n, a, x, y))", **vars())
    u, v = _tensors(2)

    def from_torch() -> None:
        kernel((1,), (32,), (cupy.int32(N), cupy.float32(2), cupy.asarray(u), cupy.asarray(v)))

    yield "CuPy RawKernel, torch tensors", timed("from_torch()", **vars())


def _triton(_kernels: Any, directory: Path) -> Iterator[tuple[str, Batch]]:
    # Triton reads a kernel's source from its file.
    (directory / "triton_axpy.py").write_text(
        "import triton\n"
        "import triton.language as tl\n\n\n"
        "@triton.jit\n"
        "def axpy(n, a, x, y, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y + i, tl.load(y + i, i < n) + a * tl.load(x + i, i < n), i < n)\n"
    )
    sys.path.insert(0, str(directory))
    axpy = importlib.import_module("triton_axpy").axpy
    x, y = _tensors(2)
    yield "Triton, torch tensors", timed("axpy[(1,)](N, 2.0, x, y, BLOCK=32)", **vars())


def _numba(_kernels: Any, _: Path) -> Iterator[tuple[str, Batch]]:
    from numba import cuda

    @cuda.jit("void(int32, float32, float32[::1], float32[::1])")
    def axpy(n: Any, a: Any, x: Any, y: Any) -> None:
        i = cuda.grid(1)
        if i < n:
            y[i] += a * x[i]

    x, y = cuda.device_array(N, "f4"), cuda.device_array(N, "f4")
    configured = axpy[1, 32]
    yield "Numba, its own arrays", timed("configured(N, 2.0, x, y)", **vars())


def _tvm_ffi(kernels: Any, directory: Path) -> Iterator[tuple[str, Batch]]:
    axpy = load_axpy(Path(kernels.__file__).parents[2], directory)
    x, y = _tensors(2)
    yield "tvm-ffi, torch tensors", timed("axpy(N, 2.0, x, y)", **vars())


def _torch(kernels: Any, _: Path) -> Iterator[tuple[str, Batch]]:
    import torch

    x, y = _tensors(2)
    yield "torch, y.add_(x)", timed("y.add_(x)", **vars())
    torch.library.define("bench::nothing", "(int n, float a, Tensor? x, Tensor(a3!)? y) -> ()")
    torch.library.impl("bench::nothing", "cuda")(lambda *_: None)
    op = torch.ops.bench.nothing.default
    yield "torch custom op that does nothing", timed("op(N, 2.0, x, y)", **vars())
    op = kernels.axpy["float"].torch_op("bench::axpy", block=32, threads="n")
    yield "torch custom op, from cuda_ext", timed("op(N, 2.0, x, y)", **vars())

    def launch(n: int, a: float, x: Any, y: Any) -> None:
        kernels.axpy(n, a, x, y, block=32, threads=n)

    schema = "(int n, float a, Tensor? x, Tensor(a3!)? y) -> ()"
    op = cuda_ext.torch_op("bench::function", launch, schema=schema)
    yield "torch custom op of a function, from cuda_ext", timed("op(N, 2.0, x, y)", **vars())


_GROUPS = (_c, _cpp, _cuda_ext, _cuda_ext_with_cupy, _cuda_core, _cupy, _triton, _tvm_ffi, _numba, _torch)
