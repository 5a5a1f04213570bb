"""One kernel under several spellings of its template arguments: the compiler lowers all to one name."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cuda_ext.compiler.signatures.attempt import Attempt
from cuda_ext.compiler.signatures.spellings import NO_QUESTIONS, ask
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.manifest import Manifest
from cuda_ext.formats.lowered_names.meanings import find_meant, spell_out
from cuda_ext.formats.spelling import normalise
from cuda_ext.toolchain.programs.nvrtc_program import NvrtcProgram
from tests.fixtures.device_code import module, nvcc, nvrtc, unit

HEADER = """
#pragma once
enum class Mode : int { Slow, Fast };
enum Plain { One = 1, Two };
template <class T> struct Traits { __device__ Traits(int) {} };
namespace ns {
constexpr int B = 7;
using real = float;
enum class Level : unsigned char { Low = 1,
#ifdef NEVER
  Missing,
#endif
  High };
namespace detail { enum class Step : int { Back = -1, On = 5 }; }
using detail::Step;
using Pace = detail::Step;
template <Step S> __global__ void step(int* p) { *p = int(S); }
template <class T, int N = 3> __global__ void red(T* p) { *p = T(N); }
template __global__ void red<real, B>(real*);
template __global__ void red<real>(real*);
template <class T> __global__ void over(T* p) { *p = T(1); }
template <class T> __global__ void over(T* p, int n) { *p = T(n); }
}
"""
SOURCE = """
#include <cuda_fp16.h>
#include <cuda/std/cstdint>
#include "spelled.cuh"
#define WIDTH 4
template <class T> __global__ void zero(T* p) { half one = __float2half(1.f); *p = T(__half2int_rn(one)); }
template <class T, int N> __global__ void fill(T* p) { *p = T(N); }
template <Mode M, bool F = true> __global__ void mode(int* p) { *p = int(M) + F; }
template <Plain P, ns::Level L> __global__ void both(int* p) { *p = int(P) + int(L); }
template <auto V> __global__ void any(int* p) { *p = int(V); }
template <unsigned long long N, char C> __global__ void wide(int* p) { *p = int(N) + C; }
constexpr int B = 2;
template __global__ void fill<half, B>(half*);
template __global__ void fill<float, WIDTH>(float*);
template __global__ void ns::over<half>(half*);
template __global__ void ns::over<half>(half*, int);
#define INSTANTIATE(T, N) template __global__ void __launch_bounds__(128) fill<T, N>(T*)
INSTANTIATE(double, 2 * B);
INSTANTIATE(__half, 0x20u);
#ifdef NEVER
template __global__ void fill<unknown, B>(half*);
#endif
"""
INSTANTIATE = (
    *(
        "zero<half>",
        "zero<int64_t>",
        "zero<unsigned int>",
        "zero<Traits<half>>",
        "zero<const half*>",
        "any<1>",
    ),
    *("mode<Mode::Fast>", "mode<(Mode)0, false>", "both<(Plain)1, ns::Level(2)>", "wide<1ull<<33, 'a'>"),
    "ns::step<ns::Step::On>",
    "zero<__half>",
)
# Each kernel as it is called, and other spellings that mean it.
SPELLINGS = {
    "fill<__half, 2>": [
        "fill<half, B>",
        "fill<half,2>",
        "fill<__half, 0b10>",
        "fill< half , ::B >",
        "fill<half, 2u>",
    ],
    "fill<float, 4>": ["fill<float, WIDTH>", "fill<float, 0x4>"],
    "fill<double, 4>": ["fill<double, 2 * B>"],
    "fill<__half, 32>": ["fill<half, 32>", "fill<half, 0x20u>", "fill<half, ' '>"],
    "zero<half>": ["zero<__half>"],
    "zero<int64_t>": ["zero<cuda::std::int64_t>"],
    "zero<unsigned int>": [
        "zero<uint32_t>",
        "zero<unsigned>",
        "zero<::uint32_t>",
        "zero<cuda::std::uint32_t>",
    ],
    "zero<Traits<half>>": ["zero<Traits<__half>>"],
    "zero<const half*>": ["zero<const __half*>", "zero<__half const *>"],
    "mode<Mode::Fast>": [
        "mode<(Mode)1>",
        "mode<Mode(1)>",
        "mode<static_cast<Mode>(1), true>",
        "mode<Mode::Fast, 1>",
    ],
    "mode<(Mode)0, false>": ["mode<Mode::Slow, false>", "mode<Mode::Slow, 0>"],
    "both<(Plain)1, ns::Level(2)>": ["both<One, ns::Level::High>", "both<Plain::One, (ns::Level)2>"],
    "wide<1ull<<33, 'a'>": ["wide<8589934592, 97>", "wide<0x2'0000'0000, 'a'>"],
    "ns::red<float, 7>": ["ns::red<ns::real, 7>", "ns::red<ns::real, ns::B>"],
    "ns::red<float, 3>": ["ns::red<float>", "ns::red<ns::real, 3>"],
    "ns::step<ns::Step::On>": [
        *(f"ns::step<ns::{step}::On>" for step in ("Pace", "detail::Step")),
        *("ns::step<(ns::Step)5>", "ns::step<ns::Pace(5)>"),
    ],
}
OTHERS = (
    *("fill<half, 3>", "fill<float, B>", "zero<short>", "mode<Mode::Slow>", "both<Two, ns::Level::High>"),
    *("any<1u>", "any<true>", "ns::red<double>", "zero<half*>", "both<One, ns::Level::Low>"),
    "ns::step<ns::Pace::Back>",
)


def sample(*instantiate: str) -> TranslationUnit:
    return unit(SOURCE, *instantiate, headers={"spelled.cuh": HEADER})


@pytest.fixture(scope="module", params=["nvrtc", pytest.param("nvcc", marks=pytest.mark.host_compiler)])
def built(request: pytest.FixtureRequest) -> Manifest:
    compiler = nvrtc() if request.param == "nvrtc" else nvcc()
    return module(sample(*INSTANTIATE), architectures=["sm_80", "compute_90"], compiler=compiler).manifest


@pytest.fixture(scope="module")
def lowered() -> Mapping[str, str]:
    """The lowered name of each spelling, as NVRTC says."""
    spellings = [*SPELLINGS, *(text for texts in SPELLINGS.values() for text in texts), *OTHERS]
    program = NvrtcProgram(sample(*spellings))
    directories = (f"-I{directory}" for directory in nvrtc().header_directories)
    assert program.compile(["-arch=sm_90", "-fdevice-syntax-only", *directories]), program.log
    return program.answers.names


def find(built: Manifest, spelling: str) -> str | None:
    kernels = {kernel.expression: kernel for kernel in built.kernels}
    return find_meant(normalise(spelling), kernels, kernels.__getitem__, built.units)


def test_a_kernel_is_listed_once(built):
    overloads = ["ns::over<__half>(__half*)", "ns::over<__half>(__half*, int)"]
    assert [kernel.expression for kernel in built.kernels] == sorted([*SPELLINGS, *overloads, "any<1>"])


@pytest.mark.parametrize("kernel", SPELLINGS)
def test_a_kernel_is_found_under_each_spelling(built, lowered, kernel):
    for spelling in SPELLINGS[kernel]:
        assert lowered[spelling] == lowered[kernel]
        assert find(built, spelling) == kernel, spelling


@pytest.mark.parametrize("spelling", OTHERS)
def test_what_was_not_built_is_not_found(built, lowered, spelling):
    assert lowered[spelling] not in {lowered[kernel] for kernel in SPELLINGS}
    assert find(built, spelling) is None


def test_parameters_of_overloads_are_spelled_alike(built):
    assert find(built, "ns::over<half>(half*, int)") == "ns::over<__half>(__half*, int)"


def test_the_manifest_has_no_meanings_that_no_kernel_needs(built):
    (unit,) = built.units
    assert not {"int8_t", "size_t", "nv_bfloat16", "std::int8_t"} & unit.meanings.keys()
    assert module("__global__ void plain(int* p) { *p = 1; }").manifest.units[0].meanings == {}


@pytest.mark.parametrize("architecture", ["sm_90", "compute_90", "lto_90"])
def test_questions_leave_no_trace(architecture):
    options = ["-arch=sm_90"] if architecture == "sm_90" else ["-arch=compute_90"]
    options += ["-dlto"] if architecture == "lto_90" else []
    options += (f"-I{directory}" for directory in nvrtc().header_directories)
    target = Architecture.parse(architecture)
    images = []
    for questions in (NO_QUESTIONS, ask(sample(*INSTANTIATE))):
        program = NvrtcProgram(sample(*INSTANTIATE), Attempt(INSTANTIATE, questions=questions))
        assert program.compile([*options, "--frandom-seed=device/unit.cu", "-lineinfo"]), program.log
        images.append(program.image(target.kind))
    assert images[0] == images[1]


def test_sources_that_differ_in_a_constant_are_told_apart():
    template = "template <int N> __global__ void %s(int* p) { *p = N; }\nconstexpr int B = %d;\n"
    texts = [
        template % (name, value) + f"template __global__ void {name}<B>(int*);"
        for name, value in (("a", 1), ("b", 2))
    ]
    built = module(*(unit(text, name=f"device/{i}.cu") for i, text in enumerate(texts))).manifest
    assert (find(built, "a<B>"), find(built, "b<B>")) == ("a<1>", "b<2>")


def test_a_name_of_another_source_means_nothing():
    text = "using real = %s; template <class T> __global__ void %s(T* p) { *p = T(); }"
    units = [
        unit(text % (type_, name), f"{name}<{argument}>", name=f"device/{name}.cu")
        for name, type_, argument in (("one", "float", "real"), ("two", "double", "float"))
    ]
    built = module(*units).manifest
    assert (find(built, "one<real>"), find(built, "one<float>")) == ("one<real>", "one<real>")
    assert find(built, "two<real>") is None


def test_two_sources_may_spell_a_kernel_of_a_header_differently():
    header = {"zero.cuh": "template <class T> __global__ void zero(T* p) { *p = T(0); } using real = float;"}
    texts = [f'#include "zero.cuh"\n__global__ void {name}(int* p) {{ *p = 1; }}' for name in "ab"]
    one = unit(texts[0], "zero<real>", name="device/a.cu", headers=header)
    other = unit(texts[1], "zero<float>", name="device/b.cu", headers=header)
    kernels = module(one, other).manifest.kernels
    assert [(kernel.expression, kernel.unit) for kernel in kernels] == [("a", 0), ("zero<real>", 0), ("b", 1)]


@pytest.mark.parametrize("is_requested", [True, False])
def test_a_name_of_the_table_is_not_one_that_the_kernel_s_namespace_has(is_requested):
    source = """
    using real = float;
    namespace ns {
    using real = double;
    template <class T> __global__ void zero(T* p) { *p = T(); }
    }
    template <class T> __global__ void other(T* p) { *p = T(); }
    """
    names = ("ns::zero<real>", "other<double>") if is_requested else ("other<double>",)
    written = "" if is_requested else "template __global__ void ns::zero<real>(float*);"
    manifest = module(unit(source + written, *names)).manifest
    assert find(manifest, "ns::zero<double>") is None
    assert find(manifest, "ns::zero<float>") == ("ns::zero<real>" if is_requested else "ns::zero<float>")


def test_names_that_a_condition_excludes_are_no_obstacle():
    source = """
    #ifdef NEVER
    namespace absent { using real = float; enum class Kind { a }; }
    #endif
    struct half {};
    template <class T> __global__ void zero(T* p) { *p = T(); }
    """
    (kernel,) = module(unit(source, "zero<half>")).manifest.kernels
    assert kernel.lowered == "_Z4zeroI4halfEvPT_"


def test_a_namespace_that_is_used_makes_no_question_ambiguous():
    source = """
    namespace std {}
    using namespace std;
    using real = float;
    template <class T> __global__ void zero(T* p) { *p = T(); }
    """
    given = unit(source, "zero<float>")
    program = NvrtcProgram(given, Attempt(given.instantiate, questions=ask(given)))
    assert program.compile(["-arch=sm_90"]), program.log
    assert program.answers.meanings["real"] == "float"


def test_an_ambiguous_name_costs_no_other_answer():
    source = """
    namespace lib { using half = float; }
    using namespace lib;
    using real = float;
    template <class T> __global__ void zero(T* p) { *p = T(); }
    """
    manifest = module(unit(source, "zero<float>")).manifest
    assert find(manifest, "zero<real>") == find(manifest, "zero<lib::half>") == "zero<float>"


def test_questions_make_no_name_of_the_table_ambiguous():
    source = """
    namespace std {}
    using namespace std;
    struct half {};
    typedef half int16_t;
    template <class T> __global__ void zero(T* p) { *p = T(); }
    """
    (kernel,) = module(unit(source, "zero<int16_t>")).manifest.kernels
    assert kernel.lowered == "_Z4zeroI4halfEvPT_"


def test_literals_are_spelled_out_but_not_for_auto():
    assert spell_out("k<0x10u, true, '\\n', -1>", {}) == "k<16, 1, 10, -1>"
    assert spell_out("k<1u>", {"k": "auto"}) == "k<1u>"
    assert spell_out("k<c<1u, int>, 1u, B, c<B>>", {"B": "2"}) == "k<c<1u, int>, 1, 2, c<B>>"


def test_values_of_auto_parameters_differ_by_their_types():
    source = """
    constexpr unsigned B = 2;
    template <auto V> struct Constant {};
    template <auto V> __global__ void any(int* p) { *p = int(V); }
    template <class T> __global__ void tag(int* p) { *p = sizeof(T); }
    template <unsigned U> __global__ void plain(unsigned* p) { *p = U; }
    """
    names = ("any<1u>", "any<B>", "any<1+2>", "tag<Constant<B>>", "tag<Constant<4+1>*>", "plain<B>")
    manifest = module(unit(source, *names)).manifest
    for name in ("any<1>", "any<2>", "any<true>", "any<3u>", "tag<Constant<2>>", "tag<Constant<5u>*>"):
        assert find(manifest, name) is None, name
    assert find(manifest, "any<3>") == "any<1+2>"
    assert find(manifest, "tag<Constant<5>*>") == "tag<Constant<4+1>*>"
    assert find(manifest, "plain<2u>") == "plain<B>"
