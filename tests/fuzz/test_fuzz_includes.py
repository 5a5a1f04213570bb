"""Headers of generated trees are found where a host compiler finds them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuda_ext.compiler.translation_unit import NAMED
from cuda_ext.toolchain.programs.nvcc_inputs import write_files
from tests.text.include_cases import INCLUDE_DIRS, Case
from tests.text.test_includes import SOURCE, Preprocessed, gather, written

_NAMES = [
    "h.h",
    "own.h",
    "config.h",
    "lib/x.h",
    "sub/h.h",
    "../common/c.h",
    "common/c.h",
    "only.h",
    "none.h",
    "g.h",
]
_SPELLED = [f'"{name}"' for name in _NAMES] + [f"<{name}>" for name in _NAMES] + ["M", "S(h.h)", "S(D/x.h)"]
_SIGNS = ["#", "%:", " #", "\f# ", "/**/#", "/* \n */#\t", "#\\\n"]
_WORDS = ["include ", "include", "inc\\\nlude ", "include/**/", "include_next ", "include \\\n"]
_LINES = [
    *(
        "int a = 1'000;",
        "char c = '\"';",
        "// it's /*",
        '/* "',
        "*/",
        'const char* s = "/*";',
        "int b; /* */",
    ),
    *('auto r = R"(', ')";', 'R"x()"', ')x"', "// \\", "\\", "'", '"', "#if 0", "#if 1", "#else", "#endif"),
    *("#define M <config.h>", '#define M "h.h"', "#undef M", "#define D lib", "#pragma once", "don't /* do"),
    *("#define S_(x) #x", "#define S(x) S_(x)", "#define H(x) __has_include(x)", "#error it's /*"),
]
# Headers that do not include each other, so that a host compiler is soon done.
_LEAVES = [each for each in _SPELLED if each[1:-1] not in ("g.h", "own.h", "../common/c.h", "common/c.h")]
_tests = st.tuples(
    st.sampled_from(["#if H(", "#if __has_include(", "#elif __has_include (", "#if __has_\\\ninclude("]),
    st.sampled_from(_SPELLED),
).map(lambda parts: f"{''.join(parts)})\nint yes;\n#endif")


def _texts(names: list[str]) -> st.SearchStrategy[str]:
    directives = st.tuples(*map(st.sampled_from, (_SIGNS, _WORDS, names))).map("".join)
    return st.lists(st.one_of(directives, st.sampled_from(_LINES), _tests), max_size=8).map("\n".join)


@pytest.mark.host_compiler
@example("#define S(x) #x\n#include S(own.h)", "", True)
@given(_texts(_SPELLED), _texts(_LEAVES), st.booleans())
def test_generated_sources_read_what_a_host_compiler_reads(source: str, header: str, is_link: bool) -> None:
    files: dict[str, str | bytes] = {"inc/g.h": header, "common/c.h": header, "common/h.h": "int common;\n"}
    case = Case(source, files, {"device/own.h": "../common/c.h"} if is_link else {})
    with tempfile.TemporaryDirectory() as directory:
        root = written(Path(directory), case)
        plain = Preprocessed(root, case, *(f"-I{each}" for each in INCLUDE_DIRS))
        if plain.text is None:
            return
        unit = gather(root)
        assert plain.reads <= {os.path.realpath(root / each) for each in (SOURCE, *unit.header_files)}
        copy = Path(directory) / "copy"
        write_files(copy, {**unit.headers, SOURCE: unit.source})
        assert Preprocessed(copy, case, "-iquote.", f"-I{NAMED}").tokens == plain.tokens
