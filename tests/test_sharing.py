"""What sources have in common at their beginning, and which of it is precompiled. No compiler is needed."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from cuda_ext.build.sharing import share_headers
from cuda_ext.build.task import Task
from cuda_ext.build.toolchain import CompilerSpec
from cuda_ext.compiler.architectures import Architecture
from cuda_ext.compiler.job import LinkJob, UnitJob
from cuda_ext.compiler.preamble import Headers, beginnings, led
from cuda_ext.compiler.reads import Resolver, looked_up, make_dependencies
from tests.device_code import unit

A, B = b"#include <a.h>\n", b'#include "b.h"\n'


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b"", [b""]),
        (b"int x;\n", [b""]),
        (A + B + b"int x;", [b"", A, A + B]),
        (b"\n\n/* one\n * two */ // three\n" + A + b"  // four\n\t" + B, [b"", A, A + B]),
        (b"#include <a.h> // why\n" + B, [b"", A, A + B]),
        (b"#include <a.h> /* why */\n" + B, [b"", A, A + B]),
        (b"#pragma once\n" + A, [b"", A]),
        (b"#  include\t<a.h>  \n", [b"", b"#  include\t<a.h>\n"]),
        (b"#include <a.h>", [b"", A]),
        (b'#include <a.h>\r\n#include "b.h"\r\nint x;\r\n', [b"", A, A + B]),
        # What comes behind could change what an include means.
        (b"#define X\n" + A, [b""]),
        (b"#if 0\n" + A + b"#endif\n", [b""]),
        (A + b"#undef X\n" + B, [b"", A]),
        (A + b"int x;\n" + B, [b"", A]),
        (b"#include NAME\n" + A, [b""]),
        (b"#include <a.h> int x;\n", [b""]),
        # A comment that goes on in the next line hides what is there.
        (b"// one \\\n" + A + b"int x;\n", [b""]),
        (b"#include <a.h> // one \\\n" + B, [b"", A]),
        (b"/* " + A + b" */\n" + B, [b"", B]),
        (b"/* never closed\n" + A, [b""]),
    ],
)
def test_beginnings_are_include_directives_alone(source: bytes, expected: list[bytes]) -> None:
    assert beginnings(source) == expected


@pytest.mark.parametrize(
    "source",
    [b"\n" * 5000, b" \n\t" * 2000, b"// a\n" * 3000, b"/* a */\n\n" * 3000, b"/* a", b"/*" * 5000, A * 2000],
)
def test_a_beginning_is_found_at_once(source: bytes) -> None:
    begin = time.perf_counter()
    beginnings(source + b"int x;")
    assert time.perf_counter() - begin < 2


# Headers in front, which many sources come to first.

X, Y, Z = b"#include <x.h>\n", b"#include <y.h>\n", b"#include <z.h>\n"
ONCE, LINE = b"#pragma once\n", b"#line 1\n"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({}, X),
        ({"x.h": ONCE}, X),
        ({"x.h": ONCE + Y, "y.h": ONCE}, Y + LINE + X),
        ({"x.h": ONCE + Y, "y.h": b"#ifndef Y\n#define Y\n#endif\n"}, X),
        ({"x.h": ONCE + Y, "y.h": ONCE + Z, "z.h": ONCE}, Z + Y + LINE + X),
        # Read twice, it would do something twice.
        ({"x.h": ONCE + Y, "y.h": b"int y;\n"}, X),
        ({"x.h": ONCE + Y, "y.h": b"#ifndef Y\n#define OTHER\n#endif\n"}, X),
        ({"x.h": ONCE + Y, "y.h": b"#ifndef Y\n#define Y\n#endif\nint y;\n"}, X),
        # In a header, it may be one that lies beside it.
        ({"x.h": ONCE + b'#include "y.h"\n', "y.h": ONCE}, X),
        # Something comes before it.
        ({"x.h": ONCE + b"#define FIRST\n" + Y, "y.h": ONCE}, X),
        ({"x.h": b"#ifndef X\n#define X\n" + Y, "y.h": ONCE}, X),
        # Headers that include each other: the text of the second comes first.
        ({"x.h": ONCE + Y, "y.h": ONCE + X}, X),
    ],
)
def test_the_first_include_is_led_by_what_it_comes_to_first(texts: dict[str, bytes], expected: bytes) -> None:
    source = X + b"int x;\n"
    assert led(source, {}, Headers(texts.get)) == expected + b"int x;\n"


def test_a_source_that_is_led_begins_with_what_leads_it() -> None:
    assert beginnings(Y + Z + LINE + X + b"int x;\n") == [b"", Y, Y + Z]


# Which of them are worthwhile.

NVRTC = CompilerSpec("nvrtc", None, None, "identity")
SM_80, SM_90 = Architecture.parse("sm_80"), Architecture.parse("sm_90")


def task(
    source: bytes,
    architecture: Architecture = SM_90,
    action: Literal["compile", "survey"] = "compile",
    compiler: CompilerSpec = NVRTC,
    **options: object,
) -> Task:
    job = UnitJob(action, unit(source + b"// The rest.", **options), architecture)
    return Task((job,), ("key",), "p.kernels", compiler)


def with_sources(*tasks: Task) -> list[tuple[Task, bytes | None]]:
    """Each with its source, where a compiler precompiles it."""
    jobs = [one.jobs[0] for one in tasks]
    return [
        (one, job.unit.source if isinstance(job, UnitJob) else None)
        for one, job in zip(tasks, jobs, strict=True)
    ]


def shared(*tasks: Task) -> list[bytes | None]:
    return [one.preamble for one in share_headers(with_sources(*tasks))]


def test_three_of_a_beginning_share_it() -> None:
    assert shared(task(A), task(A), task(A)) == [A, A, A]
    assert shared(task(A), task(A)) == [None, None]


def test_the_longest_beginning_that_enough_have_is_taken() -> None:
    assert shared(*[task(A + B)] * 3, task(A)) == [A + B] * 3 + [A]
    assert shared(*[task(A + B)] * 2, task(A)) == [A] * 3


def test_only_headers_of_others_are_worth_it() -> None:
    assert shared(*[task(b"")] * 20) == [None] * 20
    assert shared(*[task(B)] * 20) == [None] * 20
    assert shared(*[task(B + A)] * 3) == [B + A] * 3


@pytest.mark.parametrize(
    "other",
    [
        task(A, SM_80),
        task(A, action="survey"),
        task(A, std="c++20"),
        task(A, define={"X": "1"}),
        task(A, compiler=replace(NVRTC, identity="another")),
        task(B),
    ],
    ids=["architecture", "action", "standard", "macro", "compiler", "beginning"],
)
def test_what_differs_shares_nothing(other: Task) -> None:
    assert shared(task(A), task(A), other) == [None] * 3


def test_a_compiler_that_cannot_precompile_shares_nothing() -> None:
    assert [one.preamble for one in share_headers([(task(A), None)] * 3)] == [None] * 3


def test_linking_shares_nothing() -> None:
    linking = Task((LinkJob("p.kernels", (), SM_90),), ("key",), "p.kernels", NVRTC)
    assert shared(linking, task(A), task(A), task(A)) == [None, A, A, A]


def test_what_shares_has_one_affinity() -> None:
    one, other, *rest = share_headers(
        with_sources(task(A), task(A), task(A), task(b"int x;"), *[task(A, SM_80)] * 3)
    )
    assert one.affinity == other.affinity != ""
    assert [t.affinity == one.affinity for t in rest] == [True, False, False, False, False]
    assert rest[1].affinity == ""
    assert rest[2].affinity != ""


# What a compilation looked up.


def written(path: Path, text: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def names(opened: list[str], *search_path: Path, source: str = "", **headers: str) -> set[str]:
    return set(looked_up(opened, unit(source, headers=headers), search_path))


def test_headers_are_named_as_the_search_path_leads_to_them(tmp_path: Path) -> None:
    found = written(tmp_path / "two/lib/x.h")
    assert names([found], tmp_path / "one", tmp_path / "two") == {"lib/x.h"}
    assert names([found], tmp_path / "two/lib", tmp_path / "two") == {"x.h"}
    assert names([found]) == {found}


def test_a_header_that_its_name_does_not_lead_to_has_another(tmp_path: Path) -> None:
    found = written(tmp_path / "lib/detail/x.h")
    written(tmp_path / "lib/x.h")
    assert names([found], tmp_path / "lib", tmp_path / "lib/detail") == {"detail/x.h"}
    written(tmp_path / "first/detail/x.h")
    assert names([found], tmp_path / "first", tmp_path / "lib", tmp_path / "lib/detail") == {found}


def test_a_header_of_the_project_has_its_canonical_name() -> None:
    assert names(["own.cuh"], **{"own.cuh": "", "unread.cuh": ""}) == {"own.cuh"}


@pytest.mark.parametrize(
    "text", ["#if __has_include(<y.h>)", '# if __has_include("y.h")', "__has_include_next ( <y.h> )"]
)
def test_what_is_asked_about_counts(tmp_path: Path, text: str) -> None:
    assert names([], source=text) == {"?y.h"}
    assert "?y.h" in names([written(tmp_path / "x.h", text)], tmp_path)


def lead_to(name: str, *search_path: Path) -> str | None:
    def digest(path: str) -> str | None:
        return Path(path).read_text() if os.path.isfile(path) else None  # noqa: PTH113

    return Resolver(search_path, digest)(name)


def test_a_name_leads_to_the_first_of_its_headers(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert lead_to("x.h", one, two) is None
    absolute = written(two / "x.h", "second")
    assert lead_to("x.h", one, two) == "second"
    written(one / "x.h", "first")
    assert lead_to("x.h", one, two) == "first"
    assert lead_to(absolute, one, two) == "second"


def test_what_is_only_asked_about_leads_to_a_place(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    nowhere = lead_to("?x.h", one, two)
    written(two / "x.h", "text")
    second = lead_to("?x.h", one, two)
    written(two / "x.h", "other text")
    assert lead_to("?x.h", one, two) == second
    written(one / "x.h", "text")
    assert len({nowhere, second, lead_to("?x.h", one, two)}) == 3


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("a.o : a.cu\n", ["a.cu"]),
        ("a.o : a.cu \\\n    b.h \\\n  c.h\n", ["a.cu", "b.h", "c.h"]),
        (
            "a.o : with\\ space.h with\\#hash.h with$$dollar.h\n",
            ["with space.h", "with#hash.h", "with$dollar.h"],
        ),
        ("a.o :\n", []),
    ],
)
def test_prerequisites_of_a_rule(rule: str, expected: list[str]) -> None:
    assert make_dependencies(rule) == expected
