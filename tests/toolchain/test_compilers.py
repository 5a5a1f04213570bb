"""Common properties of NVRTC and nvcc: options reach the code, images are whole, errors name the place."""

from __future__ import annotations

import re

import pytest

from cuda_ext.compiler.jobs import LinkInput
from cuda_ext.compiler.products import CompiledImage
from cuda_ext.compiler.translation_unit import Compiler, TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.formats import ptx
from cuda_ext.formats.cubin import read_cubin
from cuda_ext.toolchain.nvjitlink import link
from tests.fixtures import device_code
from tests.fixtures.device_code import KERNEL, library, unit
from tests.fixtures.messages import Messages

SM_90, COMPUTE_90 = Architecture.parse("sm_90"), Architecture.parse("compute_90")
SINE = "__global__ void k(float* p) { *p = sinf(*p); }"
SUM = "__global__ void k(float* p) { *p = p[1] * p[2] + p[3]; }"
AXPY = "template <class T> __global__ void axpy(T a, T* x) { *x = a; }\n__global__ void scale(int) {}\n"
CALLER = "extern __device__ int f(int);\n__global__ void k(int* x) { *x = f(*x); }"


@pytest.fixture(params=["nvrtc", pytest.param("nvcc", marks=pytest.mark.host_compiler)])
def compiler(request: pytest.FixtureRequest) -> Compiler:
    opened: Compiler = getattr(device_code, request.param)()
    return opened


def compiled(compiler: Compiler, unit: TranslationUnit, architecture: Architecture = SM_90) -> CompiledImage:
    (image,) = compiler.compile(unit, [architecture])
    return image


def code(compiler: Compiler, unit: TranslationUnit) -> str:
    return compiled(compiler, unit, COMPUTE_90).data.decode()


def refusal(compiler: Compiler, unit: TranslationUnit, architecture: Architecture = COMPUTE_90) -> str:
    with pytest.raises(CompilationError) as caught:
        compiler.compile(unit, [architecture])
    return str(caught.value)


# Options.


@pytest.mark.parametrize(("std", "version"), [("c++14", 201402), ("c++20", 202002)])
def test_the_language_standard_is_the_requested_one(compiler: Compiler, std: str, version: int) -> None:
    source = f'static_assert(__cplusplus == {version}, "");\n{KERNEL}'
    assert compiled(compiler, unit(source, std=std), COMPUTE_90).entries == ("_Z6kernelPi",)


def test_raw_options_are_passed_on(compiler: Compiler) -> None:
    assert "fma.rn" in code(compiler, unit(SUM))
    assert "fma.rn" not in code(compiler, unit(SUM, raw=("--fmad=false",)))


def test_fast_math_makes_approximations(compiler: Compiler) -> None:
    assert "sin.approx.ftz.f32" in code(compiler, unit(SINE, fast_math=True))
    assert "sin.approx" not in code(compiler, unit(SINE))


def test_pre_includes_come_before_the_first_line_in_their_order(compiler: Compiler) -> None:
    headers = {"one.cuh": "#define ONE 1", "two.cuh": "enum { TWO = ONE + 1 };"}
    source = "__global__ void k(int* p) { *p = TWO; }"
    assert ", 2;" in code(compiler, unit(source, headers=headers, pre_include=("one.cuh", "two.cuh")))


def test_relocatable_code_may_call_functions_of_other_units(compiler: Compiler) -> None:
    other = unit("__device__ int f(int x) { return x; }", relocatable=True)
    objects = [compiled(compiler, each).data for each in (unit(CALLER, relocatable=True), other)]
    linked = link([LinkInput("o", "cubin", data) for data in objects], SM_90)
    assert list(read_cubin(linked).kernels) == ["_Z1kPi"]
    assert "_Z1fi" in refusal(compiler, unit(CALLER), SM_90)


# Images.


def test_an_image_has_its_kernels_and_variables(compiler: Compiler) -> None:
    source = unit("__device__ int v;\n__global__ void k(int* x) { *x = v; } __global__ void k(float*) {}")
    cubin, text = compiler.compile(source, [SM_90, COMPUTE_90])
    assert read_cubin(cubin.data).target == SM_90
    assert ptx.target(text.data) == COMPUTE_90
    assert cubin.entries == text.entries == ("_Z1kPf", "_Z1kPi")
    assert cubin.variables == text.variables == ("v",)


@pytest.mark.parametrize("suffix", [pytest.param("", marks=pytest.mark.slow), "a"])
def test_images_compiled_together_equal_those_compiled_alone(compiler: Compiler, suffix: str) -> None:
    source = unit(AXPY, "axpy<int>", "axpy<double>")
    architectures = [Architecture.parse(f"{kind}_90{suffix}") for kind in ("sm", "compute")]
    together = compiler.compile(source, architectures)
    assert together == tuple(compiled(compiler, source, each) for each in architectures)
    assert [image.architecture for image in together] == architectures


def test_lto_ir_has_names_and_no_entries(compiler: Compiler) -> None:
    image = compiled(compiler, unit(AXPY, "axpy<int>"), Architecture.parse("lto_90"))
    assert image.names == {"axpy<int>": "_Z4axpyIiEvT_PS0_"}
    assert image.entries == ()
    assert image.data


def test_resources_come_from_the_cubin(compiler: Compiler) -> None:
    image = compiled(
        compiler, unit("__global__ void k(int* x) { volatile int a[99]; a[*x] = 1; *x = a[x[1]]; }")
    )
    (usage,) = image.usage.values()
    assert tuple(image.usage) == image.entries
    assert usage.registers
    assert usage.stack == 400
    assert image.log == ""


def test_each_architecture_has_its_own_code_and_names(compiler: Compiler) -> None:
    source = (
        "#if __CUDA_ARCH__ >= 900\nusing T = float;\n__global__ void hopper() {}\n"
        "#else\nusing T = double;\n#endif\ntemplate <class T> __global__ void k(T* x) {}"
    )
    architectures = [Architecture.parse("compute_80"), COMPUTE_90]
    images, _ = library(unit(source, "k<T>"), architectures, compiler)
    assert [image.names for image in images] == [{"k<T>": "_Z1kIdEvPT_"}, {"k<T>": "_Z1kIfEvPT_"}]
    assert [image.entries for image in images] == [("_Z1kIdEvPT_",), ("_Z1kIfEvPT_", "_Z6hopperv")]


def test_an_expression_may_use_anything_that_the_source_knows(compiler: Compiler) -> None:
    source = (
        "using real = float;\nconstexpr int SIZE = 2;\ntemplate <class T, int N> __global__ void k(T* x) {}"
    )
    expressions = ("k<real, (SIZE > 1 ? 7 : 3)>", "k<float, 7>")
    image = compiled(compiler, unit(source, *expressions), COMPUTE_90)
    assert image.names == dict.fromkeys(expressions, "_Z1kIfLi7EEvPT_")
    assert image.entries == ("_Z1kIfLi7EEvPT_",)


# Messages.


def test_warnings_and_errors_have_paths_of_the_project(compiler: Compiler) -> None:
    headers = {"device/h.cuh": "\n__device__ inline int f() { int lost; return VALUE; }"}
    source = '#include "device/h.cuh"\n__global__ void k(int* x) { int unused; *x = f() + VALUE; }'
    log = compiled(compiler, unit(source, headers=headers, define={"VALUE": "1"}), COMPUTE_90).log
    assert re.search(r'(?m)^device/unit\.cu\(2\): warning .*"unused" was declared', log)
    assert re.search(r'(?m)^device/h\.cuh\(2\): warning .*"lost" was declared', log)
    text = refusal(compiler, unit(source, headers=headers))
    assert 'device/unit.cu(2): error: identifier "VALUE" is undefined' in text
    assert 'device/h.cuh(2): error: identifier "VALUE" is undefined' in text
    assert "tmp" not in text


def test_every_instantiation_that_does_not_exist_is_answered(compiler: Compiler, messages: Messages) -> None:
    bad = ["axpi<float>", "axpy<flot>", "ns::axpy<float>", "axpy", "gemm"]
    messages(*refusal(compiler, unit(AXPY, "scale", *bad)).splitlines())
