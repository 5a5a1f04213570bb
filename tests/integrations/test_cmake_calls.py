"""Calls of ``cuda_ext_add_module`` that are refused, all of them when the project is configured."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import cuda_ext
from cuda_ext.builder.scheduler.remembered_compiler import RememberedCompiler
from cuda_ext.integrations.cmake.steps import main
from tests.fixtures.cmake_projects import FILES, PYTHON_LISTS, CMakeProject
from tests.fixtures.messages import Messages

PYPROJECT = """[project]
name = "app"
version = "1"
[tool.cuda_ext.modules."app.kernels"]
sources = ["device/axpy.cu"]
[tool.cuda_ext.modules."app.others"]
sources = ["device/fill.cu"]
"""


@pytest.fixture
def project(tmp_path: Path) -> CMakeProject:
    return CMakeProject(tmp_path / "app").write({**FILES, "pyproject.toml": PYPROJECT})


Refused = Callable[..., str]


def write_call(
    project: CMakeProject, target: str, *words: str | bytes, embed: str = "incbin", machine: str = ""
) -> Path:
    """Write the arguments of a call as CMake does; return the directory of its module."""
    directory, root = project.root.with_name("build") / target, str(project.root)
    directory.mkdir(parents=True)
    facts = (target, root, root, str(directory), f"{root}/CMakeLists.txt", "", embed, "Ninja", "OFF", machine)
    given = (word if isinstance(word, bytes) else word.encode() for word in (*facts, *words))
    (directory / "arguments.txt").write_bytes(b"\x1f".join(given))
    (directory / "generated.txt").touch()
    return directory


@pytest.fixture
def refused(project: CMakeProject, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Returns the message of the step that CMake runs for a call for the target ``k`` with some words.

    ``others`` are the words of another call, for the target ``other``.
    """

    def refused(*words: str | bytes, embed: str = "incbin", others: str = "") -> str:
        own = write_call(project, "k", *words, embed=embed)
        before = [write_call(project, "other", *others.split(), embed=embed)] if others else []
        assert main(["configure", cuda_ext.__version__, str(own), "--", *map(str, before)]) == 1
        assert not (own / "module.cmake").exists()
        call, _, message = capsys.readouterr().err.partition(": ")
        assert call in [f"cuda_ext_add_module({t}) in {project.root}/CMakeLists.txt" for t in ("k", "other")]
        return message.removesuffix("\n")

    return refused


@pytest.mark.parametrize(
    "words",
    [
        "SOURCES device/*.cu",
        "NAME kernels",
        "NAME a/k",
        "NAME std.k",
        "NAME a.k SOURCES device/*.cu INCLUDE_DIRS .",
        "NAME a.k HEADERS device/*.cuh",
        "NAME a.k SOURCES dev/*.cu",
        "NAME a.k INCLUDE_DIRECTORIES inc",
        "NAME a.k EMBED_SOURCES device/*.hpp",
        "NAME a.k EMBED_SOURCES a.h",
        "NAME a.k OVERRIDE SOURCES x.cu STD c++20",
        "FROM_PYPROJECT",
        "FROM_PYPROJECT NAME a.b",
        "NAME a.k ARCHITECTURES sm_9O",
        "NAME a.k ARCHITECTURES sm_20",
        "NAME a.k OVERRIDE SOURCES device/fill.cu ARCHITECTURES sm_20",
        "NAME a.k COMPILER nvcc NVCC /nowhere/nvcc",
        "NAME a.k COMPILER nvcc LAUNCHER nowhere",
        "NAME a.k INSTANTIATE axpi<float>",
        "NAME a.k OPTIONS --expt-relaxed-constexpr",
        "NAME a.k LAUNCHER ccache",
        "NAME a.k CXX_NAMESPACE a.b",
        "NAME a.k CXX_NAMESPACE my::class",
        "NAME a.k CXX_NAMESPACE std::gpu",
        "NAME a.k CXX_NAMESPACE a PYTHON_ONLY",
        "NAME a.k EMBED objects",
        "NAME a.k EMBED object",
    ],
    ids=str,
)
def test_a_wrong_call(refused: Refused, words: str, messages: Messages) -> None:
    messages(refused(*words.split(" ")))


@pytest.mark.parametrize(("words", "given"), [("PYTHON_ONLY OFF",) * 2, ("CXX_NAMESPACE a", "CXX_NAMESPACE")])
def test_cpp_without_its_language(refused: Refused, words: str, given: str) -> None:
    answer = f"{given} is for C++, and the language CXX is not enabled; add CXX to the LANGUAGES of project()"
    assert refused("NAME", "a.k", *words.split(), embed="none") == answer


@pytest.mark.parametrize(
    ("other", "answer"),
    [
        ("NAME a.k", "other is the module a.k already; choose another NAME"),
        (
            "NAME a.b CXX_NAMESPACE x",
            "other has the C++ namespace x already; choose another CXX_NAMESPACE",
        ),
        ("NAME a.K", "differs only in upper and lower case from the module 'a.K'; rename one of them"),
        ("NAME a.k.l", "lies within the module 'a.k'; rename one of them"),
    ],
)
def test_modules_that_collide(refused: Refused, other: str, answer: str) -> None:
    assert refused("NAME", "a.k", "CXX_NAMESPACE", "x", others=other).endswith(answer)


def test_all_mistakes_are_shown_at_once(project: CMakeProject, capsys: pytest.CaptureFixture[str]) -> None:
    calls = [write_call(project, "k", "NAME", "a.k", "STD", "17"), write_call(project, "other", "sources")]
    assert main(["configure", cuda_ext.__version__, *map(str, calls), "--"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert "(k)" in first
    assert second.endswith("unknown keyword 'sources'; did you mean SOURCES?")


@pytest.mark.parametrize("character", ['"', "%", ":", ";", "<", "*", "|", "^", "`"])
def test_names_that_build_tools_do_not_accept(
    project: CMakeProject, refused: Refused, character: str
) -> None:
    name = f"device/a{character}b.cuh"
    project.write({name: "", "device/fill.cu": f'#include "{Path(name).name}"\n{FILES["device/fill.cu"]}'})
    answer = (
        f"EMBED_SOURCES: {name!r} has a control character, a backslash, or bytes that are not UTF-8; rename"
        if character in "\\\t\n"
        else f"{name!r} has the character {character!r}, which build tools do not accept in file names"
    )
    assert refused("NAME", "a.k", "EMBED_SOURCES", "device/*.cuh").startswith(answer)


def test_an_argument_in_another_encoding(refused: Refused) -> None:
    answer = "an argument has the byte 0xf6, which is not UTF-8; save the CMakeLists.txt as UTF-8"
    assert refused("NAME", "a.k", "DEFINE", "größe".encode("latin-1")) == answer


def test_a_project_without_the_table(project: CMakeProject, refused: Refused) -> None:
    (project.root / "pyproject.toml").write_text("[project]\nname = 'a'\n")
    assert "pyproject.toml has no [tool.cuda_ext] table" in refused("FROM_PYPROJECT")


def test_headers_alone_need_no_compiler(project: CMakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RememberedCompiler, "open", lambda *_: pytest.fail("a compiler is opened"))
    directory = write_call(project, "k", "NAME", "a.k", "EMBED_SOURCES", "device/*.cuh")
    assert main(["configure", cuda_ext.__version__, str(directory), "--"]) == 0
    assert main(["build", str(directory), "k", str(directory / "s"), str(directory / "s.d")]) == 0
    assert (directory / "include" / "a" / "k.h").is_file()


# What CMake itself has to check, and how it shows the message.


@pytest.mark.parametrize(
    ("module", "answer"),
    [
        ("cuda_ext_add_module(k SOURCES device/*.cu)", "cuda_ext_add_module(k): has no NAME; add the name"),
        (
            "add_library(k INTERFACE)\ncuda_ext_add_module(k NAME a.k)",
            "cuda_ext_add_module(k): a target k exists already; choose",
        ),
        (
            "project(p LANGUAGES CXX)\nadd_custom_target(k_generate)\ncuda_ext_add_module(k NAME a.k)",
            "cuda_ext_add_module(k): a target k_generate exists already; choose",
        ),
        (
            "cuda_ext_add_module(test NAME a.k)",
            "cuda_ext_add_module(test): the target name test is reserved;",
        ),
        ("cuda_ext_add_module()", "cuda_ext_add_module Function invoked with incorrect arguments"),
        ("cuda_ext_add_module(a::k NAME a.k)", "cuda_ext_add_module(a::k): invalid target name; use letters"),
        ('cuda_ext_add_module("" NAME a.k)', "cuda_ext_add_module(): invalid target name; use letters"),
        (
            "cuda_ext_add_module(k NAME a.k)\ncuda_ext_add_module(other NAME a.k)",
            "cuda_ext_add_module(other): k is the module a.k already; choose another NAME",
        ),
    ],
)
def test_the_line_of_a_wrong_call(project: CMakeProject, module: str, answer: str) -> None:
    project.write({"CMakeLists.txt": PYTHON_LISTS + module})
    output = project.configure(status=1)
    assert answer in re.sub(r" in \S+/CMakeLists\.txt(:\d+)?: ", ": ", " ".join(output.split()))
    line = (PYTHON_LISTS + module).count("\n") + 1
    assert re.search(rf"CMakeLists\.txt:{line}(:\s| \()", output)
    assert "Traceback" not in output


def test_dependencies_that_nothing_makes(project: CMakeProject) -> None:
    call = (
        'cuda_ext_add_module(k NAME a.k DEPENDS CMakeLists.txt later "[[a]]" {})\nadd_custom_target(later)\n'
    )
    project.write({"CMakeLists.txt": PYTHON_LISTS + call.format("erlier"), "[[a]]": ""})
    answer = "DEPENDS: 'erlier' is neither a target, nor a file, nor the output of a command; correct it"
    assert f"cuda_ext_add_module(k) in {project.root}/CMakeLists.txt: {answer}" in project.refused()
