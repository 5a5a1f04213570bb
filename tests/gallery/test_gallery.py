"""The gallery of real code: with either compiler, every kernel is built, and its signature is complete.

What the kernels compute is tested in ``tests/gpu/test_gallery.py``.
"""

from __future__ import annotations

from itertools import product

import pytest

from cuda_ext.facts.manifest import loads
from cuda_ext.formats.cubin import read_cubin
from cuda_ext.formats.fatbin import read_fatbin
from tests.fixtures.gallery import GALLERY, build_gallery_project

NUMBERS = (
    *("signed char", "unsigned char", "short", "unsigned short", "int", "unsigned int", "long long"),
    *("__half", "float", "double"),
)
SIGNATURES = {
    "block_primitives": [
        "block_prefix_sum<int, 128>(int n, const int* x, int* y)",
        "block_sort<float, 128, 2>(int n, float* keys)",
        "block_sort<unsigned int, 128, 4>(int n, unsigned int* keys)",
        "block_sum<float, 256>(int n, const float* x, float* sums)",
        "block_sum<long long, 256>(int n, const long long* x, long long* sums)",
    ],
    "conversions": [
        f"convert<{one}, {other}>(int n, const {one}* from, {other}* to)"
        for one, other in product(NUMBERS, NUMBERS)
    ],
    "dynamic_parallelism": [
        "scale_segment(int n, float factor, float* x)",
        "scale_segments(int segments, const int* offsets, const float* factors, float* x)",
    ],
    "function_pointers": [
        "combine<float, ops::larger<float>>(int n, const float* x, const float* y, float* z)",
        "combine<int, ops::sum<int>>(int n, const int* x, const int* y, int* z)",
        "map<&square>(int n, const float* x, float* y)",
        "map<relu>(int n, const float* x, float* y)",
        "map<square, relu, minus_one>(int n, const float* x, float* y)",
    ],
    "grid_sync": [
        "diffuse(int n, int steps, float rate, float* cells, float* scratch)",
        "subtract_mean(int n, float* x, float* sum)",
    ],
    "hopper_gemm": ["hopper_gemm(int m, int n, int k, CUtensorMap_st a, CUtensorMap_st b, float* c)"],
    "macro_kernels": [
        "half_of(int n, const float* input, float* output)",
        "hypotenuse(int n, const float* x, const float* y, float* z)",
        "inverse_root_of(int n, const double* input, double* output)",
        "powers::power<2>(int n, const double* x, double* y)",
        "powers::power<3>(int n, const double* x, double* y)",
        "root_of(int n, const float* input, float* output)",
        "third_of(int n, const int* input, int* output)",
    ],
    "matrix_product": [
        "gemm<double, 32>(int m, int n, int k, const double* a, const double* b, double* c)",
        "gemm<float, 64>(int m, int n, int k, const float* a, const float* b, float* c)",
        "gemm_tensor_cores(int m, int n, int k, const __half* a, const __half* b, float* c)",
    ],
    "names_as_strings": [
        "fill(int, float, float*)(int n, float value, float* x)",
        "fill(int, int, int*)(int n, int value, int* x)",
        "scale<cuda::std::complex<float>>(int n, cuda::std::complex<float> factor, "
        "cuda::std::complex<float>* x)",
        "scale<float>(int n, float factor, float* x)",
        "scale<unsigned char>(int n, unsigned char factor, unsigned char* x)",
        "signal::difference<signal::Edge::Wrap>(int n, const float* x, float* y)",
        "signal::difference<signal::Edge::Zero>(int n, const float* x, float* y)",
        "signal::filter<double, 3>(int n, signal::Window<double, 3> window, const double* x, double* y)",
        "signal::filter<float, 5>(int n, signal::Window<float, 5> window, const float* x, float* y)",
    ],
    "parameter_struct": [
        "look_up(Table table, int n, const int* indices, float* y)",
        "network::forward(int n, network::Network network, const float* x, float* y)",
        "sum_biases(network::Network network, double scale, double* sums)",
    ],
    "random_numbers": [
        "random_bits(int n, unsigned long long seed, unsigned int* x)",
        "uniform<curandStatePhilox4_32_10_t>(int n, unsigned long long seed, float* x)",
        "uniform<curandStateXORWOW_t>(int n, unsigned long long seed, float* x)",
    ],
    "row_normalization": [
        f"rows::{kernel}<{type_}>({parameters})"
        for type_ in ("__half", "float")
        for kernel, parameters in {
            "layer_norm": f"int columns, float epsilon, const {type_}* x, const float* gamma, "
            f"const float* beta, {type_}* y",
            "softmax": f"int columns, const {type_}* x, {type_}* y",
        }.items()
    ],
    "vendored_tree": [
        "extrema::reduce(int n, const int* x, int* result)",
        "sums::reduce(int n, const int* x, long long* result)",
    ],
}
SYMBOLS = {"dynamic_parallelism": {"int launches"}}
QUICK = {"function_pointers"}  # with nvcc, which takes seconds for each


def test_every_project_is_tested() -> None:
    assert sorted(SIGNATURES) == sorted(table.parent.name for table in GALLERY.glob("*/pyproject.toml"))


@pytest.mark.parametrize(
    ("name", "compiler"),
    [
        *((name, "nvrtc") for name in SIGNATURES),
        *(
            pytest.param(
                name,
                "nvcc",
                marks=[pytest.mark.host_compiler, *([] if name in QUICK else [pytest.mark.slow])],
            )
            for name in SIGNATURES
        ),
    ],
)
def test_every_kernel_is_built_and_described(name: str, compiler: str) -> None:
    package = build_gallery_project(name, compiler)
    manifest = loads(package.files["manifest.json"], "manifest.json")
    assert sorted(kernel.signature for kernel in manifest.kernels) == sorted(SIGNATURES[name])
    assert {f"{symbol.type} {symbol.name}" for symbol in manifest.symbols} >= SYMBOLS.get(name, set())
    architectures = {"sm_90a"} if name == "hopper_gemm" else {"sm_90"}
    if compiler == "nvrtc" and name != "hopper_gemm":
        architectures.add("sm_80")
    for number, unit in enumerate(manifest.units):
        assert {image.architecture for image in unit.images} == architectures
        fatbin = {entry.architecture: entry for entry in read_fatbin(package.files[unit.images[0].file])}
        for image in unit.images:
            described = {
                manifest.lowered_name(kernel, image): [parameter.size for parameter in kernel.parameters]
                for kernel in manifest.kernels
                if kernel.unit == number
            }
            contained = {
                lowered: [parameter.size for parameter in parameters]
                for lowered, parameters in read_cubin(fatbin[image.architecture].payload()).kernels.items()
                if not lowered.startswith("__nv_static_")  # of the device runtime
            }
            assert described == contained
