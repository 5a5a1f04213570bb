"""Errors of compilers with the remedy: the missing header, the key to set, the line that leads there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.compiler.translation_unit import Compiler, TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from tests.fixtures.device_code import nvcc, nvrtc, unit

COMPILERS = [nvrtc, pytest.param(nvcc, marks=pytest.mark.host_compiler)]
BODY = "".join(f"  p[{i}] = n + {i};\n" for i in range(40))


def refusal(source: TranslationUnit, compiler: Callable[[], Compiler] = nvrtc) -> list[str]:
    """The lines of the error."""
    with pytest.raises(CompilationError) as error:
        compiler().compile(source, [Architecture.parse("sm_90")])
    return str(error.value).splitlines()


def test_a_type_without_its_header_is_answered_with_the_header() -> None:
    source = f"template <class T> struct S {{}};\n__global__ void k(uint32_t* p, int64_t n) {{\n{BODY}}}\n"
    lines = refusal(unit(source))
    assert lines[0] == 'device/unit.cu(2): error: identifier "uint32_t" is undefined'
    assert lines[-1] == "uint32_t, int64_t: add #include <cuda/std/cstdint>"
    assert len(lines) <= 20


def test_the_header_of_a_member_of_std_is_named() -> None:
    first, *_, last = lines = refusal(unit("__global__ void k(std::uint32_t* p) { *p = 1; }"))
    assert first == 'device/unit.cu(1): error: namespace "std" has no member "uint32_t"'
    assert last.startswith("std::uint32_t: add the standard header that declares it, such as <cstdint>")
    assert len(lines) == 4  # none of the errors that follow from it


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_header_of_half_is_named(compiler: Callable[[], Compiler]) -> None:
    lines = refusal(unit("__global__ void k(half* p) { *p = 1; }"), compiler)
    assert lines[-1] == "half: add #include <cuda_fp16.h>"


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_constexpr_function_of_the_host_names_the_setting(compiler: Callable[[], Compiler]) -> None:
    functions = "".join(f"constexpr int f{i}(int x) {{ return x + {i}; }}\n" for i in range(30))
    calls = " + ".join(f"f{i}(*p)" for i in range(30))
    source = f"{functions}__global__ void k(int* p) {{ *p = {calls}; }}\n"
    lines = refusal(unit(source), compiler)
    assert (
        "set relaxed-constexpr = true, or write __host__ __device__ before constexpr functions" in lines[-1]
    )
    assert f"... and {28 if compiler is nvrtc else 29} more messages" in lines  # nvcc's are all of one line
    assert len(lines) <= 20
    compiler().compile(unit(source, relaxed_constexpr=True), [Architecture.parse("sm_90")])


@pytest.mark.parametrize("compiler", COMPILERS)
def test_all_missing_headers_are_named_at_once(compiler: Callable[[], Compiler]) -> None:
    own = {"own.cuh": "#pragma once\n#include <third.h>\n"}
    text = '#include <first.h>\n#include "deep/second.cuh"\n#include "own.cuh"\n__global__ void k() {}\n'
    lines = refusal(unit(text, name="unit.cu", headers=own), compiler)
    places = (
        ["unit.cu(1)", "unit.cu(2)", "own.cuh(2)"]
        if compiler is nvrtc
        else ["unit.cu:1:", "unit.cu:2:", "own.cuh:2:"]
    )
    names = ["first.h", "deep/second.cuh", "third.h"]
    remedies = [line for line in lines if "is neither in the include directories" in line]
    assert len(remedies) == 3
    for place, name, line in zip(places, names, remedies, strict=True):
        assert line.startswith(place)
        assert f'"{name}"' in line
    assert len(lines) <= 20


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_source_with_many_missing_headers_has_a_short_error(compiler: Callable[[], Compiler]) -> None:
    text = "".join(f"#include <absent_{i}.h>\n" for i in range(100)) + "__global__ void k() {}\n"
    assert len(refusal(unit(text), compiler)) <= 20


def test_the_line_of_the_project_is_named_that_leads_to_a_missing_header(tmp_path: Path) -> None:
    files = {
        "lib/a.h": "#include <lib/b.h>\n",
        "lib/b.h": "#pragma once\n#include <absent.hpp>\n",
        "lib/c.h": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    own = {"own.cuh": "#pragma once\n#include <lib/c.h>\n\n#include <lib/a.h>\n"}
    text = '#include "own.cuh"\n__global__ void k() {}\n'
    lines = refusal(unit(text, name="unit.cu", headers=own, raw=(f"-I{tmp_path}",)))
    assert lines[-1].startswith(f'{tmp_path}/lib/b.h(2) (which own.cuh(4) includes): "absent.hpp" is neither')


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_header_outside_of_the_project_is_not_written(
    compiler: Callable[[], Compiler], tmp_path: Path
) -> None:
    lines = refusal(unit('#include "../../absent.h"\n__global__ void k() {}\n'), compiler)
    assert "absent.h" in lines[0]
