"""Compare compilation on demand by cuda_ext with CuPy's RawModule on a GPU.

Each figure is measured in a new process that has opened the driver and its context before. ``cold`` starts
with an empty cache, ``warm`` with the cache of an earlier process. ``first`` is the time from the name of the
first kernel to its result, ``whole`` that from the start of the process, ``second`` that of another
instantiation, and ``again`` that of looking up the first kernel again. Contenders take turns. Prints medians
with the least and the greatest value. Needs ``cuda-ext[cu13]``; CuPy is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from _environment import ROOT
from bench.tables import format_pairs, format_spread, format_table
from launching.machine import describe_gpu_machine

import cuda_ext
from cuda_ext.errors import CudaExtError

Samples = dict[str, dict[str, list[float]]]  # milliseconds by contender and step

STEPS = ("whole", "first", "second", "again")

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

# The programs of the contenders. Each opens the driver and its context, launches one instantiation and then
# another, and looks the first up again. The second finds everything loaded that the first had to load.
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
_CUDA_EXT = """
from cuda_ext.runtime.driver.driver import open_driver
from cuda_ext.runtime.driver.functions import OUT
driver = open_driver()
device = driver.device(0)
device.context
with device.current():
    x = driver.query("cuMemAlloc", OUT, 1024)
def launch(kernel):
    kernel(32, 2, x, x, grid=1, block=32)
    with device.current():
        driver.call("cuCtxSynchronize")
"""
CONTENDERS = {
    "cuda_ext, package": _HEAD
    + _CUDA_EXT
    + """
import cuda_ext
kernels = cuda_ext.load(sys.argv[1])
kernels.axpy
use = lambda T: launch(kernels.axpy[T])
again = lambda T: kernels.axpy[T]
"""
    + _TAIL,
    "cuda_ext.compile": _HEAD
    + _CUDA_EXT
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


def main() -> int:
    arguments = parse_arguments()
    try:
        print(format_pairs(describe_gpu_machine()), flush=True)
    except CudaExtError as error:
        sys.exit(f"{Path(__file__).name}: {error}")
    results: dict[str, Samples] = {}
    with tempfile.TemporaryDirectory(prefix="bench_jit-") as name:
        for title, source in SOURCES.items():
            results[title] = measure(source, arguments.rounds, Path(name, title))
            print(format_samples(title, results[title]), flush=True)
    print(format_bounds(results["tiny"]))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="processes of each contender; 7")
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    return parser.parse_args()


def measure(source: str, rounds: int, directory: Path) -> Samples:
    """Run each contender `rounds` times with an empty cache and then a warm one; print what is left out."""
    module = directory / "module"
    # The instantiations that the contenders request are not among those built here.
    cuda_ext.save(cuda_ext.compile(source, instantiate=["axpy<float>"], architectures=["sm_80"]), module)
    samples: Samples = {}
    for number in range(rounds):
        # Another contender starts each round: the one before may slow a process down.
        order = list(CONTENDERS)
        for contender in order[number % len(order) :] + order[: number % len(order)]:
            for state in ("cold", "warm"):
                try:
                    steps = run(contender, source, directory / "caches" / str(number), module)
                except subprocess.CalledProcessError as error:
                    print(f"left out: {contender}: {error.stderr.strip().splitlines()[-1:]}")
                    continue
                for step, milliseconds in steps.items():
                    by_step = samples.setdefault(f"{contender}, {state}", {})
                    by_step.setdefault(step, []).append(milliseconds)
    return samples


def run(contender: str, source: str, cache: Path, module: Path) -> dict[str, float]:
    """Run the program of `contender`, which caches below `cache`. Raises ``CalledProcessError``."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "CUDA_EXT_CACHE": str(cache / "cuda_ext"),
        "CUPY_CACHE_DIR": str(cache / "cupy"),
        "CUDA_CACHE_PATH": str(cache / "driver"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", CONTENDERS[contender], str(module), str(time.time())]
    done = subprocess.run(command, env=environment, input=source, capture_output=True, text=True, check=True)
    steps: dict[str, float] = json.loads(done.stdout)
    return steps


def format_samples(title: str, samples: Samples) -> str:
    rows = [(name, *(format_milliseconds(steps[step]) for step in STEPS)) for name, steps in samples.items()]
    return f"\n{title}, milliseconds\n{format_table(('', *STEPS), rows)}"


def format_milliseconds(samples: list[float]) -> str:
    return format_spread(samples, 2 if median(samples) > 0.1 else 6)


def format_bounds(tiny: Samples) -> str:
    rows = []
    for title, limit, name, step in (
        ("hit from disk, another kernel of a process, ms", 2, "cuda_ext, package, warm", "second"),
        ("hit from disk, the first kernel of a process, ms", 2, "cuda_ext, package, warm", "first"),
        ("looked up again, ms", 0.0002, "cuda_ext, package, warm", "again"),
        ("tiny kernel cold, another one of a process, ms", 60, "cuda_ext, package, cold", "second"),
        ("tiny kernel cold, the first one of a process, ms", 60, "cuda_ext, package, cold", "first"),
    ):
        samples = tiny[name][step]
        verdict = "holds" if median(samples) <= limit else "misses"
        rows.append((title, f"<= {limit}", format_milliseconds(samples), verdict))
    return f"\nBounds\n{format_table(('', 'bound', 'measured', ''), rows)}"


if __name__ == "__main__":
    raise SystemExit(main())
