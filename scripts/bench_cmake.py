"""What ``find_package(CudaExt)`` and one module add to a CMake build, side by side in one run.

Two projects take turns: a C++ executable alone, and with a module of two CUDA sources. Printed are medians
with the least and the most: configuring a new tree, configuring again, building with all kernels in the
cache, and building when there is nothing to do.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from _environment import ROOT

sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench._machine import describe_machine  # noqa: E402

PLAIN = "cmake_minimum_required(VERSION 3.24)\nproject(app LANGUAGES CXX)\nadd_executable(app main.cpp)\n"
WITH_MODULE = (
    PLAIN
    + """find_package(CudaExt REQUIRED)
cuda_ext_add_module(app_kernels NAME app.kernels
  SOURCES device/axpy.cu device/fill.cu ARCHITECTURES sm_90 INSTANTIATE "axpy<float>")
target_link_libraries(app PRIVATE app_kernels)
"""
)
FILES = {
    "main.cpp": "int main() {}\n",
    "device/axpy.cu": "template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {\n"
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i] += a * x[i];\n}\n",
    "device/fill.cu": "__global__ void fill(float* x, float value) { x[threadIdx.x] = value; }\n",
}
PROJECTS = {"C++ alone": PLAIN, "with a module": WITH_MODULE}
STEPS = ("configure, new tree", "configure again", "build, cached kernels", "build, nothing to do")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--generator", default="Ninja")
    arguments = parser.parse_args()
    for what, told in describe_machine(None).items():
        print(f"{what}: {told}")
    with tempfile.TemporaryDirectory(prefix="bench_cmake-") as name:
        place = Path(name)
        # Python's own compilation of modules happens once per installation.
        os.environ["PYTHONPYCACHEPREFIX"] = str(place / "pycache")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["CUDA_EXT_CACHE"] = str(place / "cache")
        samples = measure(place, arguments.rounds, arguments.generator)
    print(f"\n{arguments.generator}, {arguments.rounds} rounds; milliseconds: median (least to most)")
    for step in STEPS:
        taken = [samples[project, step] for project in PROJECTS]
        cells = [f"{project} {text(values)}" for project, values in zip(PROJECTS, taken, strict=True)]
        more = median(with_it - alone for alone, with_it in zip(*taken, strict=True))
        print(f"  {step:22} {cells[0]:34} {cells[1]:38} added {1000 * more:5.0f}")
    return 0


def measure(place: Path, rounds: int, generator: str) -> dict[tuple[str, str], list[float]]:
    """Seconds that each step of each project takes, round by round; the first round is not counted."""
    samples: dict[tuple[str, str], list[float]] = {}
    for name, lists in PROJECTS.items():
        for file, content in {"CMakeLists.txt": lists, **FILES}.items():
            path = place / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    prefix = f"-DCMAKE_PREFIX_PATH={ROOT / 'cmake'}"
    python = f"-DCudaExt_PYTHON_EXECUTABLE={sys.executable}"
    for number in range(rounds + 1):
        for name in PROJECTS:
            tree = place / f"{name} build"
            shutil.rmtree(tree, ignore_errors=True)
            configure = ("-G", generator, "-S", place / name, "-B", tree, prefix, python)
            build = ("--build", tree)
            for step, command in zip(STEPS, (configure, configure, build, build), strict=True):
                seconds = timed("cmake", *command)
                if number:
                    samples.setdefault((name, step), []).append(seconds)
    return samples


def timed(*command: str | Path) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def text(values: list[float]) -> str:
    return f"{1000 * median(values):.0f} ({1000 * min(values):.0f} to {1000 * max(values):.0f})"


if __name__ == "__main__":
    sys.exit(main())
