"""The header names that a compilation depends on, and the files they resolve to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cuda_ext.facts.architecture import Architecture
from cuda_ext.toolchain.nvrtc import Nvrtc
from cuda_ext.toolchain.programs.header_dependencies import (
    Resolver,
    header_names,
    make_dependencies,
    reachable_headers,
)
from cuda_ext.toolchain.programs.recorded_commands import recorded_commands
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
    "text", ["#if __has_include(<y.h>)", '# if __has_include("y.h")', "#elif __has_include_next ( <y.h> )"]
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


def reached(directory: Path, source: str, define: dict[str, str] | None = None, *raw: str) -> set[str]:
    sample = unit(source, define=define or {}, raw=raw)
    paths = reachable_headers(sample, [directory / "one", directory / "two"])
    return {Path(path).relative_to(directory).as_posix() for path in paths}


def test_headers_are_reached_under_any_condition(tmp_path: Path) -> None:
    written(tmp_path / "one/a.h", '#if 0\n#  include /**/ "detail/b.h"\n#endif\n#include <none.h>\n')
    written(tmp_path / "one/detail/b.h", '#include "../a.h"\n%: include <c.h>\n')
    written(tmp_path / "two/c.h", "#include <c.h>\n")
    assert reached(tmp_path, "#include <a.h>\n") == {"one/a.h", "one/detail/b.h", "two/c.h"}


def test_a_name_may_lead_beside_the_header_or_along_the_search_path(tmp_path: Path) -> None:
    written(tmp_path / "two/lib/a.h", '#include "b.h"\n')
    written(tmp_path / "two/lib/b.h")
    written(tmp_path / "one/b.h")
    assert reached(tmp_path, "#include <lib/a.h>") == {"two/lib/a.h", "two/lib/b.h", "one/b.h"}


def test_every_way_to_write_a_name_is_followed(tmp_path: Path) -> None:
    outside = written(tmp_path / "outside/d.h")
    written(tmp_path / "one/lib/a.h", f'#include_next <lib/a.h>\n#include \\\n <c.h>\n#include "{outside}"\n')
    written(tmp_path / "two/lib/a.h")
    written(tmp_path / "one/c.h")
    written(tmp_path / "two/c.h")
    found = {"one/lib/a.h", "two/lib/a.h", "one/c.h", "outside/d.h"}
    assert reached(tmp_path, "#include \\\n<lib/a.h>") == found


def test_names_that_are_macros_are_reached(tmp_path: Path) -> None:
    written(tmp_path / "one/a.h", "#include NAME\n#include GIVEN\n#include OPTION\n")
    for name in ("named.h", "given.h", "option.h", "unrelated.h"):
        written(tmp_path / "one" / name)
    source = "#define NAME <named.h>\n#include <a.h>"
    assert reached(tmp_path, source, {"GIVEN": "<given.h>"}, '-DOPTION="option.h"') == {
        "one/a.h", "one/named.h", "one/given.h", "one/option.h",
    }  # fmt: skip


def test_names_with_macros_in_them_lead_to_all_files_that_end_alike(tmp_path: Path) -> None:
    written(tmp_path / "one/lib/adl.h", "#define HEADER <LIB_ROOT/detail/sort.h>\n#include HEADER\n")
    written(tmp_path / "one/lib/cpp/detail/sort.h")
    written(tmp_path / "one/lib/omp/detail/sort.h")
    written(tmp_path / "one/lib/omp/detail/scan.h")
    written(tmp_path / "one/other/detail/sort.h")
    found = {"one/lib/adl.h", "one/lib/cpp/detail/sort.h", "one/lib/omp/detail/sort.h"}
    assert reached(tmp_path, "#include <lib/adl.h>") == found


def test_a_changed_header_is_read_again(tmp_path: Path) -> None:
    header = Path(written(tmp_path / "one/a.h"))
    written(tmp_path / "one/b.h")
    assert reached(tmp_path, "#include <a.h>") == {"one/a.h"}
    header.write_text("#include <b.h>\n")
    assert reached(tmp_path, "#include <a.h>") == {"one/a.h", "one/b.h"}


@pytest.mark.parametrize("header", ["cub/block/block_reduce.cuh", "cuda/std/array", "mma.h", "cuda_bf16.h"])
def test_all_headers_that_nvrtc_opens_are_reached(header: str, tmp_path: Path) -> None:
    compiler = Nvrtc(tmp_path)
    sample = unit(f"#include <{header}>\n__global__ void k() {{}}\n")
    (image,) = compiler.compile(sample, [Architecture.parse("compute_90")])
    search_path = compiler.search_path(sample)
    reached = header_names(reachable_headers(sample, search_path), sample, search_path)
    assert len(image.trace.reads) > 3
    assert image.trace.reads <= reached


@pytest.mark.parametrize("timed", [False, True])
def test_what_is_not_compiled_to_ltoir_is_not_traced(timed: bool, tmp_path: Path) -> None:
    """A time trace changes the code of some kernels, and nothing that observes may."""
    sample = unit("#include <cuda/std/array>\n__global__ void k() {}\n", relocatable=True)
    with recorded_commands() as commands:
        (image,) = Nvrtc(tmp_path, timed=timed).compile(sample, [Architecture.parse("sm_90")])
    assert not [command for command in commands if "time-trace" in command]
    assert any(name.endswith("cuda/std/array") for name in image.trace.reads)
    assert bool(image.trace.spans) == timed
    sample = unit("#include <cuda/std/array>\n__global__ void k() {}\n")
    with recorded_commands() as commands:
        Nvrtc(tmp_path).compile(sample, [Architecture.parse("sm_90")])
    assert [command for command in commands if "time-trace" in command]
