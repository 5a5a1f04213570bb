"""The names of template parameters come from the source, their values from lowered names."""

from __future__ import annotations

from typing import Any

import pytest

from cuda_ext.compiler.translation_unit import Compiler
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.kernels import Kernel
from cuda_ext.formats.spelling import plain_name
from cuda_ext.runtime.overloads import NotBuiltError, OverloadIndex
from tests.fixtures.device_code import nvcc, nvrtc, unit

SOURCE = """
#include <cuda_fp16.h>
#define WIDTH 8
#define KERNEL(name) template <int N> __global__ void name(int* x) {}
enum class Mode { slow, fast };
enum Flag { off, on };
template <class, class> struct Pair {};
template <bool, class T = int> struct If { using type = T; };
namespace ns {
template <int W, bool V = (W > 4)> __global__ void prototype(int* x);
template <int kWidth, bool kWide> __global__ void prototype(int* x) {}
template <Mode mode, Flag flag> __global__ void enumerators(int* x) {}
}
namespace other { template <int OTHER> __global__ void prototype(float* x, int n) {} }
template <class T, typename U = half, class... Rest> __global__ void types(T* x) {}
template <class, int N, typename If<(N > 0), int>::type = 0> __global__ void unnamed(int* x) {}
template <template <class, class> class P, char C, unsigned long long L, int... Is>
__global__ void rare(int* x) {}
template <int A> __global__ void overloaded(float* x) {}
template <int B> __global__ void overloaded(double* x) {}
template <int A> __global__ void alike(float* x) {}
template <int A> __global__ void alike(double* x) {}
#if 1
template <int A> __global__ void conditional(int* x) {}
#else
template <int B> __global__ void conditional(int* x) {}
#endif
KERNEL(made)
extern "C" __global__ void plain(int* x) {}
"""
CONSTANTS: dict[str, dict[str, str]] = {
    "ns::prototype<2>": {"kWidth": "2", "kWide": "False"},
    "ns::prototype<WIDTH>": {"kWidth": "8", "kWide": "True"},
    "other::prototype<-1>": {"OTHER": "-1"},
    "ns::enumerators<Mode::fast, on>": {"mode": "(Mode)1", "flag": "(Flag)1"},
    "types<float>": {"T": "float", "U": "__half", "Rest": ""},
    "types<unsigned, Pair<int, float>, int, bool>": {
        "T": "unsigned int",
        "U": "Pair<int, float>",
        "Rest": "int, bool",
    },
    "unnamed<float, 3>": {"N": "3"},
    "rare<Pair, 'a', 1ull << 63>": {"P": "Pair", "C": "97", "L": str(1 << 63), "Is": ""},
    "rare<Pair, 'b', 1, 2, 3>": {"P": "Pair", "C": "98", "L": "1", "Is": "2, 3"},
    "(void(*)(float*))overloaded<5>": {},
    "(void(*)(float*))alike<5>": {"A": "5"},
    "conditional<6>": {},
    "made<7>": {"N": "7"},
}


@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
def test_template_parameters_are_constants(compiler: str) -> None:
    tool: Compiler = nvrtc() if compiler == "nvrtc" else nvcc()
    # nvcc instantiates no casts, which choose overloads.
    expected = {name: found for name, found in CONSTANTS.items() if tool is nvrtc() or name[0] != "("}
    (image,) = tool.compile(unit(SOURCE, *expected), [Architecture.parse("sm_90")])
    kernels = image.signatures.kernels
    assert {name: kernels[image.names[name]].constants for name in expected} == expected
    assert kernels["plain"].constants == {}


VALUES = """
enum class Mode { slow, fast = 5, last = -1 };
enum class Big : unsigned long long { none, all = ~0ull };
template <auto V> __global__ void any(int* x) {}
template <auto... Vs> __global__ void several(int* x) {}
template <class T, T V = 1> __global__ void typed(int* x) {}
template <char c, bool b, unsigned char u = 3> __global__ void small(int* x) {}
template <Mode value> __global__ void mode(int* x) {}
template <Big value> __global__ void big(int* x) {}
"""
BUILT = [
    *(
        "any<3>",
        "any<3u>",
        "any<true>",
        "any<1u>",
        "any<'a'>",
        "any<3ll>",
        "any<(short)3>",
        "any<Mode::fast>",
    ),
    *("several<1, true>", "typed<int>", "typed<bool, true>", "typed<long long, 3>", "small<'a', true>"),
    *("mode<Mode::slow>", "big<Big::all>", "big<Big::none>"),
]
# Values, and the kernel that has them. Others are compiled as the error suggests; or it suggests nothing.
CHOSEN: list[tuple[str, dict[str, Any], str]] = [
    ("any", {"V": 3}, "any<3>"),
    ("any", {"V": "3u"}, "any<3u>"),
    ("any", {"V": "3ll"}, "any<3ll>"),
    ("any", {"V": True}, "any<true>"),
    ("any", {"V": "true"}, "any<true>"),
    ("any", {"V": "a"}, "any<'a'>"),
    ("any", {"V": "'a'"}, "any<'a'>"),
    ("any", {"V": "Mode::fast"}, "any<Mode::fast>"),
    ("any", {"V": 1}, "-> any<1>"),
    ("any", {"V": False}, "-> any<false>"),
    ("any", {"V": 97}, "-> any<97>"),
    ("typed", {"T": "int32", "V": 1}, "typed<int>"),
    ("typed", {"T": "bool", "V": 1}, "typed<bool, true>"),
    ("typed", {"T": 3, "V": 1}, ""),
    ("typed", {"V": 1 << 63}, ""),
    ("small", {"c": "a"}, "small<'a', true>"),
    ("small", {"c": 97, "b": 1}, "small<'a', true>"),
    ("small", {"c": "b"}, "-> small<'b', true>"),
    ("small", {"c": "'"}, r"-> small<'\'', true>"),
    ("small", {"c": 300}, ""),
    ("small", {"c": -1, "u": 255}, "-> small<-1, true, 255>"),
    ("small", {"b": 2}, ""),
    ("small", {"u": -1}, ""),
    ("mode", {"value": 5}, "-> mode<Mode::fast>"),
    ("mode", {"value": -1}, "-> mode<Mode::last>"),
    ("mode", {"value": -7}, "-> mode<(Mode)-7>"),
    ("big", {"value": 2**64 - 1}, "big<Big::all>"),
    ("big", {"value": 7}, "-> big<(Big)7>"),
    ("big", {"value": -1}, ""),
]


def test_values_choose_kernels_and_suggestions_build_them() -> None:
    def compiled(names: list[str]) -> dict[str, Kernel]:
        (image,) = nvrtc().compile(unit(VALUES, *names, std="c++20"), [Architecture.parse("compute_90")])
        meanings.update(image.signatures.meanings)
        kernels = image.signatures.kernels
        return {name: kernels[image.names[name]]._replace(expression=name) for name in names}

    meanings: dict[str, str] = {}
    built = compiled(BUILT)
    suggested: dict[str, dict[str, Any]] = {}
    for template, wanted, expected in CHOSEN:
        own = [kernel for name, kernel in built.items() if plain_name(name) == template]
        try:
            found = OverloadIndex(own, meanings).choose_by_constants(wanted)
            answer = "".join(kernel.expression for kernel in found)
        except NotBuiltError as error:
            answer = "".join(f"-> {name}" for name in error.alike[:1])
            suggested |= dict.fromkeys(error.alike[:1], wanted)
        assert answer == expected, wanted
    more = compiled([*suggested])
    assert len(more) == sum(expected.startswith("->") for _, _, expected in CHOSEN)
    for name, wanted in suggested.items():
        assert OverloadIndex([more[name]], meanings).choose_by_constants(wanted) == [more[name]], name
    assert built["several<1, true>"].constants == {"Vs": "1, true"}
