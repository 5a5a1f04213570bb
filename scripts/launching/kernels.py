"""Build a package with the kernels to launch, for this machine's GPUs."""

from __future__ import annotations

from pathlib import Path

from cuda_ext.builder.project import Project
from cuda_ext.builder.session import build_project

NAME = "bench_kernels.kernels"
MANY = "const float* x1, float* y1, const float* x2, float* y2, const float* x3, float* y3, const float* x4"

SOURCE = f"""
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}}

extern "C" __global__ void axpy_c(int n, float a, const float* x, float* y) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}}

// 16 arguments, 9 of them arrays.
extern "C" __global__ void many(int n, float a, const float* x, float* y, {MANY},
                                int b, int c, float d, float e, long long f) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i] + x1[i] + x2[i] + x3[i] + x4[i] + y1[i] + y2[i] + y3[i] + b + c + d + e + f;
}}

extern "C" __global__ void add_one(long long n, const float* x, float* y) {{
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}}
"""

_PYPROJECT = f"""
[project]
name = "bench-kernels"

[tool.cuda_ext.modules."{NAME}"]
architectures = ["native"]
instantiate = ["axpy<float>"]
"""


def build(directory: Path) -> Path:
    """Build the package in `directory`; return the directory to add to ``sys.path``."""
    (directory / "device").mkdir(parents=True)
    (directory / "device" / "kernels.cu").write_text(SOURCE)
    (directory / "pyproject.toml").write_text(_PYPROJECT)
    project = Project.load(directory)
    assert project is not None
    for package in build_project(project):
        package.write(directory.joinpath("lib", *package.name.split(".")))
    return directory / "lib"
