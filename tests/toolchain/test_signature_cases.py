"""Declarations that once ended a build or lost their types: both compilers describe them alike."""

from __future__ import annotations

import os

import pytest

from cuda_ext.compiler.library import compile_log, library_images
from cuda_ext.compiler.module_plan import LibraryPlan
from cuda_ext.compiler.translation_unit import Compiler, TranslationUnit
from cuda_ext.errors import ToolchainError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.formats.cubin import read_cubin
from cuda_ext.toolchain.compile_library import compile_products
from cuda_ext.toolchain.compilers import find_nvcc
from cuda_ext.toolchain.nvcc import Nvcc
from cuda_ext.toolchain.nvrtc import Nvrtc
from tests.fixtures.device_code import library, unit

SM_90 = Architecture.parse("sm_90")


@pytest.fixture(scope="module", params=["nvrtc", pytest.param("nvcc", marks=pytest.mark.host_compiler)])
def compiler(request: pytest.FixtureRequest) -> Compiler:
    if request.param == "nvrtc":
        return Nvrtc()
    try:
        return find_nvcc(None, os.environ)
    except ToolchainError as error:
        pytest.skip(str(error))


def kernels(source: str | TranslationUnit, compiler: Compiler) -> list[str]:
    """The declarations of all kernels in an image."""
    _, signatures = library(unit(source) if isinstance(source, str) else source, [SM_90], compiler)
    assert signatures.log == ""
    return sorted(kernel.signature for kernel in signatures.kernels.values())


def test_instructions_that_debug_information_excludes(compiler):
    source = """extern "C" __global__ void dot(int* x, const short2* y) {
      x[0] = __dp4a(x[1], x[2], 0) + __dp2a_lo(x[3], x[4], 0) + __dp2a_hi(x[5], x[6], 0); }"""
    assert kernels(source, compiler) == ["dot(int* x, const short2* y)"]


def test_an_unused_grid_constant(compiler):
    source = """struct P { float v[32]; };
    extern "C" __global__ void k(const __grid_constant__ P used, const __grid_constant__ P unused, float* y)
    { *y = used.v[3]; }"""
    assert kernels(source, compiler) == ["k(P used, P unused, float* y)"]


def test_types_have_one_spelling_behind_namespaces_and_typedefs(compiler, messages):
    source = """namespace lib { inline namespace v1 { template <class T> struct Params { T v[3]; int n; }; }
      enum class Mode : int { a }; }
    typedef lib::Params<float> Settings;
    namespace lib { using Same = Params<float>; template <class T> struct Of { using type = T; }; }
    extern "C" __global__ void one(Settings a, lib::Same b, lib::Params<float>* c, lib::Mode d) {}
    template <class T> __global__ void two(typename T::type a, Settings b) {}
    template __global__ void two<lib::Of<double>>(double, Settings);"""
    messages(*kernels(source, compiler))


def test_kernels_that_macros_of_a_header_declare(compiler):
    header = """#define KERNEL extern "C" __global__
    #define BOUNDED(threads) __global__ void __launch_bounds__(threads)
    #define UNARY(name, op) KERNEL void name##_kernel(float* x, int count) { x[count] = op x[count]; }\n"""
    source = """#include "device/macros.cuh"
    KERNEL void plain(const float* x, int (*rows)[4]) {}
    BOUNDED(128) bounded(double y) {}
    UNARY(negate, -)\n"""
    both = unit(source, name="device/k.cu", headers={"device/macros.cuh": header})
    assert kernels(both, compiler) == [
        "bounded(double y)",
        "negate_kernel(float* x, int count)",
        "plain(const float* x, int(*rows)[4])",
    ]


def test_kernels_that_macros_of_another_library_declare(tmp_path, compiler):
    (tmp_path / "lib.cuh").write_text('#define LIB_GLOBAL __global__\n#define LIB_C extern "C" LIB_GLOBAL\n')
    source = """#include <lib.cuh>
    enum Mode { fast };
    template <class Op> LIB_GLOBAL void kernel(typename Op::Params params) {}
    struct Gemm { struct Params { int m, n; }; };
    template __global__ void kernel<Gemm>(Gemm::Params);
    LIB_C void run(float* out, Mode mode) {}\n"""
    assert kernels(unit(source, raw=(f"-I{tmp_path}",)), compiler) == [
        "kernel<Gemm>(Gemm::Params params)",
        "run(float* out, Mode mode)",
    ]


@pytest.mark.parametrize("declared", ["struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };"])
def test_a_tensor_map_behind_a_typedef_is_one(declared, compiler):
    source = f"""{declared}
    namespace cute {{ using TmaDescriptor = CUtensorMap; }}
    struct Tma {{ cute::TmaDescriptor descriptor; }};
    extern "C" __global__ void load(const __grid_constant__ cute::TmaDescriptor map, char c, int* y) {{}}"""
    assert kernels(source, compiler) == ["load(CUtensorMap map, char c, int* y)"]


def test_parameters_that_a_macro_hides_are_numbered_and_the_log_says_so(tmp_path, compiler):
    (tmp_path / "lib.cuh").write_text("#define ARGUMENTS float* x, int n\n")
    source = unit("#include <lib.cuh>\n__global__ void k(ARGUMENTS) {}\n", raw=(f"-I{tmp_path}",))
    plan = LibraryPlan("p.kernels", (source,), (SM_90,))
    products = compile_products(plan, compiler)
    _, signatures = library_images(plan, products)
    assert [k.signature for k in signatures.kernels.values()] == ["k(float* arg0, int arg1)"]
    assert compile_log(plan, products) == (
        "device/unit.cu: the parameters of k are named arg0, arg1, and so on, since the source does not show "
        "their names",
    )


@pytest.mark.host_compiler
def test_a_time_trace_costs_nvcc_no_types(compiler):
    if not isinstance(compiler, Nvcc):
        return
    timed = find_nvcc(None, os.environ)
    timed.timed = True
    source = "template <class T> __global__ void k(T* x, int n) {}"
    (image,) = timed.compile(unit(source, "k<float>"), [SM_90])
    assert [k.signature for k in image.signatures.kernels.values()] == ["k<float>(float* x, int n)"]
    assert image.trace.spans


def test_offsets_are_those_of_the_newest_cubin(compiler):
    source = """struct alignas(64) Map { unsigned long long opaque[16]; };
    extern "C" __global__ void k(char c, Map map, int i) {}"""
    images, signatures = library(unit(source), [Architecture.parse("sm_80"), SM_90], compiler)
    built = read_cubin(images[-1].data).kernels["k"]
    assert [p.offset for p in signatures.kernels["k"].parameters] == [p.offset for p in built]


def test_a_macro_that_is_not_defined_names_no_parameter(compiler):
    source = """
    #ifdef NEVER
    #define n count
    #define y 4
    #endif
    #define x threadIdx.x
    #undef x
    #define IN const float*
    #define LENGTH length
    extern "C" __global__ void k(int n, IN x, float* y, int LENGTH) { *y = *x + n + length; }
    """
    assert kernels(source, compiler) == ["k(int n, const float* x, float* y, int length)"]
