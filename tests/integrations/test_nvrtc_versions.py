"""Builds and compilation on demand with the oldest and the newest NVRTC of each major version of CUDA."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.facts.manifest import Manifest, loads
from cuda_ext.formats.cubin import read_cubin
from cuda_ext.formats.fatbin import read_fatbin
from tests.fixtures.environments import SETUPTOOLS, Environment
from tests.fixtures.projects import write_project

pytestmark = [pytest.mark.network, pytest.mark.xdist_group("nvrtc_versions")]

# CI has the oldest version here, and all other tests the newest. 13.0 is that of PyTorch 2.11 to 2.14.
VERSIONS = [
    pytest.param(("cu12", "cuda-toolkit[nvrtc]==12.0.*"), id="12.0"),
    pytest.param(("cu12", SETUPTOOLS["current"]), id="newest 12", marks=pytest.mark.slow),
    pytest.param(("cu13", "cuda-toolkit[nvrtc]==13.0.*"), id="13.0", marks=pytest.mark.slow),
    pytest.param(("cu13", SETUPTOOLS["current"]), id="newest 13", marks=pytest.mark.slow),
    pytest.param(("cu13", "nvidia-nvjitlink==13.0.*"), id="an older linker", marks=pytest.mark.slow),
]

TABLE = """
[tool.cuda_ext]
architectures = ["sm_80", "sm_90a", "compute_90"]
[tool.cuda_ext.modules."pkg.kernels"]
instantiate = ["axpy<float>", "axpy<__half>", "largest<cuda::std::int64_t>", "reduce<double, 128>"]
constants = ["ns::weight_count", "ns::share", "sizeof(ns::Range)"]
"""
FILES = {
    "device/plain.cu": """
extern "C" __global__ void scale(float* y, float by, int n) { if (threadIdx.x < n) y[threadIdx.x] *= by; }
namespace ns {
struct Range { int first; double step; };
constexpr int weight_count = 4;
constexpr float share = 0.1f;
__constant__ float weights[4];
__global__ void weigh(const float* x, float* y, Range range) {
  y[threadIdx.x] = weights[threadIdx.x % 4] * x[range.first] + range.step;
}
}
""",
    "device/axpy.cu": """
#include <cuda_fp16.h>
#include "index.h"
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {
  if (index() < n) y[index()] = a * x[index()] + y[index()];
}
""",
    "device/index.h": """
#pragma once
#include "offset.h"
__device__ int index() { return threadIdx.x + OFFSET; }
""",
    "device/offset.h": "#define OFFSET 0\n",
    "device/standard.cu": """
#include <cuda/std/array>
#include <cuda/std/cstdint>
#include <cuda/std/limits>
template <class T> __global__ void largest(T* y) { *y = cuda::std::numeric_limits<T>::max(); }
""",
    "device/reduce.cu": """
#include <cub/block/block_reduce.cuh>
template <class T, int BLOCK> __global__ void reduce(const T* x, T* sum) {
  using Reduce = cub::BlockReduce<T, BLOCK>;
  __shared__ typename Reduce::TempStorage storage;
  T total = Reduce(storage).Sum(x[threadIdx.x]);
  if (threadIdx.x == 0) *sum = total;
}
""",
}
SIGNATURES = [
    "axpy<__half>(int n, __half a, const __half* x, __half* y)",
    "axpy<float>(int n, float a, const float* x, float* y)",
    "largest<cuda::std::int64_t>(long long* y)",
    "ns::weigh(const float* x, float* y, ns::Range range)",
    "reduce<double, 128>(const double* x, double* sum)",
    "scale(float* y, float by, int n)",
]
ON_DEMAND = """
import sys
import cuda_ext
kernels = cuda_ext.load(sys.argv[1])
kernels.axpy["double"](4, 1.5, None, None, grid=2, block=32)
kernels["reduce<float, 64>"](None, None, grid=1, block=64)
kernels["largest<unsigned char>"](None, grid=1, block=1)
print(kernels.axpy["double"].signature)
"""


@pytest.fixture(scope="session", params=VERSIONS)
def environment(request: pytest.FixtureRequest, environment_with: Callable[..., Environment]) -> Environment:
    extra, requirement = request.param
    return environment_with(requirement, extra)


@pytest.fixture(scope="session")
def built(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The module of the sample project, built by this version."""
    project = write_project(tmp_path_factory.mktemp("project"), TABLE, FILES)
    build(environment, project)
    return project / "out/pkg/kernels"


def build(environment: Environment, project: Path, status: int = 0) -> str:
    command = ("-m", "cuda_ext", "build", "--output", project / "out", project)
    return environment.run(*command, status=status)


def versions(environment: Environment) -> tuple[list[int], list[int]]:
    """Those of NVRTC and nvJitLink."""
    script = "from cuda_ext.toolchain.cuda_libraries import library_version as version\n"
    nvrtc, linker = json.loads(
        environment.run("-c", f"{script}print([[*version('nvrtc')], [*version('nvjitlink')]])")
    )
    return nvrtc, linker


def manifest_of(module: Path) -> Manifest:
    return loads((module / "manifest.json").read_bytes(), "manifest.json")


def test_every_kernel_is_built_and_described(built: Path) -> None:
    manifest = manifest_of(built)
    assert sorted(kernel.signature for kernel in manifest.kernels) == SIGNATURES
    assert [f"{symbol.type} {symbol.name}" for symbol in manifest.symbols] == ["float[4] ns::weights"]
    assert [(s.name, [str(f) for f in s.fields]) for s in manifest.structures] == [
        ("ns::Range", ["int first", "double step"])
    ]
    assert [constant.declaration for constant in manifest.constants] == [
        "ns::weight_count = 4",
        "ns::share = 0.10000000149011612",
        "sizeof(ns::Range) = 16",
    ]
    for number, unit in enumerate(manifest.units):
        assert [image.architecture for image in unit.images] == ["sm_80", "compute_90", "sm_90a"]
        entries = {e.architecture: e for e in read_fatbin((built / unit.images[0].file).read_bytes())}
        for image in unit.images:
            kernels = [kernel for kernel in manifest.kernels if kernel.unit == number]
            described = {
                manifest.lowered_name(kernel, image): [parameter.size for parameter in kernel.parameters]
                for kernel in kernels
            }
            payload = entries[image.architecture].payload()
            if image.kind == "cubin":
                found = read_cubin(payload).kernels
                assert described == {k: [p.size for p in parameters] for k, parameters in found.items()}
            else:
                assert all(f".entry {lowered}(".encode() in payload for lowered in described)


def test_images_have_no_variables_of_headers(built: Path, environment: Environment) -> None:
    """Each constant of CUB is one, unless nvJitLink is as new as NVRTC and takes it out."""
    manifest = manifest_of(built)
    (unit,) = (unit for unit in manifest.units if unit.title == "device/reduce.cu")
    (entry, *_) = read_fatbin((built / unit.images[0].file).read_bytes())
    assert bool(read_cubin(entry.payload()).variables) == (
        versions(environment)[1] < versions(environment)[0]
    )


def test_a_build_depends_on_the_headers_that_it_read(
    environment: Environment, tmp_path: Path, empty_cache: Path
) -> None:
    libraries = tmp_path / "libraries/include"
    files = {
        **{name: text for name, text in FILES.items() if name in ("device/axpy.cu", "device/index.h")},
        # By the name of a macro, and outside of the project.
        "device/offset.h": "#define TARGET <library/offset.h>\n#include TARGET\n",
    }
    write_project(libraries, "", {"library/offset.h": "#define OFFSET 0\n"})
    options = f'options = ["-I{libraries.as_posix()}"]\njit = false\ninstantiate = ["axpy<float>"]\n'
    project = write_project(tmp_path / "project", TABLE.partition("instantiate")[0] + options, files)
    header = libraries / "library/offset.h"

    def outcome() -> str:
        *_, compilations, _ = build(environment, project).splitlines()
        return compilations.partition(": ")[2].partition(",")[0]

    assert outcome() == "3 compiled"
    assert outcome() == "nothing to compile"
    header.write_text("#define OFFSET 1\n")
    assert outcome() == "3 compiled"
    (project / "device/index.h").write_text(FILES["device/index.h"].replace("OFFSET", "OFFSET + 2"))
    assert outcome() == "3 compiled"
    assert outcome() == "nothing to compile"


@pytest.mark.host_compiler
def test_missing_instantiations_are_compiled_on_demand(
    built: Path, environment: Environment, fake_driver: Path, empty_cache: Path
) -> None:
    settings = {"LD_LIBRARY_PATH": str(fake_driver), "FAKE_CUDA_CAPABILITY": "90"}
    for _ in range(2):  # then from the cache
        shown = environment.run("-W", "error", "-c", ON_DEMAND, built, **settings)
        assert shown == "axpy<double>(int n, double a, const double* x, double* y)\n"


def test_a_mistake_is_explained(environment: Environment, tmp_path: Path) -> None:
    source = FILES["device/axpy.cu"].replace("a * x", "b * x")
    project = write_project(tmp_path, TABLE, {**FILES, "device/axpy.cu": source})
    shown = build(environment, project, status=1)
    assert 'device/axpy.cu(5): error: identifier "b" is undefined' in shown
    table = TABLE.replace("axpy<float>", "axpy<flaot>")
    shown = build(environment, write_project(tmp_path, table, FILES), status=1)
    assert "did you mean 'axpy<float>'?" in shown
    assert "cuda_ext_probe" not in shown


def test_doctor_finds_no_problem(environment: Environment) -> None:
    shown = json.loads(environment.run("-m", "cuda_ext", "doctor", "--json"))
    found = [finding for section in shown["sections"] for finding in section["findings"]]
    assert not [finding for finding in found if finding["level"] == "problem"]
