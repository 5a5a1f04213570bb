"""The names of template parameters come from the source, their values from lowered names."""

from __future__ import annotations

import pytest

from cuda_ext.compiler.translation_unit import Compiler
from cuda_ext.facts.architecture import Architecture
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
