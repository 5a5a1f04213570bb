"""The documentation: the site builds without warnings, and every block of code in it runs.

docs/about.md tells what each kind of block means. README.md is a page too.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest
import yaml

import cuda_ext
from tests.fixtures.cmake_projects import AXPY, FILL, INDEX, LISTS, CMakeProject
from tests.fixtures.docs_pages import Block, commands, project_files, read_blocks, unused_files
from tests.fixtures.docs_stories import DOCS, NOT_RUN, Story
from tests.fixtures.environments import CHECKOUT

pytestmark = pytest.mark.xdist_group("documentation")

README = CHECKOUT / "README.md"
PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
# Generated from what tests hold already; it shows no code.
GENERATED = {"reference/configuration.md"}
BLOCKS = {page: read_blocks(DOCS / page) for page in PAGES if page not in GENERATED}
# Done in an environment with nothing in it: what is read first, and what takes another CUDA than tests do.
FROM_NOTHING = ["tutorials/start.md", "how-to/drivers.md"]
# Pages whose tools take many seconds. Tests in builder/ have the same: test_triton, test_cutile and
# test_tile_cpp kernels, scheduler/test_named_executor clusters, and sources/test_compilation_database clangd.
# Those in integrations/ have CMake.
SLOW = {
    *("how-to/cluster.md", "how-to/cmake.md", "how-to/cutile.md", "how-to/editors.md", "how-to/tile.md"),
    *("how-to/from-nvcc-in-cmake.md", "how-to/triton.md", "tutorials/from-triton.md"),
}
RUN = [page for page, blocks in BLOCKS.items() if blocks and page not in FROM_NOTHING]
with_each_page = pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else []) for page in RUN]
)
TAKES_CXX = {page for page in RUN if any(b.language in ("c", "cmake", "cpp") for b in BLOCKS[page])}
LANGUAGES = {"c", "cmake", "console", "cpp", "cuda", "json", "meson", "pycon", "python", "toml", "yaml"}
WITH_A_NAME = {"c", "cpp", "json", "meson", "yaml"}  # of which no part stands alone

# What is made once is made in one process, the wheel of this checkout in that of all tests that take it.


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The directory of a driver without a GPU; ``None`` where there is a GPU."""
    if cuda_ext.gpu_available():
        return None
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not sys.platform.startswith("linux") or compiler is None:
        pytest.skip("the driver without a GPU takes Linux and a C compiler")
    directory = tmp_path_factory.mktemp("docs_driver")
    source = CHECKOUT / "tests" / "fixtures" / "docs_driver.c"
    options = ("-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", directory / "libcuda.so.1")
    subprocess.run([compiler, *options, source, "-ldl"], check=True)
    return directory


@pytest.fixture(scope="module")
def run_page(driver: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """Runs a page once; returns the blocks that cannot be run on this machine, with the reasons."""

    @functools.cache
    def run_page(page: str) -> list[str]:
        if page in TAKES_CXX and not (shutil.which("g++") and shutil.which("cmake")):
            pytest.skip("takes g++ and CMake")
        story = Story(tmp_path_factory.mktemp("page"), driver)
        try:
            story.run(BLOCKS[page])
        finally:
            story.end()
        return story.skipped

    return run_page


@pytest.mark.host_compiler
@with_each_page
def test_the_examples_of_a_page_work(page: str, run_page: Callable[[str], list[str]]) -> None:
    run_page(page)


@pytest.mark.host_compiler
@with_each_page
def test_no_block_of_a_page_is_left_out(page: str, run_page: Callable[[str], list[str]]) -> None:
    if left_out := run_page(page):
        pytest.skip(f"{page}, of {len(BLOCKS[page])} blocks: {'; '.join(left_out)}")


@pytest.mark.network
@pytest.mark.host_compiler
@pytest.mark.parametrize("page", FROM_NOTHING)
@pytest.mark.slow
def test_the_examples_work_in_a_new_environment(
    page: str, driver: Path | None, cuda_ext_wheel: Path, tmp_path: Path
) -> None:
    story = Story(tmp_path, driver, cuda_ext_wheel)
    story.run(BLOCKS[page])
    assert not story.skipped


def test_every_block_is_of_a_kind_that_is_run() -> None:
    for block in (block for blocks in BLOCKS.values() for block in blocks):
        assert block.language in LANGUAGES, f"{block}: no tests run the language {block.language!r}"
        assert block.file or block.language not in WITH_A_NAME, f"{block}: needs the name of a file"


def test_every_file_is_built_by_a_later_command() -> None:
    assert [str(block) for blocks in BLOCKS.values() for block in unused_files(blocks)] == []


def test_pages_name_the_project_that_they_continue() -> None:
    for page, blocks in BLOCKS.items():
        if page.startswith("how-to/") and project_files(blocks):
            text = (DOCS / page).read_text(encoding="utf-8")
            assert "continues the project of [](../tutorials/start.md)" in text, page


def test_unused_files_are_detected() -> None:
    files = [b for blocks in BLOCKS.values() for b in blocks if b.language in ("c", "cpp", "meson")]
    assert files
    for blocks in BLOCKS.values():
        expected = [block for block in files if block in blocks]
        assert unused_files([block for block in blocks if block.language != "console"]) == expected
        renamed = [dataclasses.replace(b, file="other.cpp") if b in expected else b for b in blocks]
        assert len(unused_files(renamed)) == len(expected)


def test_commands_that_are_not_run_are_still_documented() -> None:
    typed = [command for blocks in BLOCKS.values() for command in _typed(blocks)]
    for start in NOT_RUN:
        assert any(command.startswith(start) for command in typed), (
            f"no page says {start!r}; take it from NOT_RUN"
        )


def test_workflows_run_what_their_page_runs() -> None:
    """Steps that are not commands take a runner, and are only parsed."""
    from cuda_ext.cli.environment import VARIABLES

    for blocks in BLOCKS.values():
        for block in (block for block in blocks if block.language == "yaml"):
            if block.file == ".clangd":  # a test of the reference of CMake holds that it is right
                assert re.sub(r"(cuda_ext/)\w+", r"\1<target>", block.text) == textwrap.dedent(CLANGD), (
                    f"{block}"
                )
                continue
            assert block.file.startswith(".github/workflows/"), f"{block}: no program reads it"
            steps = [step for job in yaml.safe_load(block.text)["jobs"].values() for step in job["steps"]]
            assert all(("run" in step) != ("uses" in step) for step in steps), f"{block}"
            assert {step["run"] for step in steps if "run" in step} <= {*_typed(blocks)}, f"{block}"
            variables = {name for step in steps for name in step.get("env", ())}
            assert variables <= VARIABLES.keys(), f"{block}"


def _typed(blocks: list[Block]) -> list[str]:
    return [command for b in blocks if b.language == "console" for command, _ in commands(b.text)]


# README.md


def test_blocks_of_the_readme_are_all_run() -> None:
    kinds = Counter(block.language for block in read_blocks(README))
    assert kinds == {"console": 3, "cuda": 1, "toml": 1, "python": 1}


@pytest.mark.host_compiler
def test_the_examples_of_the_readme_work(driver: Path | None, tmp_path: Path) -> None:
    source, table, launches, before_release, start, scripts = map(_named, read_blocks(README))
    # The one file that the README does not show.
    name = re.search(r"`(src/\S+)`, which may be empty", README.read_text(encoding="utf-8"))
    assert name
    package = Block(README, 0, "python", "", name[1])
    install = Block(README, 0, "console", "$ pip install .\n")
    start, install = (  # for one target instead of all
        dataclasses.replace(b, text=b.text.replace("$ pip install", "$ CUDAARCHS=90 pip install"))
        for b in (start, install)
    )
    story = Story(tmp_path, driver)
    story.run([source, table, package, start, install, launches])
    assert not story.skipped
    story.run([before_release])
    assert len(story.skipped) == len(_typed([before_release]))
    for command in _typed([scripts]):
        python, script = command.split()
        assert python == "python"
        assert (CHECKOUT / script).is_file()


def _named(block: Block) -> Block:
    """In the README the first line of a file is a comment with its name."""
    name = re.match(r"(?:#|//) ([\w./-]+\.\w+)\n", block.text)
    return dataclasses.replace(block, file=name[1], text=block.text[name.end() :]) if name else block


def test_links_and_pictures_of_the_readme_exist() -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", README.read_text(encoding="utf-8"))
    paths = [urlsplit(link).path for link in links if not urlsplit(link).scheme]
    missing = [path for path in paths if not (CHECKOUT / path).exists()]
    assert len(links) > 20
    assert missing == []


# The reference of CMake


COMMENTS = "".join(
    re.search(r"#\[=+\[\.rst:\n(.*?)#\]=+\]", file.read_text(encoding="utf-8"), re.DOTALL)[1]
    for file in (CHECKOUT / "cmake" / "CudaExt" / f"{name}.cmake" for name in ("CudaExtConfig", "CudaExt"))
)
# The blocks in them: how CMake finds it, the signatures, and the input of clangd.
FOUND, SIGNATURES, CLANGD = (
    f"{block.strip(chr(10))}\n" for block in re.findall(r"::\n\n((?:(?:  .*)?\n)+)", COMMENTS)
)
# What stands for the placeholders of the signatures.
EXAMPLES = {
    "<path or glob>...": "device/*.cu",
    "<architecture>...": "sm_90 90-real",
    "<name expression>...": '"axpy<float>"',
    "<expression>...": '"sizeof(float)"',
    "<target or file>...": "device/index.cuh",
    "[<KEY> <value>...]...": "STD c++17",
    "<directory>...": "device",
    "<directory>": "lib/python",
    "<namespace>": "my::gpu",
    "<form>": "literal",
}


@pytest.mark.host_compiler
def test_the_cmake_reference_is_current(tmp_path: Path) -> None:
    """Configure its blocks and its examples without the words in angle brackets."""
    signatures = SIGNATURES
    for placeholder, example in EXAMPLES.items():
        assert placeholder in signatures
        signatures = signatures.replace(placeholder, example)
    calls = [re.sub(r"[][]|\.\.\.", "", call) for call in signatures.split("\n\n") if call.strip()]
    for number, call in enumerate(calls):
        calls[number] = call.replace("<target>", f"target_{number}").replace(
            "<import name>", f"app.kernels_{number}"
        )
    (instantiate,) = re.findall(r'``(INSTANTIATE "\{.*\}")``', COMMENTS)
    (install,) = re.findall(r"``(install\(.*\))``", COMMENTS)
    calls.append(f"cuda_ext_add_module(target_2 NAME app.sums SOURCES device/*.cu {instantiate})")
    calls.append(install.replace("<target>", "target_0").replace("...", "app"))
    assert "<" not in "".join(calls).replace("axpy<float>", "").replace("reduce<{T}>", "")
    project = CMakeProject(tmp_path / "project").write(
        {
            "CMakeLists.txt": LISTS.replace("find_package(CudaExt REQUIRED)", FOUND) + "\n".join(calls),
            "device/axpy.cu": AXPY,
            "device/fill.cu": FILL,
            "device/reduce.cu": AXPY.replace("axpy", "reduce"),
            "device/index.cuh": INDEX,
            "pyproject.toml": '[tool.cuda_ext.modules."app.kernels_1"]\n',
        }
    )
    project.configure("-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    database = yaml.safe_load(CLANGD)["CompileFlags"]["CompilationDatabase"].replace("<target>", "target_0")
    assert (project.tree / Path(database).relative_to("build") / "compile_commands.json").is_file()


def test_pages_in_restructured_text_show_no_code_of_their_own() -> None:
    for page in DOCS.rglob("*.rst"):
        text = page.read_text(encoding="utf-8")
        own = re.sub(r"^\.\. cmake-module::.*", "", text, flags=re.MULTILINE)
        assert "::" not in own, page


# The site


class _Page(HTMLParser):
    """The anchors of a page, the targets of its links, and the files that a browser loads for it."""

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
    directory = tmp_path_factory.mktemp("site")
    sphinx = ("-W", "--keep-going", "-q", "-b", "html", "-d", directory / "doctrees")
    offline = (
        "import runpy, socket, sys\n"
        "def refused(*_, **__): raise OSError('building the site takes no network')\n"
        "socket.getaddrinfo = socket.socket.connect = refused\n"
        "runpy.run_module('sphinx', run_name='__main__', alter_sys=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", offline, *sphinx, DOCS, directory / "html"],
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
    pages = {*PAGES, *(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.rst"))}
    assert {Path(page).with_suffix(".html").as_posix() for page in pages} <= {
        file.relative_to(site).as_posix() for file in site.rglob("*.html")
    }


def test_llms_txt_lists_every_page(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[.+\]\((.+)\.html\): .", text, re.MULTILINE)
    assert {f"{name}.md" for name in listed} >= {*PAGES} - {"index.md"}


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


def test_a_page_loads_no_external_files(site: Path) -> None:
    for file, page in _pages(site):
        for resource in page.loads:
            assert not urlsplit(resource).netloc, f"{file.relative_to(site)} loads {resource}"
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_all_commands_and_errors_have_an_entry(site: Path) -> None:
    from cuda_ext import errors
    from cuda_ext.cli.commands import commands as command_line

    reference = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    for name in command_line.list_commands(click.Context(command_line)):
        assert f"cuda-ext {name}" in re.sub(r"<[^>]+>", "", reference)
    anchors = _Page((site / "reference" / "python.html").read_text(encoding="utf-8")).anchors
    exceptions = [name for name in errors.__all__ if isinstance(getattr(errors, name), type)]
    assert {f"cuda_ext.errors.{name}" for name in exceptions} <= anchors
    assert {f"cuda_ext.{name}" for name in cuda_ext.__all__ if name != "errors"} <= anchors


def test_all_environment_variables_are_documented() -> None:
    text = (DOCS / "reference" / "environment.md").read_text(encoding="utf-8")
    from cuda_ext.cli.environment import VARIABLES

    documented = {
        name for line in re.findall(r"^`.*`$", text, re.MULTILINE) for name in re.findall(r"\w+", line)
    }
    assert documented == VARIABLES.keys()


def test_lines_of_the_comparison_in_cpp_have_tests() -> None:
    text = (DOCS / "reference" / "cpp.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"(?m)^\|(?:[^|]*\|){4} ([a-z][a-z ]*) \|$", text.partition("JitModule\n")[2].partition("\n## ")[0]
    )
    files = (CHECKOUT / "tests" / "include").glob("test_cpp_*.py")
    tests = set(re.findall(r"(?m)^def test_(\w+)", "".join(f.read_text(encoding="utf-8") for f in files)))
    assert len(rows) > 15
    assert {row.replace(" ", "_") for row in rows if row != "test"} - tests == set()


def test_names_of_the_cpp_reference_are_those_of_the_headers() -> None:
    headers = "".join(
        f.read_text(encoding="utf-8") for f in (CHECKOUT / "cuda_ext" / "include").rglob("*.hpp")
    )
    code = re.sub(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', "", headers, flags=re.DOTALL)
    known = set(re.findall(r"\w+", re.sub(r"^#include .*", "", code, flags=re.MULTILINE)))
    generated = {
        "cuda_ext_library",
        "cuda_ext_module",
        "cuda_ext_headers",
        "cuda_ext_sources",
        "fill",
        "scale",
        "weights",
    }
    of_others = {
        *("CUdeviceptr", "CUfunction_attribute", "CUlaunchAttribute", "CUresult", "CUstream", "CUtensorMap"),
        *("dim3", "dlclose"),
    }
    keywords = {"JIT", "EMBED_SOURCES", "CONSTANTS", "INCLUDE_DIRECTORIES", "C_INTERFACE", "NULL"}
    text = (DOCS / "reference" / "cpp.md").read_text(encoding="utf-8")
    words = set(re.findall(r"`(?:cuda_ext::)?((?:try_)?[a-z_]+|[A-Z]\w+)(?:\(\)|<[^`]*>)?`", text))
    words = {word for word in words if not word.startswith("app_kernels_")}  # those of C
    assert words - known - generated - of_others - keywords == set()
