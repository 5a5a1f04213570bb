"""Measure what the generated header costs: to include, to launch through, and in a program with a GPU.

The compared files do the same: one launch with a generated header, with the CUDA runtime, with the
driver by hand, and, if ``--jitify2`` is the directory of its header, with jitify2. Prints preprocessed lines,
the compiler's time (user and system, the least of five), and the size of code and data at -O2. Then it builds
a program of loops of launches, from C++ and by calls of ``cuLaunchKernel``, which take turns, and runs it if
there is a GPU. With ``--program`` the program is left there, to be run on another machine. ``--modules``
prints instead what CMake's builds of programs of 1, 3 and 30 modules cost, and their stripped sizes.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import _environment  # noqa: F401 - makes cuda_ext importable
from bench.tables import format_table
from launching.kernels import NAME, SOURCE

import cuda_ext
from cuda_ext.builder.cpp import generate_cpp
from cuda_ext.builder.project import Project
from cuda_ext.builder.session import build_project
from cuda_ext.toolchain.cuda_packages import header_directories

_PYPROJECT = """
[project]
name = "bench-kernels"

[tool.cuda_ext.modules."{name}"]
architectures = ["{architecture}"]
instantiate = ["axpy<float>"]
"""

_FILES = {
    "an empty file": "",
    "<string>": "#include <string>\n",
    "the generated header": "#include <bench_kernels/kernels.h>\n",
    "one launch": """\
#include <bench_kernels/kernels.h>
void f(int n, float* x, CUstream_st* stream) {
  bench_kernels::kernels::axpy<float>({n, 256, stream}, n, 2.0f, x, x);
}
""",
    "one launch, without exceptions": """\
#include <bench_kernels/kernels.h>
bool f(int n, float* x, CUstream_st* stream) noexcept {
  return bench_kernels::kernels::axpy<float>.try_launch({n, 256, stream}, n, 2.0f, x, x).ok();
}
""",
    "<cuda_runtime.h>": "#include <cuda_runtime.h>\n",
    "one launch, CUDA runtime": """\
#include <cuda_runtime.h>
#include <stdexcept>
void f(const void* kernel, int n, float* x, cudaStream_t stream) {
  float a = 2;
  void* arguments[] = {&n, &a, &x, &x};
  if (cudaError_t error = cudaLaunchKernel(kernel, dim3(n), dim3(256), arguments, 0, stream))
    throw std::runtime_error(cudaGetErrorString(error));
}
""",
    "one launch, driver by hand": """\
#include <cuda.h>
#include <stdexcept>
void f(CUfunction kernel, int n, float* x, CUstream stream) {
  float a = 2;
  void* arguments[] = {&n, &a, &x, &x};
  if (cuLaunchKernel(kernel, n, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr))
    throw std::runtime_error("cuLaunchKernel failed");
}
""",
    "<jitify2.hpp>": "#include <jitify2.hpp>\n",
    "one launch, jitify2": """\
#include <jitify2.hpp>
void f(const jitify2::KernelData& kernel, unsigned n, float* x, CUstream stream) {
  kernel.configure({n}, {256}, 0, stream)->launch(static_cast<int>(n), 2.0f, x, x);
}
""",
}

_PROGRAM = """\
#include <bench_kernels/kernels.h>

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace k = bench_kernels::kernels;

using Launch = int(CUkern_st*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   CUstream_st*, void**, void**);

template <class Each>
double seconds(int times, Each each) {
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < times; i++) each(i);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() / times;
}

int main() try {
  const auto find = [](const char* name) { return ::dlsym(::dlopen("libcuda.so.1", RTLD_NOW), name); };
  const auto launch = reinterpret_cast<Launch*>(find("cuLaunchKernel"));
  const auto synchronize = reinterpret_cast<int (*)()>(find("cuCtxSynchronize"));
  const auto allocate = reinterpret_cast<int (*)(float**, std::size_t)>(find("cuMemAlloc_v2"));
  float* x = nullptr;
  k::cuda_ext_library().load();
  if (allocate(&x, 4096)) return std::puts("cuMemAlloc failed");
  CUkern_st* const axpy = k::axpy<float>.kernel().handle();
  CUkern_st* const many = k::many.kernel().handle();

  const auto c4 = [&](int n) {
    float a = 2;
    void* arguments[] = {&n, &a, &x, &x};
    if (launch(axpy, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr)) throw 1;
  };
  const auto cpp4 = [&](int n) { k::axpy<float>({1, 32}, n, 2.0f, x, x); };
  const auto threads4 = [&](int n) { k::axpy<float>(cuda_ext::threads(n), n, 2.0f, x, x); };
  const auto c16 = [&](int n) {
    float a = 2, d = 3, e = 4;
    int b = 1, c = 2;
    long long f = 5;
    void* arguments[] = {&n, &a, &x, &x, &x, &x, &x, &x, &x, &x, &x, &b, &c, &d, &e, &f};
    if (launch(many, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr)) throw 1;
  };
  const auto cpp16 = [&](int n) {
    k::many({1, 32}, n, 2.0f, x, x, x, x, x, x, x, x, x, 1, 2, 3.0f, 4.0f, 5);
  };

  std::vector<double> times[5];
  for (int round = -20; round < 200; round++) {
    const auto measure = [&](int which, auto each) {
      synchronize();
      const double taken = seconds(200, each);
      if (round >= 0) times[which].push_back(taken);
    };
    measure(0, c4);
    measure(1, cpp4);
    measure(2, threads4);
    measure(3, c16);
    measure(4, cpp16);
  }
  const char* names[] = {"C, 4 arguments", "C++, 4 arguments", "C++, threads(n)",
                         "C, 16 arguments", "C++, 16 arguments"};
  for (int i = 0; i < 5; i++) {
    std::sort(times[i].begin(), times[i].end());
    const double median = times[i][times[i].size() / 2];
    const double reference = times[i < 3 ? 0 : 3][times[i].size() / 2];
    std::printf("%-18s %6.3f us  %5.3f of C\\n", names[i], 1e6 * median, median / reference);
  }
} catch (const cuda_ext::Error& error) {
  std::puts(error.what());
}
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--program", type=Path, help="leave the program of the launches here")
    parser.add_argument("--architecture", default="sm_90", help="the GPU's; sm_90")
    parser.add_argument("--jitify2", type=Path, help="the directory of jitify2.hpp")
    parser.add_argument("--modules", action="store_true", help="measure programs of several modules instead")
    arguments = parser.parse_args()
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        sys.exit(f"{Path(__file__).name}: there is no {compiler}")
    with tempfile.TemporaryDirectory(prefix="bench_cpp-") as name:
        work = Path(name)
        if arguments.modules:
            rows = [_build_modules(work, *each) for each in product(("Release", "Debug"), (1, 3, 30))]
            print(format_table(("configuration", "modules", "without JIT", "with JIT"), rows))
            return 0
        source = _generate(work, arguments.architecture)
        include = [f"-I{work / 'include'}", f"-I{Path(cuda_ext.__file__).parent / 'include'}"]
        others = [*header_directories(13), *([arguments.jitify2] if arguments.jitify2 else [])]
        cuda = [f"-isystem{directory}" for directory in others]
        rows = []
        for title, text in _FILES.items():
            file = work / "file.cpp"
            file.write_text(text)
            command = [compiler, "-std=c++17", "-O2", *include, *cuda, str(file)]
            try:
                rows.append((title, *_measure(command, work / "file.o")))
            except subprocess.CalledProcessError:
                rows.append((title, "not measured", "", ""))
        loader = Path(cuda_ext.__file__).parent / "include" / "cuda_ext" / "loader" / "loader.cpp"
        for title, path in ("the generated source", source), ("the loader, once", loader):
            command = [compiler, "-std=c++17", "-O2", *include, str(path)]
            rows.append((title, *_measure(command, work / "file.o")))
        print(format_table(("", "lines", "seconds", "bytes"), rows))
        program = arguments.program or work / "program"
        (work / "program.cpp").write_text(_PROGRAM)
        built = [str(source), str(loader), str(work / "program.cpp"), "-o", str(program), "-ldl"]
        subprocess.run([compiler, "-std=c++17", "-O2", *include, *built], check=True)
        subprocess.run([program], check=False)
    return 0


def _generate(work: Path, architecture: str) -> Path:
    """Write the module's C++ to `work`; return its source."""
    (work / "device").mkdir()
    (work / "device" / "kernels.cu").write_text(SOURCE)
    (work / "pyproject.toml").write_text(_PYPROJECT.format(name=NAME, architecture=architecture))
    project = Project.load(work)
    assert project is not None
    (package,) = build_project(project)
    package.write(work / "package")
    module = generate_cpp.render(package, (), work / "package", "incbin")
    for name, content in module.files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(content)
    return work / module.source


_LISTS = """\
cmake_minimum_required(VERSION 3.24...4.0)
project(app LANGUAGES CXX)
find_package(CudaExt REQUIRED)
add_executable(app main.cpp)
"""
_MODULE = """\
cuda_ext_add_module(m{0} NAME app.m{0} SOURCES device/k{0}.cu {1}
  ARCHITECTURES sm_90 INSTANTIATE "axpy{0}<float>")
target_link_libraries(app PRIVATE m{0})
"""
_KERNEL = (
    "template <class T> __global__ void axpy{0}(int n, T a, const T* x, T* y) {{ if (n) *y += a * *x; }}\n"
)


def _build_modules(work: Path, configuration: str, count: int) -> tuple[str, ...]:
    """Build a program of `count` modules with one kernel each; return the row of its costs."""
    cells = []
    for jit in ("", "JIT"):
        root = work / f"{configuration}{count}{jit}"
        (root / "device").mkdir(parents=True)
        includes, launches, lists = "", "", _LISTS
        for i in range(count):
            (root / "device" / f"k{i}.cu").write_text(_KERNEL.format(i))
            includes += f"#include <app/m{i}.h>\n"
            launches += f"  app::m{i}::axpy{i}<float>({{1, 32}}, n, 2.0f, x, x);\n"
            lists += _MODULE.format(i, jit)
        (root / "main.cpp").write_text(
            f"{includes}int main(int n, char**) {{\n  float* x = nullptr;\n{launches}}}\n"
        )
        (root / "CMakeLists.txt").write_text(lists)
        options = [
            f"-DCudaExt_DIR={Path(cuda_ext.__file__).parents[1] / 'cmake' / 'CudaExt'}",
            f"-DCudaExt_PYTHON_EXECUTABLE={sys.executable}",
            f"-DCMAKE_BUILD_TYPE={configuration}",
            f"-DCMAKE_CXX_COMPILER_LAUNCHER=time;-a;-o;{root / 'times'};-f;%U %S",
        ]
        tree = root / "build"
        configure = ["cmake", "-S", root, "-B", tree, "-G", "Ninja", *options]
        subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
        (root / "times").write_text("")  # without those of CMake's own checks
        subprocess.run(["cmake", "--build", tree], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["strip", tree / "app"], check=True)
        seconds = sum(map(float, (root / "times").read_text().split()))
        cells.append(f"{seconds:.1f} s, {(tree / 'app').stat().st_size / 1024:.0f} KiB")
    return configuration, str(count), *cells


def _measure(command: Sequence[str], output: Path) -> tuple[str, str, str]:
    """The preprocessed lines, the seconds, and the bytes of code and data of a compilation."""
    lines = subprocess.run([*command, "-E"], capture_output=True, check=True).stdout.count(b"\n")
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*command, "-c", "-o", output], check=True, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    printed = subprocess.run(["size", output], capture_output=True, text=True, check=True).stdout
    text, data, _ = printed.splitlines()[1].split(maxsplit=2)
    return str(lines), f"{min(seconds):.2f}", str(int(text) + int(data))


if __name__ == "__main__":
    raise SystemExit(main())
