"""The header names that a compilation depends on, and the files they resolve to. No compiler is needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cuda_ext.toolchain.programs.header_dependencies import Resolver, header_names, make_dependencies
from tests.fixtures.device_code import unit


def written(path: Path, text: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def names(opened: list[str], *search_path: Path, source: str = "", **headers: str) -> set[str]:
    return set(header_names(opened, unit(source, headers=headers), search_path))


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
    directories = tmp_path / "first", tmp_path / "lib", tmp_path / "lib/detail"
    assert names([found], *directories) == {found, "?detail/x.h", "?x.h"}


def test_a_directory_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "one/x.h").mkdir(parents=True)
    found = written(tmp_path / "two/x.h")
    assert names([found], tmp_path / "one", tmp_path / "two") == {"x.h"}


def test_a_header_of_the_project_has_its_canonical_name() -> None:
    assert names(["own.cuh"], **{"own.cuh": "", "unread.cuh": ""}) == {"own.cuh"}


@pytest.mark.parametrize(
    "text", ["#if __has_include(<y.h>)", '# if __has_include("y.h")', "__has_include_next ( <y.h> )"]
)
def test_headers_that_are_only_looked_up_count(tmp_path: Path, text: str) -> None:
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


def test_headers_that_are_only_looked_up_count_by_their_path(tmp_path: Path) -> None:
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
