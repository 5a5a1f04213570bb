"""Measure what ``find_package(CudaExt)`` and modules add to the time of a CMake build.

Two projects take turns: a C++ executable alone, and the same with one or more modules of two CUDA sources.
The steps are configuring a new build tree, configuring again, building with all kernels in the cache, and
building again.
Prints medians with the least and the greatest value. Needs ``cuda-ext[cu13]``, CMake and a C++ compiler.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

from _environment import ROOT
from bench.machine import describe_machine
from bench.processes import run
from bench.tables import format_pairs, format_spread, format_table

PLAIN = "cmake_minimum_required(VERSION 3.24)\nproject(app LANGUAGES CXX)\nadd_executable(app main.cpp)\n"
MODULES = """find_package(CudaExt REQUIRED)
foreach(number RANGE 1 {})
  cuda_ext_add_module(kernels_${{number}} NAME app.kernels_${{number}}
    SOURCES device/axpy.cu device/fill.cu ARCHITECTURES sm_90 INSTANTIATE "axpy<float>")
  target_link_libraries(app PRIVATE kernels_${{number}})
endforeach()
"""
FILES = {
    "main.cpp": "int main() {}\n",
    "device/axpy.cu": "template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {\n"
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i] += a * x[i];\n}\n",
    "device/fill.cu": "__global__ void fill(float* x, float value) { x[threadIdx.x] = value; }\n",
}
PROJECTS = ("C++ alone", "with modules")
STEPS = ("configure, new tree", "configure again", "build, cached kernels", "build again")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=11, help="rounds; 11")
    parser.add_argument("--modules", type=int, default=1, help="modules; 1")
    parser.add_argument("--generator", default="Ninja", help="Ninja")
    arguments = parser.parse_args()
    print(format_pairs(describe_machine(None)), flush=True)
    with tempfile.TemporaryDirectory(prefix="bench_cmake-") as name:
        work = Path(name)
        # Python compiles its modules once per installation, which is not measured.
        os.environ["PYTHONPYCACHEPREFIX"] = str(work / "pycache")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["CUDA_EXT_CACHE"] = str(work / "cache")
        os.environ["PYTHONPATH"] = str(ROOT)
        samples = measure(work, arguments.rounds, arguments.generator, arguments.modules)
    print(f"\n{arguments.generator}, {arguments.rounds} rounds; milliseconds: median (least .. most)")
    rows = []
    for step in STEPS:
        times = [samples[project, step] for project in PROJECTS]
        added = median(with_module - alone for alone, with_module in zip(*times, strict=True))
        rows.append((step, *(format_spread(each, 0) for each in times), f"{added:.0f}"))
    print(format_table(("", *PROJECTS, "added"), rows))
    return 0


def measure(work: Path, rounds: int, generator: str, modules: int) -> dict[tuple[str, str], list[float]]:
    """Measure the milliseconds of each step of each project in each round, after a round to warm up."""
    samples: dict[tuple[str, str], list[float]] = {}
    for name, lists in zip(PROJECTS, (PLAIN, PLAIN + MODULES.format(modules)), strict=True):
        for file, content in {"CMakeLists.txt": lists, **FILES}.items():
            path = work / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    prefix = f"-DCMAKE_PREFIX_PATH={ROOT / 'cmake' / 'CudaExt'}"
    python = f"-DCudaExt_PYTHON_EXECUTABLE={sys.executable}"
    for number in range(rounds + 1):
        for name in PROJECTS:
            tree = work / f"{name} build"
            shutil.rmtree(tree, ignore_errors=True)
            configure = ("-G", generator, "-S", work / name, "-B", tree, prefix, python)
            build = ("--build", tree)
            for step, command in zip(STEPS, (configure, configure, build, build), strict=True):
                milliseconds = measure_program("cmake", *command)
                if number:
                    samples.setdefault((name, step), []).append(milliseconds)
    return samples


def measure_program(*command: str | Path) -> float:
    return 1000 * run(command).seconds


if __name__ == "__main__":
    sys.exit(main())
