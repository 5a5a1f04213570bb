"""Compare compilation on demand by cuda_ext with CuPy's RawModule on a GPU.

Each figure is measured in a new process that has opened the driver and its context before. ``cold`` starts
with an empty cache, ``warm`` with the cache of an earlier process. ``whole`` is the time from the start of
the process to the result of the first kernel, ``first`` that from the name of this kernel, and ``first, no
imports`` the same in a process that has imported everything for it before. ``second`` is the time of another
instantiation, and ``again`` that of looking up the first kernel again. Contenders take turns. Prints medians
with the least and the greatest value, where the time of a first kernel goes, and the bounds. Needs
``cuda-ext[cu13]``; CuPy is left out where it is not installed.
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
from typing import Any

from _environment import ROOT
from bench.tables import format_pairs, format_spread, format_table
from launching.machine import describe_gpu_machine

import cuda_ext
from cuda_ext.errors import CudaExtError

Samples = dict[str, dict[str, list[float]]]  # milliseconds by contender and step

STATES = ("cold", "warm")
IMPORTED = "first, no imports"
STEPS = ("whole", "first", IMPORTED, "second", "again")

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

# The functions whose time is shown: a file of the package, and the name of a function. The times of functions
# that one calls are part of its own.
PARTS = (
    ("find NVRTC, identify it", "toolchain/identity.py", "installed_nvrtc"),
    ("read the cache and the entry", "jit/on_demand.py", "_read_entry"),
    ("compile, pack and check, in all", "toolchain/compile_library.py", "compile_library"),
    ("  open libraries", "toolchain/cuda_libraries.py", "open_library"),
    ("  find the headers of CUDA", "toolchain/nvrtc.py", "header_directories"),
    ("  NVRTC", "programs/nvrtc_program.py", "compile"),
    ("  nvJitLink", "toolchain/nvjitlink.py", "_link_here"),
    ("  signatures before NVRTC", "signatures/probes.py", "known_subjects"),
    ("  signatures after NVRTC", "toolchain/nvrtc.py", "_describe"),
    ("  fatbin", "toolchain/nvfatbin.py", "write_fatbin"),
    ("write the cache", "jit/user_cache.py", "write_cache"),
    ("read the manifest", "cuda_ext/facts/manifest.py", "loads"),
    ("load the image", "runtime/loaded_library.py", "_load"),
    ("launch, with all that is above and in it", "runtime/kernel.py", "__launch_carefully__"),
)

# The programs of the contenders. Each opens the driver and its context, launches one instantiation and then
# another, and looks the first up again. The second finds everything loaded that the first had to load.
# Arguments: the saved module, when the process was started, the modules to import, whether to profile.
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
for name in filter(None, sys.argv[3].split(",")):
    try:
        __import__(name)
    except Exception:  # not to be imported by its name
        pass
before = set(sys.modules)
if sys.argv[4]:
    import cProfile, pstats
    profile = cProfile.Profile()
    profile.enable()
measured("first", lambda: use("double"))
steps["whole"] = 1e3 * (time.time() - float(sys.argv[2]))
imported = sorted(set(sys.modules) - before)
parts = {}
if sys.argv[4]:
    profile.disable()
    for (file, _, function), (_, _, _, seconds, _) in pstats.Stats(profile).stats.items():
        parts[f"{file}:{function}"] = 1e3 * seconds
measured("second", lambda: use("int"))
number = 20_000
steps["again"] = 1e3 * min(timeit.repeat(lambda: again("double"), number=number)) / number
steps["again"] -= 1e3 * min(timeit.repeat(lambda: None, number=number)) / number
print(json.dumps([steps, imported, parts]))
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
def use(T):
    global kernels
    if T == "double":
        kernels = cuda_ext.load(sys.argv[1])
    launch(kernels.axpy[T])
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
        for title in arguments.sources.split(","):
            bench = Bench(SOURCES[title], Path(name, title))
            results[title] = bench.measure(arguments.rounds)
            print(format_samples(title, results[title]), flush=True)
            print(bench.format_parts(), flush=True)
    if "tiny" in results:
        print(format_bounds(results["tiny"]))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="processes of each contender and kind; 7")
    parser.add_argument("--sources", default=",".join(SOURCES), help=f"of {','.join(SOURCES)}")
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    return parser.parse_args()


class Bench:
    """The contenders with one `source`; caches and a module are kept in `directory`."""

    def __init__(self, source: str, directory: Path) -> None:
        self._source = source
        self._directory = directory
        self._module = directory / "module"
        # The instantiations that the contenders request are not among those built here.
        built = cuda_ext.compile(source, instantiate=["axpy<float>"], architectures=["sm_80"])
        cuda_ext.save(built, self._module)
        # What each contender imports for its first kernel, by state; contenders that do not run are left out.
        self._imports: dict[str, dict[str, str]] = {}
        for contender in CONTENDERS:
            try:
                runs = {state: self._run(contender, "imports") for state in STATES}
            except subprocess.CalledProcessError as error:
                print(f"left out: {contender}: {error.stderr.strip().splitlines()[-1:]}")
            else:
                self._imports[contender] = {
                    state: ",".join(modules) for state, (_, modules, _) in runs.items()
                }

    def measure(self, rounds: int) -> Samples:
        """Run each contender `rounds` times with an empty and then a warm cache, in both kinds of process."""
        samples: Samples = {}
        for number in range(rounds):
            # Another contender starts each round: the one before may slow a process down.
            order = list(self._imports)
            for contender in order[number % len(order) :] + order[: number % len(order)]:
                for state in STATES:
                    steps = dict(self._run(contender, f"{number}")[0])
                    steps[IMPORTED] = self._run_imported(contender, f"{number}-imported", state)[0]["first"]
                    by_step = samples.setdefault(f"{contender}, {state}", {})
                    for step, milliseconds in steps.items():
                        by_step.setdefault(step, []).append(milliseconds)
        return samples

    def format_parts(self) -> str:
        """Format the parts of the time of a first kernel, with all modules imported, under a profiler."""
        columns: dict[str, dict[str, float]] = {}
        for contender in filter(lambda name: name.startswith("cuda_ext"), self._imports):
            for state in STATES:
                steps, _, parts = self._run_imported(contender, "profiled", state, profile=True)
                columns[f"{contender.removeprefix('cuda_ext')[1:].strip()}, {state}"] = {
                    label: sum(ms for name, ms in parts.items() if name.endswith(f"{file}:{function}"))
                    for label, file, function in PARTS
                } | {"first kernel": steps["first"]}
        labels = [*(label for label, _, _ in PARTS), "first kernel"]
        rows = [(each, *(f"{column[each]:.2f}" for column in columns.values())) for each in labels]
        return f"\nWhere the time goes under a profiler, milliseconds\n{format_table(('', *columns), rows)}"

    def _run_imported(self, contender: str, cache: str, state: str, *, profile: bool = False) -> Any:
        return self._run(contender, cache, self._imports[contender][state], profile=profile)

    def _run(self, contender: str, cache: str, imports: str = "", *, profile: bool = False) -> Any:
        """Run the program of `contender`: its steps, the modules that it imported, and times of functions.

        Raises ``CalledProcessError``.
        """
        caches = self._directory / "caches" / cache
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "CUDA_EXT_CACHE": str(caches / contender),
            "CUPY_CACHE_DIR": str(caches / "cupy"),
            "CUDA_CACHE_PATH": str(caches / "driver"),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        arguments = [str(self._module), str(time.time()), imports, "profile" if profile else ""]
        command = [sys.executable, "-c", CONTENDERS[contender], *arguments]
        done = subprocess.run(
            command, env=environment, input=self._source, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)


def format_samples(title: str, samples: Samples) -> str:
    rows = [(name, *(format_milliseconds(steps[step]) for step in STEPS)) for name, steps in samples.items()]
    return f"\n{title}, milliseconds\n{format_table(('', *STEPS), rows)}"


def format_milliseconds(samples: list[float]) -> str:
    return format_spread(samples, 1 if median(samples) > 0.1 else 6)


def format_bounds(tiny: Samples) -> str:
    rows = []

    def add(title: str, measured: float, limit: float) -> None:
        verdict = "holds" if measured <= limit else "misses"
        rows.append((title, f"<= {limit:.6g}", f"{measured:.4g}", verdict))

    for ours in ("cuda_ext, package", "cuda_ext.compile"):
        if f"{ours}, warm" not in tiny:
            continue
        for state, ratio in (("cold", 0.65), ("warm", 0.5)):
            if theirs := tiny.get(f"CuPy, RawModule, {state}"):
                whole = median(tiny[f"{ours}, {state}"]["whole"]) / median(theirs["whole"])
                add(f"{ours}, {state}: whole process / CuPy's", whole, ratio)
        if theirs := tiny.get("CuPy, RawModule, cold"):
            first = median(tiny[f"{ours}, cold"][IMPORTED])
            add(f"{ours}, cold: {IMPORTED}, ms, against CuPy's", first, median(theirs[IMPORTED]))
        add(f"{ours}, warm: {IMPORTED}, ms", median(tiny[f"{ours}, warm"][IMPORTED]), 4)
    for title, limit, state, step in (
        ("hit from disk, another kernel of a process, ms", 2, "warm", "second"),
        ("looked up again, ms", 0.0002, "warm", "again"),
        ("tiny kernel cold, another one of a process, ms", 60, "cold", "second"),
    ):
        add(title, median(tiny[f"cuda_ext, package, {state}"][step]), limit)
    return f"\nBounds\n{format_table(('', 'bound', 'measured', ''), rows)}"


if __name__ == "__main__":
    raise SystemExit(main())
