"""Names of files, kernels and C++ entities of any content are read, shown and looked up."""

from __future__ import annotations

import contextlib
import functools
import ntpath
import posixpath
import re
from types import ModuleType

from hypothesis import assume, example, given
from hypothesis import strategies as st

from cuda_ext.errors import KernelNotFoundError, escape_controls
from cuda_ext.facts.architecture import Architecture
from cuda_ext.filesystem.inner_path import is_inner_path
from cuda_ext.formats.lowered_names.mangling import read_lowered_name
from cuda_ext.formats.spelling import base_name, normalise, plain_name, template_name
from cuda_ext.runtime.module import module_from
from cuda_ext.text.brackets import split_arguments
from cuda_ext.text.declarations import find_declarations, kernel_names
from cuda_ext.text.doc_comments import find_doc_comments
from tests.fuzz import strategies
from tests.fuzz.strategies import damaged_bytes, expressions, name_expressions, texts

LOWERED = [
    b"_ZN2ns1kIfEEvPKfi",
    b"_Z4axpyIdLi8EEviT_PKS0_4Pair",
    b"_ZN3cub17CUB_300001_SM_9006kernelINS_6PolicyILi3EEEiNS_4LessIS2_EEEEvT_T0_DpT1_",
    b"_Z1kIJiPFvivEXadL_Z1fvEELb1EEEvDpT_RA3_Kf",
    b"_Z1kIXsrSt7is_sameIiiE5valueEEvDTcl1fEE",
]
_LETTERS = [
    b"N",
    b"E",
    b"I",
    b"S_",
    b"S0_",
    b"T_",
    b"T9_",
    b"Li",
    b"L_Z",
    b"J",
    b"X",
    b"P" * 500,
    b"99999",
    b"4a",
    b"Dp",
]
COMMENTED = [
    b"/// Adds.\n///\n/// @param n  how many\ntemplate <class T>\n__global__ void k(int n);\n",
    b"namespace a {\n/** Sums.\n * all\n */\nstatic __global__ void f(float* x) {}\n}\n",
]
_SIGNS = [b"///", b"/**", b"*/", b"//", b'"', b'R"(', b"\n\n", b"{", b"}", b"(", b"__global__"]
paths = st.one_of(
    texts, st.lists(st.sampled_from(["a", ".", "..", "", "C:", "/", "\\", "b.cu"]), max_size=6).map("/".join)
)


@given(texts)
def test_shown_text_has_no_control_characters(text: str) -> None:
    shown = escape_controls(text)
    assert escape_controls(shown) == shown
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", shown)
    shown.encode()


@example("C:x")
@given(paths)
def test_an_inner_path_stays_inside(path: str) -> None:
    if is_inner_path(path):
        for module, root in ((posixpath, "/root/d"), (ntpath, r"D:\root\d")):
            inside = module.normpath(module.join(root, path))
            assert inside.startswith(root + module.sep)


@given(name_expressions)
def test_a_name_has_one_spelling(text: str) -> None:
    normal = normalise(text)
    assert normalise(normal) == normal
    assert normalise(f" {text} ") == normal
    assert re.sub(r"\s", "", normal.partition("<")[0]) == text.partition("<")[0].strip().removeprefix("::")


@example("k<1'0, 2'0>")
@given(st.one_of(texts, expressions))
def test_parts_of_a_name_are_parts_of_it(text: str) -> None:
    assert "::" not in base_name(text)
    assert template_name(text) == text[: len(template_name(text))]
    plain_name(text)
    normalise(text)
    joined = "".join(split_arguments(text))
    assert re.sub(r"[\s,]", "", joined) == re.sub(r"[\s,]", "", text)


@given(st.one_of(st.binary(max_size=30), expressions.map(str.encode)))
def test_kernels_of_a_source_are_names(source: bytes) -> None:
    assert all(name.isidentifier() or name[0].isdigit() for name in kernel_names(source))


@given(damaged_bytes(COMMENTED, _SIGNS))
@example(b"__global__ void /// no name\n(int n) {}")
@example(b"/// a word\n__global__global__k(int n);\n")
def test_comments_are_on_kernels(source: bytes) -> None:
    assert find_doc_comments([source]).keys() <= {
        kernel.name for kernel in find_declarations([source]).kernels
    }


@given(damaged_bytes(LOWERED, _LETTERS), st.booleans())
def test_a_lowered_name_is_read_or_not(name: bytes, has_placeholders: bool) -> None:
    text = name.decode("latin-1")
    read_lowered_name(text, has_placeholders)


@example("sm_090")
@given(st.one_of(texts, st.from_regex(r"(sm|compute|lto)_\d{1,5}[af]?", fullmatch=True)))
def test_an_architecture_has_one_spelling(text: str) -> None:
    try:
        architecture = Architecture.parse(text)
    except ValueError:
        return
    assert str(architecture) == text


@functools.cache
def module() -> ModuleType:
    def no_file(name: str) -> bytes:
        raise FileNotFoundError(name)

    return module_from(strategies.MANIFEST, no_file)


@given(st.one_of(texts, expressions))
def test_any_name_is_looked_up(name: str) -> None:
    assume(not name.startswith("__"))  # which Python looks up by itself
    for look_up in (getattr, lambda module, name: module[name]):
        with contextlib.suppress(KernelNotFoundError):
            assert look_up(module(), name) is not None
