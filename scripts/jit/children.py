"""Programs that get kernels at run time and tell how long that took, each step in milliseconds.

All do the same: they open the driver and its context, get one instantiation and launch it, then another, and
then look the first up again. The second finds everything loaded that the first had to load.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from _environment import ROOT

__all__ = ["CONTENDERS", "SOURCES", "run"]

SOURCES = {
    "tiny": """
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
""",
    "cuda_fp16.h": """
#include <cuda_fp16.h>
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = T(__half(float(y[i])) + __half(float(a)) * __half(float(x[i])));
}
""",
}

_HEAD = """
import json, sys, time, timeit
source = sys.stdin.read()
steps = {}
def measured(name, do):
    began = time.perf_counter()
    result = do()
    steps[name] = 1e3 * (time.perf_counter() - began)
    return result
"""
_TAIL = """
measured("first", lambda: use("double"))
steps["whole"] = 1e3 * (time.time() - float(sys.argv[2]))
measured("second", lambda: use("int"))
number = 20_000
steps["again"] = 1e3 * min(timeit.repeat(lambda: again("double"), number=number)) / number
steps["again"] -= 1e3 * min(timeit.repeat(lambda: None, number=number)) / number
print(json.dumps(steps))
"""
_OURS = """
from cuda_ext.runtime.driver.driver import open_driver
driver = open_driver()
device = driver.device(0)
device.context
with device.current():
    x = int(driver.call("cuMemAlloc", 1024))
def launch(kernel):
    kernel(32, 2, x, x, grid=1, block=32)
    with device.current():
        driver.call("cuCtxSynchronize")
"""
CONTENDERS = {
    "ours, a package": _HEAD
    + _OURS
    + """
import cuda_ext
kernels = cuda_ext.load(sys.argv[1])
kernels.axpy
use = lambda T: launch(kernels.axpy[T])
again = lambda T: kernels.axpy[T]
"""
    + _TAIL,
    "ours, cuda_ext.compile": _HEAD
    + _OURS
    + """
import cuda_ext
modules = {}
def use(T):
    modules[T] = cuda_ext.compile(source, instantiate=[f"axpy<{T}>"])
    launch(modules[T].axpy[T])
again = lambda T: modules[T].axpy[T]
"""
    + _TAIL,
    "CuPy, RawModule": _HEAD
    + """
import cupy
x = cupy.zeros(128, "f8")
modules = {}
def use(T):
    modules[T] = cupy.RawModule(code=source, options=("--std=c++17",), name_expressions=[f"axpy<{T}>"])
    scalar = {"double": cupy.float64, "int": cupy.int32}[T]
    modules[T].get_function(f"axpy<{T}>")((1,), (32,), (cupy.int32(32), scalar(2), x, x))
    cupy.cuda.Device().synchronize()
again = lambda T: modules[T].get_function(f"axpy<{T}>")
"""
    + _TAIL,
}


def run(contender: str, source: str, cache: Path, module: Path) -> dict[str, float]:
    """One process of `contender`, which keeps what it compiles in `cache`. Raises ``CalledProcessError``."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "CUDA_EXT_CACHE": str(cache / "ours"),
        "CUPY_CACHE_DIR": str(cache / "cupy"),
        "CUDA_CACHE_PATH": str(cache / "driver"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", CONTENDERS[contender], str(module), str(time.time())]
    done = subprocess.run(command, env=environment, input=source, capture_output=True, text=True, check=True)
    steps: dict[str, float] = json.loads(done.stdout)
    return steps
