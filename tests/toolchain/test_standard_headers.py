"""Headers of the standard library under NVRTC, which lead to libcu++."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.text.includes import find_includes
from cuda_ext.toolchain.nvrtc import Nvrtc
from tests.fixtures.device_code import image, nvrtc, unit
from tests.fixtures.environments import CHECKOUT
from tests.fixtures.messages import Messages

STANDARD = CHECKOUT / "cuda_ext" / "include" / "cuda_ext" / "standard"
HEADERS = sorted(path.name for path in STANDARD.iterdir() if path.suffix != ".hpp")
INCLUDES = "".join(f"#include <{name}>\n" for name in HEADERS)
# What libcu++ has for itself, and <version>, for which it tests.
OTHERS = {"ccomplex", "detail", "inplace_vector", "linalg", "version"}

# Constant expressions that both libraries compute alike.
FACTS = """\
std::is_same_v<std::uint32_t, uint32_t> && std::is_same_v<std::size_t, size_t>
std::is_same_v<std::remove_cvref_t<const int&>, int> || std::is_integral_v<int64_t>
std::is_trivially_copyable_v<std::array<float, 3>> && std::is_same_v<std::common_type_t<int, float>, float>
std::numeric_limits<int>::max() == INT_MAX && std::numeric_limits<unsigned>::max() == UINT_MAX
std::numeric_limits<float>::max() == FLT_MAX && std::numeric_limits<double>::epsilon() == DBL_EPSILON
std::numeric_limits<float>::infinity() == HUGE_VALF && INT64_MAX == LLONG_MAX && UINT8_MAX == 255
std::min(3, 4) == 3 && std::max(3.0f, 4.0f) == 4.0f && std::min({3, 1, 2}) == 1
std::clamp(7, 1, 5) == 5 && std::get<1>(std::tuple<int, float>{1, 2.0f}) == 2.0f
std::pair<int, char>{1, 'a'}.second == 'a' && std::tuple_size_v<std::tuple<int, int, int>> == 3
std::array<int, 4>{1, 2, 3, 4}[2] == 3 && std::array<int, 4>{}.size() == 4
std::complex<float>{1.0f, 2.0f}.imag() == 2.0f && std::optional<int>{3}.value() == 3
std::is_same_v<decltype(std::forward<int&>(std::declval<int&>())), int&>
std::is_same_v<decltype(std::move(std::declval<int&>())), int&&>
std::ratio<1, 2>::den == 2 && std::chrono::milliseconds{2}.count() == 2
std::is_same_v<decltype(std::sqrt(1.0f)), float> && std::is_same_v<decltype(std::abs(-1)), int>
std::is_same_v<decltype(std::pow(1.0f, 2)), double> && std::is_same_v<decltype(std::isnan(1.0f)), bool>
static_cast<int>(M_PI * 1000) == 3141 && CHAR_BIT == 8 && sizeof(std::ptrdiff_t) == sizeof(ptrdiff_t)
std::plus<>{}(1, 2) == 3 && std::is_same_v<std::index_sequence<0, 1>, std::make_index_sequence<2>>
offsetof(int3_like, z) == 8 && sizeof(std::byte) == 1 && std::numeric_limits<float>::digits == FLT_MANT_DIG
"""
ASSERTIONS = "struct int3_like { int x, y, z; };\n" + "".join(
    f'static_assert({fact}, "");\n' for fact in FACTS.splitlines()
)

# Calls of device code, which are no constants.
KERNEL = """
template <> struct std::hash<int3> { __device__ std::size_t operator()(int3 v) const { return v.x; } };
__global__ void kernel(float* x, uint32_t n, std::complex<float> c) {
  std::swap(x[0], x[1]);
  std::memcpy(x, x + 4, sizeof(float));
  x[2] = std::sqrt(x[0]) + std::abs(x[1]) + fmaxf(x[2], 1.0f) + INFINITY + std::floor(c.real());
  if (std::isnan(x[2]) || isinf(x[3])) printf("%u %f", n, std::atan2(x[0], x[1]));
  assert(n > 0);
  x[3] = std::hash<int3>{}(int3{1, 2, 3}) + std::reduce(x, x + 4);
}
"""


def refusal(source: TranslationUnit, compiler: Nvrtc | None = None) -> str:
    with pytest.raises(CompilationError) as error:
        (compiler or nvrtc()).compile(source, [Architecture.parse("sm_90")])
    return str(error.value)


@pytest.mark.parametrize("std", ["c++17", "c++20"])
def test_names_of_std_are_those_of_libcuxx(std: str) -> None:
    facts = ASSERTIONS if std == "c++20" else ASSERTIONS.replace("remove_cvref_t<const int&>", "decay_t<int>")
    assert image(unit(INCLUDES + facts + KERNEL, std=std)).entries


@pytest.mark.host_compiler
def test_the_host_library_computes_the_same() -> None:
    host = INCLUDES.replace("#include <mdspan>\n", "").replace("#include <expected>\n", "")
    command = ["g++", "-std=c++20", "-fsyntax-only", "-xc++", "-"]
    subprocess.run(command, input=host + ASSERTIONS, text=True, check=True)


def test_every_header_of_libcuxx_has_its_standard_name() -> None:
    libcuxx = next(d / "cuda/std" for d in nvrtc().header_directories if (d / "cuda/std/cstdint").is_file())
    names = {path.name for path in libcuxx.iterdir() if re.fullmatch(r"[a-z][a-z_]*", path.name)}
    assert {name for name in HEADERS if "." not in name} == (names - OTHERS) | {"cstdio"}


def test_the_tool_chain_tests_for_none_of_them() -> None:
    """Its images would differ if it found one."""
    for directory in nvrtc().header_directories:
        for path in filter(Path.is_file, directory.rglob("*")):
            if b"__has_include" in (content := path.read_bytes()):
                tested = {include.name for include in find_includes(content).named if include.is_test}
                assert not tested & set(HEADERS), path


def test_a_header_of_the_project_comes_first(tmp_path: Path) -> None:
    (tmp_path / "cmath").write_text("#define FROM 2\n")
    source = "#include <cmath>\nstatic_assert(FROM == 2);\n__global__ void kernel() {}\n"
    assert image(unit(source, raw=(f"-I{tmp_path}",))).entries
    assert image(unit(source.replace("<cmath>", '"cmath"'), headers={"cmath": "#define FROM 2\n"})).entries


def test_own_names_in_std_come_first() -> None:
    own = "namespace std { template <class T> __device__ constexpr T min(T a, T) { return a; } }\n"
    use = "static_assert(std::min(4, 3) == 4 && std::max(4, 3) == 4);\n__global__ void kernel() {}\n"
    for text in (own + INCLUDES, INCLUDES + own):
        assert image(unit(text + use)).entries


def test_headers_that_were_read_are_dependencies(tmp_path: Path) -> None:
    source = unit("#include <climits>\n__global__ void kernel(int* x) { *x = INT_MAX; }\n")
    compiler = Nvrtc(tmp_path)
    (compiled,) = compiler.compile(source, [Architecture.parse("sm_90")])
    assert {"climits", "in_std.hpp", "cuda/std/climits"} <= compiled.trace.reads
    assert compiler.search_path(source)[-1] == STANDARD
    assert STANDARD not in compiler.search_path(unit("", std_headers=False))


def test_what_is_wrong_is_named(messages: Messages, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = "#include <functional>\nstruct A {};\nnamespace std { template <> struct hash<A> {}; }\n"
    messages(refusal(unit(inside + "__global__ void kernel() {}\n")))
    compiler = Nvrtc()
    monkeypatch.setitem(compiler.__dict__, "header_directories", [])
    use = "#include <cmath>\n#include <cstdint>\n__global__ void kernel() {}\n"
    messages(refusal(unit(use), compiler).replace(str(STANDARD), "<standard>"))
