"""Measure launches in modules of hundreds of kernels: repeated ones, first ones, and the import."""

from __future__ import annotations

import ctypes
import importlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _environment import ROOT
from bench.tables import format_spread

from cuda_ext.builder.project import Project
from cuda_ext.builder.session import build_project
from cuda_ext.facts.launches import FixedLaunch
from cuda_ext.facts.manifest import Manifest
from cuda_ext.runtime.driver.driver import open_driver
from cuda_ext.runtime.module import library_of, module_from
from launching.c_launch import CLaunch
from launching.repeated_launches import Batch, N, measure_groups, summarise, timed

_TYPES = {  # those of PyTorch, by those of C++
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "long long": "int64",
    "__half": "float16",
    "__nv_bfloat16": "bfloat16",
}
_SIZES = (32, 64, 128, 256, 512)
_LAYERS = 6
_WIDE = ", ".join(f"{'const T' if i % 2 else 'T'}* x{i}" for i in range(9))
_WIDE += ", " + ", ".join(f"int n{i}" for i in range(6)) + ", float a"

_SOURCES = {
    # 405 kernels of one name, and 99 of another.
    "many.cu": """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <class T, class U, int BLOCK> __global__ void many(int n, float a, const T* x, U* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = U(float(y[i]) + a * float(x[i]) + (BLOCK < 0));
}
template <class T, int I> __global__ void other(int n, const T* x) {}
""",
    "layers.cu": "#include <cuda_fp16.h>\n"
    + "".join(
        f"namespace layers {{ template <class T, int BLOCK, bool C> __global__ void layer{i}({_WIDE}) {{\n"
        f"  if (threadIdx.x < n0) x0[threadIdx.x] = x1[threadIdx.x] + T({i} + BLOCK);\n}} }}\n"
        for i in range(_LAYERS)
    ),
}


def _list(texts: Any) -> str:
    return "[" + ", ".join(f'"{text}"' for text in texts) + "]"


_LAYER = '{{ kernel = "layers::layer{}<{{T}}, {{B}}, {{C}}>", T = {}, B = {}, C = ["true", "false"] }},\n'
_PYPROJECT = f"""
[project]
name = "bench-large"

[tool.cuda_ext]
architectures = ["native"]

[tool.cuda_ext.modules."bench_large.many"]
sources = ["device/many.cu"]
instantiate = [
  {{ kernel = "many<{{T}}, {{U}}, {{B}}>", T = {_list(_TYPES)}, U = {_list(_TYPES)}, B = {_list(_SIZES)} }},
  {{ kernel = "other<{{T}}, {{I}}>", T = {_list(_TYPES)}, I = {_list(range(11))} }},
]

[tool.cuda_ext.modules."bench_large.layers"]
sources = ["device/layers.cu"]
instantiate = [
{"".join(_LAYER.format(i, _list([*_TYPES][:5]), _list(_SIZES)) for i in range(_LAYERS))}]
"""

_COLD = """
import json, sys, time
import torch
x = [torch.zeros(32, device="cuda") for _ in range(9)]
torch.cuda.synchronize()
began = time.perf_counter()
from bench_large import layers
imported = time.perf_counter()
layers.layers.layer3["float, 128, true"](*x, 1, 2, 3, 4, 5, 6, 7.0, grid=1, block=32)
launched = time.perf_counter()
print(json.dumps([1e3 * (imported - began), 1e3 * (launched - imported)]))
"""
_TIMES = 11


def measure(directory: Path, rounds: int, batch: int) -> dict[str, Any]:
    """Measure microseconds of repeated launches and first choices, and milliseconds of cold starts."""
    package = _build(directory)
    sys.path.insert(0, str(package))
    typed: Any = importlib.import_module("bench_large.many")
    constant = _with_constants(typed)
    first = dict(_first_choices(constant))
    modules = typed, constant, _with_fixed_launches(constant)
    samples = measure_groups((_launches,), modules, directory, rounds, batch)
    return {**summarise(samples, rounds, batch), "first": first, "cold": _cold_starts(package)}


def _build(directory: Path) -> Path:
    (directory / "device").mkdir(parents=True)
    for name, source in _SOURCES.items():
        (directory / "device" / name).write_text(source)
    (directory / "pyproject.toml").write_text(_PYPROJECT)
    project = Project.load(directory)
    assert project is not None
    for built in build_project(project):
        built.write(directory.joinpath("lib", *built.name.split(".")))
    (directory / "lib" / "bench_large" / "__init__.py").touch()  # as any package has it
    return directory / "lib"


def _with_constants(typed: Any) -> Any:
    """Describe the same images as those of a Python function with the constant ``BLOCK``."""
    library = library_of(typed)
    manifest: Manifest = library.manifest
    kernels = []
    for kernel in manifest.kernels:
        types, _, block = kernel.expression.removesuffix(">").rpartition(", ")
        if types.startswith("many<"):
            name, order = f"{types}, BLOCK={block}>", ("n", "BLOCK", "a", "x", "y")
            kernels.append(kernel._replace(expression=name, constants={"BLOCK": block}, order=order))
        else:
            kernels.append(kernel)
    return module_from(manifest._replace(kernels=tuple(kernels)), library.read)


def _with_fixed_launches(constant: Any) -> Any:
    """Describe the same images as those of Triton, which fix all of a launch but the grid."""
    library = library_of(constant)
    manifest: Manifest = library.manifest
    kernels = tuple(each._replace(options={"num_warps": "1"}) for each in manifest.kernels)
    launches = {kernel.expression: FixedLaunch((32,)) for kernel in kernels}
    units = tuple(
        unit._replace(images=tuple(image._replace(launches=launches) for image in unit.images))
        for unit in manifest.units
    )
    return module_from(manifest._replace(kernels=kernels, units=units), library.read)


def _arrays() -> dict[str, Any]:
    import torch

    return {name: torch.zeros(N, device="cuda", dtype=getattr(torch, of)) for name, of in _TYPES.items()}


def _first_choices(constant: Any) -> Iterator[tuple[str, str]]:
    """The microseconds of first launches of each combination, with and without its kernel's loading."""
    import torch

    x, y = _arrays(), _arrays()
    constant.many(N, 32, 2.0, x["int"], y["int"], grid=1, block=32)
    calls: dict[str, Callable[[str, str, int], object]] = {
        "first launch of a kernel": lambda t, u, b: constant.many(N, b, 2.0, x[t], y[u], grid=1, block=32),
        "first choice of a combination": lambda t, u, b: constant.many(
            N, 2.0, x[t], y[u], BLOCK=b, grid=1, block=32
        ),
    }
    for name, call in calls.items():
        taken = []
        for combination in itertools.product(_TYPES, _TYPES, _SIZES):
            torch.cuda.synchronize()
            began = time.perf_counter()
            call(*combination)
            taken.append(1e6 * (time.perf_counter() - began))
        yield name, format_spread(taken, 1)


def _launches(modules: tuple[Any, Any, Any], directory: Path) -> Iterator[tuple[str, Batch]]:
    import torch

    typed, constant, fixed = modules
    arrays, others = _arrays(), _arrays()
    x, y = arrays["float"], others["double"]
    one = typed.many["float, double, 128"]
    one(N, 2.0, x, y, grid=1, block=32)
    stream = torch.cuda.current_stream().cuda_stream
    values = ctypes.c_int(N), ctypes.c_float(2), ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    compiled = CLaunch(directory)
    function = one._load(open_driver().device(0)).function
    yield "C, 4 arguments", lambda times: compiled.seconds(function, stream, values, times)
    names = {"typed": typed, "constant": constant, "fixed": fixed, "x": x, "y": y, "N": N}
    for title, call in {
        "by constants by name": "constant.many(N, 2.0, x, y, BLOCK=128, grid=1, block=32)",
        "by constants by position": "constant.many(N, 128, 2.0, x, y, grid=1, block=32)",
        "chosen each time": "typed.many.choose(T=x.dtype, U=y.dtype, BLOCK=128)"
        "(N, 2.0, x, y, grid=1, block=32)",
        "in Triton's syntax": "fixed.many[(1,)](N, x=x, y=y, a=2.0, BLOCK=128, num_warps=1)",
        "in Triton's syntax, constants by position": "fixed.many[1](N, 128, 2.0, x, y)",
        "in Triton's syntax, grid from a function": "fixed.many[lambda meta: "
        "(-(-32 // meta['BLOCK']),)](N, x=x, y=y, a=2.0, BLOCK=128)",
        "by dtypes": "dtypes.many(N, 2.0, x, y, grid=1, block=32)",
        "looked up each time": 'typed.many["float, double, 128"](N, 2.0, x, y, grid=1, block=32)',
        "looked up each time, in two brackets": 'typed.many["float", "double", 128]'
        "(N, 2.0, x, y, grid=1, block=32)",
    }.items():
        yield title, timed(call, **names, dtypes=_with_one_size(typed))
    combinations = list(itertools.product(_TYPES, _TYPES, _SIZES))
    ways = (
        "constant.many(N, {b}, 2.0, x['{t}'], y['{u}'], grid=1, block=32)",
        "constant.many(N, 2.0, x['{t}'], y['{u}'], BLOCK={b}, grid=1, block=32)",
        "constant.many(n=N, a=2.0, x=x['{t}'], y=y['{u}'], BLOCK={b}, grid=1, block=32)",
        "constant.many(N, a=2.0, x=x['{t}'], y=y['{u}'], BLOCK={b}, grid=1, block=32)",
    )
    calls = [way.format(t=t, u=u, b=b) for way in ways for t, u, b in combinations][:1000]
    whole = timed("\n".join(calls), constant=constant, x=arrays, y=others)
    yield "1,000 combinations in turns", lambda times: whole(max(1, times // 1000)) / len(calls)


def _with_one_size(typed: Any) -> Any:
    """Keep the kernels of one size, among which dtypes choose, and give all others another name."""
    library = library_of(typed)
    manifest: Manifest = library.manifest
    kernels = [
        k._replace(expression=k.expression.replace("many<", "unused<"))
        if k.expression.startswith("many<") and not k.expression.endswith(", 128>")
        else k
        for k in manifest.kernels
    ]
    return module_from(manifest._replace(kernels=tuple(kernels)), library.read)


def _cold_starts(package: Path) -> dict[str, str]:
    """The milliseconds of the import and of the first launch in a process that has PyTorch and a context."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (package, ROOT)))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", _COLD]
    taken = []
    for _ in range(_TIMES):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        taken.append(json.loads(done.stdout))
    imports, launches = zip(*taken[1:], strict=True)  # the first writes bytecode
    figures = {"import": imports, "first kernel": launches}
    return {name: format_spread(list(each), 2) for name, each in figures.items()}
