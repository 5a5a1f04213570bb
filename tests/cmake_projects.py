"""Little CMake projects for tests: configured, built and looked at with real CMake."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import cuda_ext

PACKAGE = Path(cuda_ext.__file__).parent
AXPY = """#include "index.cuh"
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {
  if (index() < n) y[index()] += a * x[index()];
}
"""
INDEX = "#pragma once\ninline __device__ int index() { return blockIdx.x * blockDim.x + threadIdx.x; }\n"
FILL = 'extern "C" __global__ void fill(float* x, float value) { x[threadIdx.x] = value; }\n'
MAIN = """#include <app/kernels.h>
#include <cstdio>
int main() {
  const auto result = app::kernels::axpy<float>.try_launch({1, 32}, 32, 2.0f, nullptr, nullptr);
  std::puts(result ? "launched" : result.error().message.c_str());
}
"""
LISTS = """cmake_minimum_required(VERSION 3.24)
project(app LANGUAGES CXX)
find_package(CudaExt REQUIRED)
"""
MODULE = """cuda_ext_add_module(app_kernels NAME app.kernels
  SOURCES device/*.cu ARCHITECTURES 90-real INSTANTIATE "axpy<float>" JIT FALSE)
"""
APPLICATION = """add_executable(app main.cpp)
target_link_libraries(app PRIVATE app_kernels)
"""
FILES = {
    "CMakeLists.txt": LISTS + MODULE + APPLICATION,
    "device/axpy.cu": AXPY,
    "device/index.cuh": INDEX,
    "device/fill.cu": FILL,
    "main.cpp": MAIN,
}


@dataclass
class CMakeProject:
    """A project in ``root`` and its build tree. ``generator`` is one of CMake's, ``cmake`` the program."""

    root: Path
    generator: str = "Ninja"
    cmake: str = "cmake"
    cache: dict[str, str] = field(default_factory=dict)

    @property
    def tree(self) -> Path:
        return self.root.with_name(f"{self.root.name} build")

    @property
    def module(self) -> Path:
        """What belongs to the module in the build tree."""
        return self.tree / "cuda_ext" / "app_kernels"

    @property
    def executable(self) -> Path:
        return self.tree / "app"

    def write(self, files: Mapping[str, str | bytes] = FILES) -> CMakeProject:
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return self

    def run(self, *command: str | Path, status: int | None = 0, **variables: str) -> str:
        """All that a program prints, which must end with `status`, unless that is ``None``."""
        done = subprocess.run(
            command,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        assert status is None or done.returncode == status, done.stdout
        return done.stdout

    def configure(self, *options: str, status: int = 0, **variables: str) -> str:
        known = {
            "CMAKE_PREFIX_PATH": str(PACKAGE / "cmake"),
            "CudaExt_PYTHON_EXECUTABLE": sys.executable,
            **self.cache,
        }
        defined = [f"-D{name}={value}" for name, value in known.items()]
        return self.run(
            *(self.cmake, "-G", self.generator, "-S", self.root, "-B", self.tree, *defined, *options),
            status=status,
            **variables,
        )

    def refused(self, *options: str, **variables: str) -> str:
        """The message of the FATAL_ERROR with which configuring ends, in one line."""
        output = self.configure(*options, status=1, **variables)
        assert "Traceback" not in output
        found = re.search(r"CMake Error at [^\n]*:\n(.*?)\n(?:Call Stack|\n|--)", output, re.DOTALL)
        assert found, output
        return " ".join(found[1].split())

    def build(self, *options: str, status: int | None = 0, **variables: str) -> str:
        return self.run(self.cmake, "--build", self.tree, *options, status=status, **variables)

    def steps(self, *options: str) -> list[str]:
        """What building does now, in words: the comments of commands, and the objects that are compiled."""
        output = self.build(*options)
        done = re.findall(
            r"(?:Compiling CUDA source|Generating|Building CXX object|Linking CXX \w+ \w+) \S+", output
        )
        return sorted(line.replace("CMakeFiles/", "") for line in done)
