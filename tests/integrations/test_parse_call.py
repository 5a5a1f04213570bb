"""The arguments of ``cuda_ext_add_module`` as the table that pyproject.toml would have."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from cuda_ext.builder.config.keys import Settings
from cuda_ext.builder.config.modules import parse_module
from cuda_ext.errors import ConfigError
from cuda_ext.integrations.cmake.module_call import Call, call_of
from cuda_ext.integrations.cmake.parse_call import _KNOWN, parse_call, spell_error
from tests.fixtures.cmake_projects import CMAKE
from tests.fixtures.messages import Messages

ROOT = Path("/project")
WHERE = "cuda_ext_add_module(k)"


def parsed(*words: str, current: str = "") -> Call:
    return parse_call(words, "k", ROOT, ROOT / current)


def settings(*words: str, current: str = "") -> Settings:
    call = dataclasses.replace(parsed(*words, current=current), name="p.k")
    return call.project().modules[0].settings


def refused(*words: str, current: str = "") -> str:
    """Return the message that CMake shows, without the name of the function."""
    with pytest.raises(ConfigError) as caught:
        settings(*words, current=current)
    text = spell_error(caught.value, WHERE)
    assert text.startswith(f"{WHERE}: ")
    return text.removeprefix(f"{WHERE}: ")


# Arguments for every key, and the value that they mean.
KEYS: dict[str, tuple[list[str], Any]] = {
    "sources": (["SOURCES", "device/*.cu", "a.cu"], ("device/*.cu", "a.cu")),
    "architectures": (
        ["ARCHITECTURES", "sm_80", "90", "90a-real", "100-virtual", "native"],
        ("sm_80", "sm_90", "compute_90", "sm_90a", "compute_100", "native"),
    ),
    "include_dirs": (["INCLUDE_DIRECTORIES", "/project/include", "."], ("include", ".")),
    "compiler": (["COMPILER", "nvcc"], "nvcc"),
    "nvcc": (["COMPILER", "nvcc", "NVCC", "tools/nvcc"], "/project/tools/nvcc"),
    "launcher": (["COMPILER", "nvcc", "LAUNCHER", "ccache"], "ccache"),
    "std": (["STD", "c++20"], "c++20"),
    "define": (["DEFINE", "A", "B=1", "C=x=y"], {"A": "", "B": "1", "C": "x=y"}),
    "options": (["OPTIONS", "--maxrregcount=32", "-lineinfo"], ("--maxrregcount=32", "-lineinfo")),
    "pre_include": (["PRE_INCLUDE", "prelude.cuh"], ("prelude.cuh",)),
    "fast_math": (["FAST_MATH"], True),
    "relaxed_constexpr": (["RELAXED_CONSTEXPR", "ON"], True),
    "std_headers": (["STD_HEADERS", "OFF"], False),
    "host_code": (["HOST_CODE", "skip"], "skip"),
    "instantiate": (
        ["INSTANTIATE", "f<int>", "{ kernel = 'g<{T}, {N}>', T = ['a', 'b'], N = [1] }"],
        ("f<int>", "g<a, 1>", "g<b, 1>"),
    ),
    "constants": (["CONSTANTS", "T<4>::n", "sizeof(P)"], ("T<4>::n", "sizeof(P)")),
    "split_instantiations": (["SPLIT_INSTANTIATIONS", "12"], 12),
    "variants": (
        ["VARIANTS", "f = [{ kernel = 'g', when = 'sm_90a' }, { kernel = 'h' }]"],
        parse_module(
            "p.k", {"variants": {"f": [{"kernel": "g", "when": "sm_90a"}, {"kernel": "h"}]}}, ""
        ).settings.variants,
    ),
    "tune": (
        ["TUNE", "{ kernel = 'f<{N}>', N = [1, 2], key = ['n'], block = 'N * 32' }"],
        parse_module(
            "p.k",
            {"tune": [{"kernel": "f<{N}>", "N": [1, 2], "key": ["n"], "block": "N * 32"}]},
            call_of("k"),
        ).settings.tune,
    ),
    "compress": (["COMPRESS", "none"], "none"),
    "emit": (["EMIT", "cubin"], "cubin"),
    "jit": (["JIT", "FALSE"], False),
    "headers": (["EMBED_SOURCES", "device/**/*.cuh"], ("device/**/*.cuh",)),
    "link": (["LINK", "1"], True),
}


def test_every_key_is_tested_here() -> None:
    assert list(KEYS) == list(Settings.__dataclass_fields__)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_equals_that_of_pyproject(key: str) -> None:
    words, value = KEYS[key]
    assert getattr(settings(*words), key) == value


@pytest.mark.parametrize(("word", "value"), [("ON", True), ("1", True), ("0", False), ("2", 2)])
def test_parts_are_a_number_and_0_and_1_are_truth_values(word: str, value: object) -> None:
    assert settings("SPLIT_INSTANTIATIONS", word).split_instantiations is value


def test_arguments_that_are_no_keys_are_kept_apart() -> None:
    words = ("FROM_PYPROJECT", "NAME", "p.k", "PYTHON_DESTINATION", "lib/python", "DEPENDS", "a;b", "c")
    found = parsed(*words, "CXX_NAMESPACE", "my::gpu", "PYTHON_ONLY", "no")
    assert found == Call(
        "k",
        str(ROOT),
        "p.k",
        pyproject=True,
        python_only=False,
        cxx_namespace="my::gpu",
    )
    assert parsed() == Call("k", str(ROOT))


@pytest.mark.parametrize(
    ("where", "spelled"),
    [
        (WHERE, WHERE),
        (f"{WHERE}.include-dirs", f"{WHERE}: INCLUDE_DIRECTORIES"),
        (f"{WHERE}.overrides[1].std", f"{WHERE}: OVERRIDE[1] STD"),
        (f"{WHERE}.overrides[1]", f"{WHERE}: OVERRIDE[1]"),
        (f"{WHERE}.instantiate[0].kernel", f"{WHERE}: INSTANTIATE[0] kernel"),
        ("tool.cuda_ext.std", "tool.cuda_ext.std"),
        ("device/a.cu:3", "device/a.cu:3"),
        (f"p.kernels:\n{WHERE}.options", f"p.kernels:\n{WHERE}: OPTIONS"),
    ],
)
def test_key_paths_are_spelled_as_in_cmake(where: str, spelled: str) -> None:
    assert spell_error(ConfigError("p", where=where, remedy="r"), WHERE) == f"{spelled}: p; r"


def test_a_word_in_lower_case_may_be_a_value(tmp_path: Path) -> None:
    (tmp_path / "headers").mkdir()
    words = ("INCLUDE_DIRECTORIES", "headers", "COMPILER", "nvcc", "DEFINE", "jit", "DEPENDS", "sources")
    found = parse_call(words, "k", tmp_path, tmp_path).table
    assert found == {"include-dirs": ["headers"], "compiler": "nvcc", "define": {"jit": ""}}


def test_cmake_knows_all_keywords() -> None:
    text = (CMAKE / "CudaExt.cmake").read_text(encoding="utf-8")
    (listed,) = re.findall(r"set\(keywords\s([^)]*)\)", text)
    assert sorted(listed.split()) == sorted(_KNOWN)


def test_paths_are_relative_to_the_directory_of_their_file() -> None:
    words = ("SOURCES", "*.cu", "../shared/a.cu", "INCLUDE_DIRECTORIES", "..", "EMBED_SOURCES", "x.cuh")
    found = parsed(*words, current="src/gpu").table
    assert found == {
        "sources": ["src/gpu/*.cu", "src/shared/a.cu"],
        "include-dirs": ["src"],
        "headers": ["src/gpu/x.cuh"],
    }


def test_overrides_follow_one_another() -> None:
    override = ("OVERRIDE", "SOURCES", "b.cu", "ARCHITECTURES", "90a-real")
    found = parsed("SOURCES", "*.cu", *override, "OVERRIDE", "SOURCES", "c.cu", "STD", "c++20", "FAST_MATH")
    assert found.table["overrides"] == [
        {"sources": ["b.cu"], "architectures": ["sm_90a"]},
        {"sources": ["c.cu"], "std": "c++20", "fast-math": True},
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["sources", "a.cu"],
        ["a.cu"],
        ["NAME", "p.k", "Sources", "a.cu"],
        ["SOURCES", "a.cu", "jit"],
        ["COMPILER", "nvcc", "std", "c++20"],
        ["PYTHON_DESTINATION"],
        ["SOURCES", "a.cu", "ARCHITECTURE", "90"],
        ["SOURCES", "a.cu", "SOURCES", "b.cu"],
        ["SOURCES"],
        ["SOURCES", "../../other/a.cu"],
        ["INCLUDE_DIRECTORIES", "/usr/include"],
        ["STD"],
        ["STD", "c++17", "c++20"],
        ["STD", "17"],
        ["LINK", "maybe"],
        ["COMPRESS", "sise"],
        ["OPTIONS", "-O3", "-arch=sm_90"],
        ["INSTANTIATE", "{ kernel = 'f<{T}>' }"],
        ["INSTANTIATE", "{ kernel = "],
        ["VARIANTS", "gemm"],
        ["VARIANTS", "f = [{ kern = 'g' }]"],
        ["DEFINE", "2=1"],
        ["OVERRIDE", "STD", "c++20"],
        ["OVERRIDE", "SOURCES", "a.cu", "STD", "20"],
        ["OVERRIDE", "SOURCES", "a.cu", "LINK"],
        ["OVERRIDE", "SOURCES", "a.cu", "NAME", "p.k"],
        ["FROM_PYPROJECT", "SOURCES", "a.cu"],
        ["FROM_PYPROJECT", "LINK", "OVERRIDE"],
        ["OPTIONS", "$<$<CONFIG:Debug>:-G>"],
        ["NAME", "a", "b"],
        ["EMIT", "ltoir", "LINK"],
        ["SPLIT_INSTANTIATIONS", "-2"],
    ],
    ids=str,
)
def test_a_mistake_is_reported_in_terms_of_cmake(words: list[str], messages: Messages) -> None:
    messages(refused(*words))
