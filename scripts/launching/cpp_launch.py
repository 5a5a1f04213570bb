"""Call the typed wrappers of the generated header from C++, compiled here."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import cuda_ext
from cuda_ext.builder.cpp import generate_cpp
from cuda_ext.builder.package.generate import Package
from launching.kernels import NAME

_SOURCE = """
#include <bench_kernels/kernels.h>
#include <chrono>

namespace {
template <class Launch>
double timed(int times, Launch launch) {
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < times; i++) {
    if (!launch()) return -1;
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() / times;
}
}

namespace k = bench_kernels::kernels;

extern "C" double launch_axpy(CUstream_st* stream, float* x, float* y, int times) {
  return timed(times, [=] { return k::axpy<float>.try_launch({1, 32, stream}, 32, 2.0f, x, y).ok(); });
}

extern "C" double launch_many(CUstream_st* stream, float* x, float* y, int times) {
  return timed(times, [=] {
    return k::many.try_launch({1, 32, stream}, 32, 2.0f, x, y, x, y, x, y, x, y, x, 1, 2, 3.0f, 4.0f, 5).ok();
  });
}
"""


class CppLaunch:
    """Compiled loops of launches from `package`. Raises :class:`RuntimeError` without a C++ compiler."""

    def __init__(self, package: Path, directory: Path) -> None:
        compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        if compiler is None:
            raise RuntimeError("no C++ compiler is installed")
        module = package.joinpath(*NAME.split("."))
        files = {f.relative_to(module).as_posix(): f.read_bytes() for f in module.rglob("*") if f.is_file()}
        rendered = generate_cpp.render(Package(NAME, files), (), module, "incbin")
        for name, content in {**rendered.files, "loops.cpp": _SOURCE.encode()}.items():
            path = directory / "cpp" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        library = directory / "loops.so"
        interface = Path(cuda_ext.__file__).parent / "include"
        include = (f"-I{directory / 'cpp' / 'include'}", f"-I{interface}")
        loader = interface / "cuda_ext" / "loader" / "loader.cpp"
        sources = (loader, *(directory / "cpp" / name for name in (rendered.source, "loops.cpp")))
        flags = ("-std=c++17", "-O2", "-shared", "-fPIC")
        subprocess.run([compiler, *flags, *include, *sources, "-o", library, "-ldl"], check=True)
        self._library: Any = ctypes.CDLL(str(library))

    def seconds(self, loop: str, stream: int, x: int, y: int, times: int) -> float:
        """Call the loop of that name; return the seconds per launch."""
        function = self._library[loop]
        function.restype = ctypes.c_double
        taken = float(function(*map(ctypes.c_void_p, (stream, x, y)), ctypes.c_int(times)))
        if taken < 0:
            raise RuntimeError("a launch from C++ failed")
        return taken
