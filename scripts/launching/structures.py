"""Measure launches of a kernel that takes a structure of 33 members, filled in several ways."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuda_ext
from cuda_ext.runtime.driver.driver import open_driver
from launching.repeated_launches import Launches, summarise

_TYPES = ("int", "unsigned", "float", "const float*", "float*", "long long", "bool", "double", "short")
_MEMBERS = [(_TYPES[index % len(_TYPES)], f"m{index}") for index in range(33)]
_STRUCTURE = f"struct Params {{ {' '.join(f'{type_} {name};' for type_, name in _MEMBERS)} }};"
_KERNEL = f"""
{_STRUCTURE}
extern "C" __global__ void take(Params p) {{ if (p.m4) p.m4[threadIdx.x] = p.m2; }}
"""
_VALUES = {"float": "0.5f", "double": "0.25", "bool": "1", "const float*": "(void*)0", "float*": "(void*)0"}
_C = f"""
#include <stdbool.h>
#include <time.h>
{_STRUCTURE}
typedef int Launch(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   unsigned shared, void* stream, void** parameters, void** extra);

double fill_and_launch(Launch* launch, void* function, int times) {{
  struct timespec began, ended;
  clock_gettime(CLOCK_MONOTONIC, &began);
  for (int i = 0; i < times; i++) {{
    volatile struct Params p;
    {" ".join(f"p.{name} = {_VALUES.get(type_, 'i & 15')};" for type_, name in _MEMBERS)}
    void* parameters[] = {{(void*)&p}};
    if (launch(function, 1, 1, 1, 32, 1, 1, 0, 0, parameters, 0)) return -1;
  }}
  clock_gettime(CLOCK_MONOTONIC, &ended);
  return ((ended.tv_sec - began.tv_sec) + (ended.tv_nsec - began.tv_nsec) * 1e-9) / times;
}}
"""
_CTYPES = {
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "float": ctypes.c_float,
    "const float*": ctypes.c_void_p,
    "float*": ctypes.c_void_p,
    "long long": ctypes.c_longlong,
    "bool": ctypes.c_bool,
    "double": ctypes.c_double,
    "short": ctypes.c_short,
}


class _ByHand(ctypes.Structure):
    """The structure, typed by hand."""

    _fields_ = [(name, _CTYPES[type_]) for type_, name in _MEMBERS]


def measure(directory: Path, rounds: int, batch: int) -> dict[str, Any]:
    """Measure the microseconds of each way to fill the structure and launch, and of a single assignment."""
    directory.mkdir(parents=True, exist_ok=True)
    device = open_driver().device(0)
    kernels: Any = cuda_ext.compile(_KERNEL, architectures=[f"sm_{device.capability}"], compress="none")
    take, params = kernels.take, kernels.Params
    take(params(), grid=1, block=32)
    by_type = {"float": 0.5, "double": 0.25, "bool": True, "const float*": None, "float*": None}
    values = {name: by_type.get(type_, 3) for type_, name in _MEMBERS}
    keywords = ", ".join(f"{name}={value!r}" for name, value in values.items())
    assignments = "; ".join(f"p.{name} = {value!r}" for name, value in values.items())
    launch = "take(p, grid=1, block=32)"
    statements = {
        "cuda_ext, filled before": launch,
        "cuda_ext, one member": f"p.m0 = 3; {launch}",
        "cuda_ext, 33 assignments": f"{assignments}; {launch}",
        "cuda_ext, a new one with 33 keywords": f"p = Params({keywords}); {launch}",
        "cuda_ext, a dict": "take(values, grid=1, block=32)",
        "ctypes.Structure, 33 assignments": f"q = by_hand; {assignments.replace('p.', 'q.')}; "
        "take(q, grid=1, block=32, stream=0)",
        "one assignment alone": "p.m0 = 3",
        "33 assignments alone": assignments,
    }
    names = {"take": take, "Params": params, "p": params(), "values": values, "by_hand": _ByHand()}
    contenders: dict[str, Callable[[int], float]] = {}
    with device.current():
        if compiled := _compile(directory, device.driver.functions.address("cuLaunchKernel")):
            function = take._load(device).function
            contenders["C, 33 assignments"] = lambda times: compiled(function, times)
        for name, statement in statements.items():
            timer = timeit.Timer(statement, globals=names)
            contenders[name] = lambda times, timer=timer: timer.timeit(times) / times  # type: ignore[misc]
        samples: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(rounds + 1):
            for name, contender in contenders.items():
                device.driver.call("cuStreamSynchronize", 0)
                samples[name].append(1e6 * contender(batch))
    return summarise(Launches({name: taken[1:] for name, taken in samples.items()}, {}), rounds, batch)


def _compile(directory: Path, launch: int) -> Callable[[int, int], float] | None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    source, library = directory / "structures.c", directory / "structures.so"
    source.write_text(_C)
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    fill = ctypes.CDLL(str(library)).fill_and_launch
    fill.restype = ctypes.c_double
    return lambda function, times: float(fill(ctypes.c_void_p(launch), ctypes.c_void_p(function), times))
