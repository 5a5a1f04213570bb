"""Structures that kernels take by value: the layouts that a build finds are those of the host's compiler."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.compiler.signatures import attempt
from cuda_ext.compiler.signatures.layouts import NO_MEMBERS
from cuda_ext.compiler.translation_unit import Compiler
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.structures import Structure
from tests.compiler.structure_cases import KNOWN, OPAQUE
from tests.fixtures.device_code import nvcc, nvrtc, signatures, unit

CASES = {**KNOWN, **OPAQUE}
# What g++ does not know.
HOST = (
    "#define __host__\n#define __device__\n#define __align__(n) alignas(n)\n#define __restrict__ __restrict\n"
)
# The sign of an enumeration's values, as a field has it.
SIGN = """template <class T, bool> constexpr const char* sign = "";
template <class T> constexpr const char* sign<T, true> =
    std::is_signed_v<std::underlying_type_t<T>> ? "enum" : "unsigned";
"""


def source_of_all() -> str:
    """Return a source with each case in a namespace of its own, and a kernel that takes the structure."""
    parts = []
    for number, (type_, text) in enumerate(CASES.values()):
        kernel = f"using tested = {type_};\n__global__ void k({type_} p, {type_}* more) {{}}"
        parts.append(f"namespace case_{number} {{\n{text}\n{kernel}\n}}")
    return "\n".join(parts)


@pytest.fixture(scope="module", params=[pytest.param("nvrtc"), pytest.param("nvcc", marks=pytest.mark.slow)])
def found(request: pytest.FixtureRequest) -> dict[str, Structure]:
    """The structure of each case, by title."""
    compiler: Compiler = nvrtc() if request.param == "nvrtc" else nvcc()
    (compiled,) = compiler.compile(unit(source_of_all()), [Architecture.parse("compute_90")])
    signatures_ = compiled.signatures
    structures = {}
    for number, title in enumerate(CASES):
        (kernel,) = (k for k in signatures_.kernels.values() if k.expression == f"case_{number}::k")
        structures[title] = signatures_.structures[kernel.parameters[0].type]
        nested = (field.type for field in structures[title].fields if field.kind == "struct")
        assert all(signatures_.structures[name].fields for name in nested), title
    return structures


def test_layouts_are_those_of_the_host_compiler(found: dict[str, Structure], tmp_path: Path) -> None:
    lines, expected = [], []
    for number, title in enumerate(KNOWN):
        structure = found[title]
        assert not structure.obstacle, (title, structure.obstacle)
        own = f"case_{number}::tested"
        lines.append(f'printf("{number} %zu %zu\\n", sizeof({own}), alignof({own}));')
        expected.append(f"{number} {structure.size} {structure.alignment}")
        for field in structure.fields:
            size = f"sizeof((({own}*)0)->{field.name})"
            # Of others, compilers choose the type.
            is_decided = title == "enumerations"
            sign = f"sign<std::remove_all_extents_t<decltype({own}::{field.name})>, {is_decided:d}>"
            values = f"offsetof({own}, {field.name}), {size}, {sign}"
            lines.append(f'printf("{field.name} %zu %zu %s\\n", {values});')
            expected.append(f"{field.name} {field.offset} {field.size} {field.kind if is_decided else ''}")
    program = tmp_path / "layouts.cpp"
    includes = "".join(f"#include <{name}>\n" for name in ("cstddef", "cstdio", "type_traits"))
    text = f"{includes}{HOST}{SIGN}{source_of_all().replace('__global__', '')}"
    program.write_text(f"{text}\nint main() {{\n" + "\n".join(lines) + "\n}\n")
    binary = tmp_path / "layouts"
    subprocess.run(["g++", "-std=c++17", "-w", program, "-o", binary], check=True)
    printed = subprocess.run([binary], capture_output=True, text=True, check=True).stdout
    assert printed.split("\n")[:-1] == expected


def test_each_member_is_found(found: dict[str, Structure]) -> None:
    names = {title: " ".join(field.name for field in found[title].fields) for title in KNOWN}
    assert names["several declarators"] == "a b c d e f"
    assert names["anonymous member"] == "a b c d"
    assert names["two bases"] == "a b c"
    assert names["same names"] == "y z"
    assert names["two under conditions"] == "b c"
    assert names["macro for members"] == "a b"
    assert names["constants and types"] == "kind t i"
    kinds = {str(field): field.kind for field in found["pointers"].fields}
    assert set(kinds.values()) == {"pointer"}
    assert list(map(str, found["arrays"].fields)) == [
        "char a[3]",
        "int b[2][3]",
        "const float* c[4]",
        "bool d[5]",
    ]


def test_members_of_a_member_without_a_named_type_are_known() -> None:
    source = "struct P { int n; struct { short a; float b; } x[2]; };\n__global__ void k(P p) {}"
    structures = signatures(source).structures
    assert {name: [f.name for f in each.fields] for name, each in structures.items()} == {
        "P": ["n", "x"],
        "decltype(P::x)": ["a", "b"],
    }


@pytest.mark.parametrize(
    ("compiler", "architecture"), [(nvrtc, "sm_90"), pytest.param(nvcc, "compute_90", marks=pytest.mark.slow)]
)
def test_questions_about_members_leave_no_trace_in_images(
    monkeypatch: pytest.MonkeyPatch, compiler: Callable[[], Compiler], architecture: str
) -> None:
    source = f"{KNOWN['nested'][1]}\n__global__ void k(P p, int* x) {{ *x = p.inner.a; }}"
    targets = [Architecture.parse(architecture)]
    (asked,) = compiler().compile(unit(source), targets)
    monkeypatch.setattr(attempt, "members_of", lambda _: NO_MEMBERS)
    (plain,) = compiler().compile(unit(source), targets)
    assert (len(asked.signatures.structures), len(plain.signatures.structures)) == (2, 0)
    assert asked.data == plain.data


@pytest.mark.parametrize("title", OPAQUE)
def test_a_structure_that_is_not_known_completely_is_opaque(found: dict[str, Structure], title: str) -> None:
    assert found[title].fields == ()
    assert re.fullmatch(
        r".*(unknown member|private|shares its bytes|no members|no member|hidden).*", found[title].obstacle
    )
