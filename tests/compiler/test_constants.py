"""Constants of the code: the compiler states their values, for each architecture."""

from __future__ import annotations

import pytest

from cuda_ext.compiler.module_plan import LibraryPlan, ModulePlan
from cuda_ext.compiler.translation_unit import Compiler, TranslationUnit
from cuda_ext.errors import BuildError
from cuda_ext.facts import manifest
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.constants import Constant
from cuda_ext.facts.manifest import Manifest
from cuda_ext.toolchain.compile_library import compile_module
from tests.fixtures.device_code import nvcc, nvrtc, unit

SOURCE = """
template <int W, int V = 1> struct Traits {
  static constexpr int kSmemSize = W * 40;
  static constexpr float half = 0.5f;
  static constexpr double tenth = -0.1;
  static constexpr bool flag = true;
  static constexpr unsigned long long most = ~0ull;
  enum { N = 3 };
};
enum class Mode : unsigned char { last = 200 };
namespace ns { struct Params { int a; const float* x; }; constexpr short least = -32768; }
#if __CUDA_ARCH__ >= 900
constexpr int tile = 128;
#else
constexpr int tile = 64;
#endif
#define WIDTH 12
__global__ void k(ns::Params p) {}
"""
# The value of each constant.
VALUES = {
    "Traits<4, 2>::kSmemSize": 160,
    "Traits<4>::half": 0.5,
    "Traits<4>::tenth": -0.1,
    **{repr(value): value for value in (1e300, 5e-324, -2.5e-310, 2.2250738585072014e-308, 0.0, 3.0)},
    "1.7976931348623157e308": 1.7976931348623157e308,
    "-3.4028234663852886e38f": -3.4028234663852886e38,
    "1e-45f": 1.401298464324817e-45,
    "Traits<4>::flag": True,
    "Traits<4>::most": (1 << 64) - 1,
    "Traits<4>::N": 3,
    "Mode::last": 200,
    "sizeof(ns::Params)": 16,
    "ns::least": -32768,
    "(1 > 0 ? -3 : 4)": -3,
    "WIDTH": 12,
    "tile": 128,
}
ARCHITECTURES = tuple(map(Architecture.parse, ("sm_80", "sm_90", "compute_90")))


def build(compiler: Compiler, *units: TranslationUnit) -> Manifest:
    libraries = (
        LibraryPlan("pkg.kernels", (each,), ARCHITECTURES, file_stem=each.name[:1]) for each in units
    )
    return compile_module(ModulePlan("pkg.kernels", tuple(libraries)), lambda _: compiler).manifest


@pytest.mark.parametrize("compiler", [nvrtc, pytest.param(nvcc, marks=pytest.mark.slow)])
def test_values_are_those_of_the_compiler(compiler):
    built = build(compiler(), unit(SOURCE).replace(constants=(*VALUES,)))
    assert {each.name: each.number() for each in built.constants} == VALUES
    assert {each.name: each.elsewhere for each in built.constants if each.elsewhere} == {
        "tile": {"sm_80": "64"}
    }
    assert [each.number("sm_80") for each in built.constants][-1] == 64
    assert list(manifest.loads(manifest.dumps(built), "").constants) == list(built.constants)


def test_a_constant_that_one_source_lacks_is_that_of_another() -> None:
    other = unit("__global__ void other() {}", name="other.cu").replace(constants=("WIDTH",))
    built = build(nvrtc(), other, unit(SOURCE).replace(constants=("WIDTH",)))
    assert list(built.constants) == [Constant("WIDTH", "int", "12", unit=1)]


@pytest.mark.parametrize(
    ("constant", "reason"),
    [
        ("Traits<4>::none", 'class "Traits<4, 1>" has no member "none"'),
        ("sizeof(Missing)", 'identifier "Missing" is undefined'),
        ("threadIdx.x", ""),
        ("ns::Params{}", ""),
    ],
)
def test_what_no_source_has_is_an_error(constant: str, reason: str) -> None:
    with pytest.raises(BuildError) as caught:
        build(nvrtc(), unit(SOURCE).replace(constants=(constant,)))
    assert caught.value.problem.startswith(
        f"no source has the constant {constant!r} (device/unit.cu: {reason}"
    )


def test_sources_that_disagree_are_an_error() -> None:
    units = [unit(SOURCE).replace(constants=("WIDTH",))]
    text = "#define WIDTH 13\n__global__ void other() {}"
    units.append(unit(text, name="other.cu").replace(constants=("WIDTH",)))
    with pytest.raises(BuildError, match="have WIDTH = 12 and WIDTH = 13; give it different names"):
        build(nvrtc(), *units)
