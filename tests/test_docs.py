"""The documentation: the site is built without a warning, and every block of code in it is run.

docs/about.md tells what each kind of block means. README.md's blocks are checked as far as they stand alone.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest

import cuda_ext
from cuda_ext.build import cpp
from cuda_ext.build.config import parse_table
from cuda_ext.integrations.cmake.arguments import parse_arguments
from tests.docs_pages import Block, read_blocks
from tests.docs_stories import DOCS, NOT_RUN, Story
from tests.packages_fixtures import CHECKOUT, run
from tests.projects import build, write_project

PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
# Made by scripts from what tests hold already; they show no code.
GENERATED = {"reference/configuration.md", "reference/messages.md"}
BLOCKS = {page: read_blocks(DOCS / page) for page in PAGES if page not in GENERATED}
# Done in an environment with nothing in it: what is read first, and what takes another CUDA than tests do.
FROM_NOTHING = ["start.md", "how-to/drivers.md"]
TOLD = [page for page, blocks in BLOCKS.items() if blocks and page not in FROM_NOTHING]
TAKES_CXX = {page for page in TOLD if any(b.language in ("c", "cmake", "cpp") for b in BLOCKS[page])}
LANGUAGES = {"c", "cmake", "console", "cpp", "cuda", "meson", "pycon", "python", "toml", "yaml"}
WITH_A_NAME = {"c", "cpp", "meson", "yaml"}  # of which no part stands alone

pytestmark = pytest.mark.xdist_group("docs")


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The directory of a driver without a GPU; ``None`` where there is a GPU."""
    if cuda_ext.gpu_available():
        return None
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not sys.platform.startswith("linux") or compiler is None:
        pytest.skip("the driver without a GPU takes Linux and a C compiler")
    directory = tmp_path_factory.mktemp("docs_driver")
    source = CHECKOUT / "tests" / "docs_driver.c"
    options = ("-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", directory / "libcuda.so.1")
    subprocess.run([compiler, *options, source, "-ldl"], check=True)
    return directory


@pytest.mark.host_compiler
@pytest.mark.parametrize("page", TOLD)
def test_what_a_page_says_is_so(page: str, driver: Path | None, tmp_path: Path) -> None:
    if page in TAKES_CXX and not (shutil.which("g++") and shutil.which("cmake")):
        pytest.skip("takes g++ and CMake")
    story = Story(tmp_path, driver)
    try:
        story.tell(BLOCKS[page])
    finally:
        story.end()
    if story.skipped:
        pytest.skip(f"all blocks of {page} but these: {'; '.join(story.skipped)}")


@pytest.mark.network
@pytest.mark.host_compiler
@pytest.mark.parametrize("page", FROM_NOTHING)
def test_it_is_so_in_a_new_environment(
    page: str, driver: Path | None, cuda_ext_wheel: Path, tmp_path: Path
) -> None:
    story = Story(tmp_path, driver, cuda_ext_wheel)
    story.tell(BLOCKS[page])
    assert not story.skipped


@pytest.mark.parametrize("page", BLOCKS)
def test_every_block_is_of_a_kind_that_is_run(page: str) -> None:
    for block in BLOCKS[page]:
        assert block.language in LANGUAGES, f"{block}: nobody runs the language {block.language!r}"
        assert block.file or block.language not in WITH_A_NAME, f"{block}: needs the name of a file"


def test_commands_that_are_not_run_are_still_there() -> None:
    text = "".join(
        block.text for blocks in BLOCKS.values() for block in blocks if block.language == "console"
    )
    for command in NOT_RUN:
        assert f"$ {command}" in text, f"no page says {command!r}; take it from NOT_RUN"


# The site


class _Page(HTMLParser):
    """The anchors of a page, where it links to, and what a browser loads for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") in ("stylesheet", "preload", "icon", "preconnect"):
            self.loads.append(found["href"])
        elif "src" in found:
            self.loads.append(found["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with warnings as errors, and without a network: every look-up of a host fails."""
    for name in ("furo", "myst_parser", "sphinx", "sphinx_copybutton"):
        pytest.importorskip(name, reason=f"{name} builds the site: it comes with the extra docs")
    directory = tmp_path_factory.mktemp("site")
    sphinx = ("-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", directory / "doctrees")
    offline = (
        "import runpy, socket, sys\n"
        "def refused(*_, **__): raise OSError('building the site takes no network')\n"
        "socket.getaddrinfo = socket.socket.connect = refused\n"
        "runpy.run_module('sphinx', run_name='__main__', alter_sys=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", offline, *sphinx[2:], DOCS, directory / "html"],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return directory / "html"


def _pages(site: Path) -> Iterator[tuple[Path, _Page]]:
    for file in sorted(site.rglob("*.html")):
        yield file, _Page(file.read_text(encoding="utf-8"))


def test_the_site_has_every_page(site: Path) -> None:
    assert {Path(page).with_suffix(".html").as_posix() for page in PAGES} <= {
        file.relative_to(site).as_posix() for file in site.rglob("*.html")
    }


def test_links_within_the_site_lead_somewhere(site: Path) -> None:
    pages = dict(_pages(site))
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or link == "#":
                continue
            target = Path(os.path.normpath(file.parent / unquote(parts.path))) if parts.path else file
            assert target.is_file(), f"{file.relative_to(site)} links to {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, f"{file.relative_to(site)}: {link}"


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    for file, page in _pages(site):
        for resource in page.loads:
            assert not urlsplit(resource).netloc, f"{file.relative_to(site)} loads {resource}"
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_all_commands_and_errors_have_an_entry(site: Path) -> None:
    from cuda_ext.cli.commands import commands
    from cuda_ext.errors import __all__ as errors

    reference = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    for name in commands.commands:
        assert f"cuda-ext {name}" in re.sub(r"<[^>]+>", "", reference)
    anchors = _Page((site / "reference" / "python.html").read_text(encoding="utf-8")).anchors
    assert {f"cuda_ext.errors.{name}" for name in errors} <= anchors
    assert {f"cuda_ext.{name}" for name in cuda_ext.__all__ if name != "errors"} <= anchors


def test_all_environment_variables_are_documented() -> None:
    text = (DOCS / "reference" / "environment.md").read_text(encoding="utf-8")
    from cuda_ext.cli.doctor.environment import VARIABLES

    documented = {
        name for line in re.findall(r"^`.*`$", text, re.MULTILINE) for name in re.findall(r"\w+", line)
    }
    assert documented == {variable.name for variable in VARIABLES}


def test_names_of_the_cpp_reference_are_those_of_the_headers() -> None:
    headers = "".join(
        f.read_text(encoding="utf-8") for f in (CHECKOUT / "cuda_ext" / "include").rglob("*.hpp")
    )
    text = (DOCS / "reference" / "cpp.md").read_text(encoding="utf-8")
    known = set(re.findall(r"\w+", headers))
    for word in re.findall(r"`(?:cuda_ext::)?((?:try_)?[a-z_]+|[A-Z]\w+)(?:\(\)|<[^`]*>)?`", text):
        outside = {
            "cuda_ext",
            "cuda_ext_library",
            "cuda_ext_module",
            "fill",
            "noexcept",
            "nullptr",
            "dim3",
            "bool",
            "CUresult",
            "JIT",
            "sources",
            "headers",
        }
        assert word in known | outside, word


# README.md

README = CHECKOUT / "README.md"
# What fragments of Python take as given there.
GIVEN = ("array", "batches", "cuda_ext", "kernels", "n", "np", "numpy", "partial", "s", "torch", "x", "y")
# What fragments of C++ take as given: arguments, and kernels of these names.
CPP_GIVEN = """
#include <cstdio>
inline int n; inline float *x, *y, *sums;
inline cuda_ext::Dim grid{1}, block{1}; inline cuda_ext::Stream stream;
"""
CPP_KERNELS = """
#include <cuda_fp16.h>
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {}
__global__ void fill(float* x, float value) {}
namespace blockwise { template <class T, int BLOCK> __global__ void reduce(int n, const T* x, T* sums) {} }
__constant__ float weights[9];
"""


def _readme(*languages: str) -> list[Block]:
    found = [_named(block) for block in read_blocks(README)]
    return [block for block in found if block.language in languages]


def _named(block: Block) -> Block:
    """In the README the first line of a file is a comment with its name."""
    name = re.match(r"(?:#|//) ([\w./-]+\.\w+)\n", block.text)
    return dataclasses.replace(block, file=name[1]) if name else block


def test_blocks_of_the_readme_are_of_kinds_that_are_checked() -> None:
    known = {"cmake", "console", "cpp", "cuda", "pycon", "python", "sh", "toml"}
    assert {block.language for block in read_blocks(README)} <= known


def test_tables_of_the_readme_are_right() -> None:
    for block in _readme("toml"):
        document = tomllib.loads(block.text)
        if "tool" in document:
            parse_table(document["tool"]["cuda_ext"], "my_package.kernels")


def test_python_of_the_readme_has_no_name_that_nobody_gives() -> None:
    for block in _readme("python"):
        given = f"{', '.join(GIVEN)} = {', '.join('0' for _ in GIVEN)}\n"
        ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821,E9", "-"]
        done = subprocess.run(ruff, input=given + block.text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block}\n{done.stdout}"
        for name in re.findall(r"\bcuda_ext\.(\w+)", block.text):
            assert hasattr(cuda_ext, name), f"{block}: cuda_ext.{name}"


def test_cmake_of_the_readme_is_right(tmp_path: Path) -> None:
    for block in _readme("cmake"):
        for call in re.findall(r"cuda_ext_add_module\((.*?)\)", block.text, re.DOTALL):
            target, *words = shlex.split(call)
            assert parse_arguments(words, target, tmp_path, tmp_path).name or "FROM_PYPROJECT" in words


def test_commands_of_the_readme_exist() -> None:
    from cuda_ext.cli.commands import commands

    for block in _readme("console", "sh"):
        for line in block.text.splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] == ["python"] and words[1].startswith("scripts/"):
                assert (CHECKOUT / words[1]).is_file(), f"{block}: {line}"
            elif words[:1] == ["cuda-ext"]:
                _parsed(commands, words[1:], f"{block}: {line}")


def _parsed(command: click.Command, words: list[str], what: str) -> None:
    """Options and arguments are those of the command; nothing is run."""
    if isinstance(command, click.Group):
        assert words, what
        below = command.commands.get(words[0])
        assert below, what
        _parsed(below, words[1:], what)
        return
    command.make_context(what, words, resilient_parsing=True)
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= options, what


@pytest.mark.host_compiler
def test_the_readme_builds_and_shows_what_it_says(driver: Path | None, tmp_path: Path) -> None:
    story = Story(tmp_path, driver)
    files = [block for block in _readme("cuda", "toml") if block.file]
    fragments = [block for block in _readme("cuda") if not block.file]
    init = Block(README, 0, "python", "", "src/my_package/__init__.py")
    install = Block(README, 0, "console", "$ pip install .\n")
    story.tell([*files, init, install, *fragments])
    imported = Block(README, 0, "python", "import cuda_ext\nfrom my_package import kernels\n")
    sizes = [dataclasses.replace(b, text=re.sub(r"\d+\.\d+ kB", "... kB", b.text)) for b in _readme("pycon")]
    story.tell([imported, *sizes])


@pytest.mark.host_compiler
def test_cpp_of_the_readme_compiles(tmp_path: Path) -> None:
    if not shutil.which("g++"):
        pytest.skip("takes g++")
    table = (
        '[tool.cuda_ext.modules."app.kernels"]\narchitectures = ["sm_90"]\njit = false\n'
        'instantiate = ["axpy<float>", "blockwise::reduce<float, 256>"]\n'
    )
    package = build(write_project(tmp_path / "project", table, {"device/kernels.cu": CPP_KERNELS}))[
        "app.kernels"
    ]
    rendered = cpp.render(package, (), tmp_path, "literal")
    for name, content in rendered.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    parts = ["#include <app/kernels.h>", CPP_GIVEN]
    for number, block in enumerate(_readme("cpp")):
        code = re.sub("(?m)^#include .*$", "", block.text)
        parts.append(f'void fragment_{number}() {{\n#line {block.line} "README.md"\n{code}}}')
    source = tmp_path / "readme.cpp"
    source.write_text("\n".join(parts), encoding="utf-8")
    include = ("-I", tmp_path / "include", "-I", Path(cuda_ext.__file__).parent / "include")
    options = ("-std=c++17", "-fsyntax-only", "-Wall", "-Werror=return-type")
    run("g++", *options, *include, source)
