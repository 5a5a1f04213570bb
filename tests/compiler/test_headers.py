"""Headers: those of the project are gathered under one name, all others are left to the compiler.

``tests/text`` compares with host compilers where directives lead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cuda_ext.compiler.file_tree import FileTree
from cuda_ext.compiler.headers import Headers
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import BuildError, CompilationError
from cuda_ext.facts.sources import Options
from cuda_ext.text.includes import names_its_includes
from tests.fixtures.device_code import ptx

KERNEL = "\n__global__ void kernel(int* p) { *p = VALUE; }\n"
Write = Callable[..., None]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


@pytest.fixture
def write(root: Path) -> Write:
    def write(**files: str | bytes) -> None:
        """Write files named by keywords: two underscores are slashes, one is a point."""
        for key, content in files.items():
            path = root / key.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def gathered(root: Path, *include_dirs: str, pre_include: Sequence[str] = ()) -> TranslationUnit:
    headers = Headers(FileTree(root), [root / name for name in include_dirs])
    text, found = headers.gather("device/a.cu", pre_include)
    options = Options(pre_include=tuple(map(headers.resolve, pre_include)))
    return TranslationUnit("device/a.cu", text, headers=found, options=options)


def value(unit: TranslationUnit) -> int:
    """Compile the unit; return the value that its kernel stores."""
    match = re.search(r"mov\.[ub]32\s+%r\d+, (\d+);", ptx(unit))
    assert match
    return int(match[1])


def test_directives_are_rewritten_to_the_path_within_the_project(root, write):
    write(device__a_cu='#include "h.cuh"\nint x;', device__h_cuh="")
    assert gathered(root).source == b'#include "device/h.cuh"\nint x;'


def test_an_angled_name_beside_the_source_is_not_found(root, write):
    write(device__a_cu="#include <v.cuh>" + KERNEL, device__v_cuh="enum { VALUE = 1 };")
    unit = gathered(root)
    assert unit.headers == {}
    with pytest.raises(CompilationError, match=r"device/a\.cu\(1\): .*v\.cuh"):
        ptx(unit)


def test_a_link_is_followed_to_the_file_that_it_names(root, write):
    write(device__a_cu='#include "link.cuh"', common__h_cuh="")
    (root / "device/link.cuh").symlink_to("../common/h.cuh")
    assert list(gathered(root).headers) == ["common/h.cuh"]


def test_files_outside_the_project_are_not_gathered(root, write):
    write(device__a_cu='#include "../../outside.cuh"\n#include "link.cuh"')
    (root.parent / "outside.cuh").touch()
    (root / "device/link.cuh").symlink_to(root.parent / "outside.cuh")
    assert gathered(root).headers == {}


def test_headers_of_the_tool_chain_stay_as_they_are(root, write):
    write(device__a_cu="#include <cuda/std/cstdint>\n#include <cuda_fp16.h>\nenum { VALUE = 6 };" + KERNEL)
    unit = gathered(root)
    assert unit.headers == {}
    assert value(unit) == 6


def test_headers_of_every_branch_travel(root, write):
    write(device__a_cu='#ifdef NEVER\n#include "h.cuh"\n#endif', device__h_cuh="")
    assert list(gathered(root).headers) == ["device/h.cuh"]


@pytest.mark.parametrize(
    "text",
    [
        '// #include "h.cuh"\n',
        '// continued \\\n#include "h.cuh"\n',
        '/*\n#include "h.cuh"\n*/',
        '__device__ const char* text = R"(\n#include "h.cuh"\n)";',
        '__device__ const char* text = R"x(\n)"\n#include "h.cuh"\n)x";',
        '__device__ const char* text = "\\\n#include <h.cuh>";',
        '#define NAME "h.cuh"\n',
        '__device__ int x; /* */ /* \n*/ __device__ int include; // #include "h.cuh"\n',
    ],
)
def test_text_that_looks_like_a_directive_is_ignored(root, write, text):
    write(device__a_cu=text + "\nenum { VALUE = 9 };" + KERNEL, device__h_cuh='#error "not me"')
    unit = gathered(root, "device")
    assert unit.headers == {}
    assert unit.source == (root / "device/a.cu").read_bytes()
    assert value(unit) == 9


@pytest.mark.parametrize("content", ["// UTF-16".encode("utf-16-le"), b"// \0", b"// \xff"])
def test_characters_that_end_a_file_are_refused(root, write, content):
    write(device__a_cu='#include "h.cuh"', device__h_cuh=content)
    with pytest.raises(BuildError, match=r"^device/h\.cuh: is not UTF-8 text, as it holds a byte 0x"):
        gathered(root)


def test_a_pre_include_is_found_like_an_include(root, write):
    write(
        device__a_cu=KERNEL,
        include__first_cuh='#include "second.cuh"',
        include__second_cuh="enum { VALUE = 1 };",
    )
    unit = gathered(root, "include", pre_include=["first.cuh"])
    assert list(unit.headers) == ["include/first.cuh", "include/second.cuh"]
    assert value(unit) == 1


@pytest.mark.parametrize("name", ["/etc/hostname", "../../etc/hostname", "/proc/self/mem", "link", "pipe"])
def test_a_pre_include_is_a_regular_file_of_the_project(root, write, name):
    write(device__a_cu="")
    (root / "link").symlink_to("/etc/hostname")
    os.mkfifo(root / "pipe")
    with pytest.raises(BuildError, match=r"not a (?:regular )?file"):
        gathered(root, "include", pre_include=[name])


def test_a_file_that_cannot_be_read_is_named(root):
    (root / "device/a.cu").mkdir(parents=True)
    with pytest.raises(BuildError, match=r"^device/a\.cu: cannot be read: "):
        gathered(root)


def test_the_same_project_elsewhere_is_the_same_unit(root, write):
    def write_and_gather(name: str) -> TranslationUnit:
        files = {"device/a.cu": '#include <h.cuh>\n#include "i.cuh"', "device/i.cuh": "", "include/h.cuh": ""}
        for path, content in files.items():
            (root / name / path).parent.mkdir(parents=True, exist_ok=True)
            (root / name / path).write_text(content)
        return gathered(root / name, "include")

    here, there = write_and_gather("here"), write_and_gather("there")
    assert vars(here) == vars(there)
    assert here.sha256 == there.sha256


def test_file_is_the_path_within_the_project(root, write):
    write(
        device__a_cu='#include "sub/h.cuh"\n__global__ void kernel(const char** p) { *p = file(); }',
        device__sub__h_cuh="__device__ const char* file() { return __FILE__; }",
    )
    spelled = ", ".join(map(str, b"device/sub/h.cuh"))
    assert f"{{{spelled}}}" in ptx(gathered(root))


def test_no_file_of_the_working_directory_is_read(root, write, monkeypatch):
    write(device__a_cu='#include "h.cuh"' + KERNEL, elsewhere__device__h_cuh="enum { VALUE = 1 };")
    monkeypatch.chdir(root / "elsewhere")
    with pytest.raises(CompilationError, match=r"h\.cuh"):
        ptx(gathered(root))


@pytest.mark.parametrize(
    "text",
    [
        "#include <a/b.h>",
        '# /**/ include "a.h"',
        "// #include MACRO",
        '/* #include "/a" */',
        'const char* s = "#include </a>";',
        "#if __has_include(<a.h>)",
        "%: include <a.h>",
        "#include_next <a.h>",
    ],
)
def test_includes_of_the_project_and_the_tool_chain_are_known(text):
    assert names_its_includes(f"int x;\n{text}\n".encode())


@pytest.mark.parametrize(
    "text",
    [
        "#include MACRO",
        "#/**/include/**/MACRO",
        "#inc\\\nlude MACRO",
        "#include </a.h>",
        '#include/**/"/a.h"',
        "#include <../../a.h>",
        '#embed "a"',
        "#if __has_include(MACRO)",
    ],
)
def test_includes_of_anything_else_are_unknown(text):
    assert not names_its_includes(f"int x;\n{text}\n".encode())
