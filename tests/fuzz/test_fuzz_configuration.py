"""Any table is a configuration or a ``ConfigError``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from cuda_ext.builder.config.modules import parse_table
from cuda_ext.builder.sources.tuning_table import TuningTable
from cuda_ext.compiler.front_ends.instantiation import parse_instantiation
from cuda_ext.compiler.front_ends.kernel_description import parse_signature
from cuda_ext.compiler.tuned_kernels import Choice
from cuda_ext.errors import ConfigError
from cuda_ext.facts.launches import TRITON_OPTIONS
from cuda_ext.formats.variant_conditions import ConditionError, parse, spell
from tests.fuzz.strategies import as_json, damaged_data, expressions, texts

TABLE: dict[str, Any] = {
    "sources": ["device/*.cu", "lib/**/x.cubin"],
    "architectures": ["sm_80", "sm_90a", "compute_90", "all-major"],
    "include-dirs": ["include"],
    "compiler": "nvcc",
    "nvcc": "/usr/bin/nvcc",
    "launcher": "ccache",
    "std": "c++20",
    "define": {"WIDTH": 4, "INLINE": ""},
    "options": ["-lineinfo", "-I", "/usr/include", "--maxrregcount=32"],
    "pre-include": ["first.h"],
    "fast-math": True,
    "instantiate": ["axpy<float>", {"kernel": "reduce<{T}, {B}>", "T": ["float", "double"], "B": [128, 256]}],
    "split-instantiations": 2,
    "variants": {"gemm": [{"kernel": "hopper", "when": "sm_90a and n % 4 == 0"}, {"kernel": "simple"}]},
    "tune": [
        {
            "kernel": "f<{T}, {N}>",
            "T": ["int"],
            "N": [1, 2],
            "when": "N % 2 == 0",
            "key": ["n"],
            "block": "N",
        },
        {"kernel": "softmax", "default": {"BLOCK": 64}, "grid": ["n"], "tolerance": 0.1},
    ],
    "compress": "balance",
    "emit": "fatbin",
    "jit": True,
    "link": False,
    "report": "build/report.html",
    "overrides": [
        {
            "sources": ["**/x.cubin"],
            "instantiate": ["more<int>"],
            "kernels": [
                {
                    "name": "gemm",
                    "symbol": "gemm_0",
                    "signature": "(const float* a, int n, int rows = a.shape[0], void* memory = scratch)",
                    "block": [128, 1, 1],
                    "cluster": 2,
                    "shared": 49152,
                    "scratch": 256,
                    "when": "n % 4 == 0",
                }
            ],
        }
    ],
    "modules": {"p.kernels": {"emit": "fatbin", "jit": False}, "p.others": {"options": ["-G"]}},
}


def test_the_table_is_valid() -> None:
    assert len(parse_table(TABLE, "p.kernels")[0]) == 2


@given(damaged_data({"": TABLE}))
def test_a_table_is_a_configuration_or_an_error(damaged: Any) -> None:
    try:
        modules, _ = parse_table(damaged.get("", damaged), "p.kernels")
    except ConfigError as error:
        modules, where = (), error.where
    else:
        where = "tool.cuda_ext"
    assert where.startswith("tool.cuda_ext")
    for module in modules:
        settings = module.for_source("lib/a/x.cubin")
        assert all(isinstance(each, str) for each in settings.instantiate)
        assert module.key_path("std", "lib/a/x.cubin").startswith("tool.cuda_ext")


_CONDITION_TEXT = "sm sm_90 sm_90a n x.shape[0] and or not ( ) % == < >= - 4 0x1F 0b1 07 1e5 = ! ~ ' : := ..."
_CONDITION_WORDS = (*_CONDITION_TEXT.split(), "²", "\u0661", "ª", "if", "None", "*" * 30, "lambda")
conditions = st.one_of(texts, st.lists(st.sampled_from(_CONDITION_WORDS), max_size=14).map(" ".join))


@example("sm_090")
@given(conditions)
def test_a_condition_is_read_or_an_error(text: str) -> None:
    try:
        condition = parse(text)
    except ConditionError:
        return
    assert parse(spell([condition])) == condition


@given(st.one_of(texts, expressions.map(lambda text: f"({text})")))
def test_a_signature_is_read_or_an_error(text: str) -> None:
    try:
        parameters, _ = parse_signature(text)
    except ValueError:
        return
    names = [parameter.name for parameter in parameters]
    assert len(set(names)) == len(names)
    for parameter in parameters:
        assert str(parameter)


_INSTANTIATION_TEXT = "f ( ) x n : *fp32 *kfp16 i32 16 3 , = 1024 -1 None fp16 sm_90 { [ <"
_INSTANTIATION_WORDS = (
    *_INSTANTIATION_TEXT.split(),
    *("tensordesc<fp16[64, 32]>", "'a) if b'", "(1, 2)", " if ", "n >= 4", "f16[?, 8:16]"),
)
instantiations = st.one_of(
    texts,
    st.lists(st.sampled_from(_INSTANTIATION_WORDS), max_size=20).map("".join),
    st.lists(st.sampled_from(_INSTANTIATION_WORDS), max_size=20).map(lambda words: f"f({''.join(words)})"),
)


@example("f(x: (*fp32:16, i32), B=(1, fp16))(num_warps=8) if sm_90 and n >= 4 or n == 1")
@given(instantiations)
def test_an_instantiation_is_read_or_an_error(text: str) -> None:
    try:
        instantiation = parse_instantiation(text)
    except ValueError:
        return
    assert parse_instantiation(str(instantiation)) == instantiation


TUNING = {
    "key": ["n"],
    "default": {"kwargs": {"BLOCK": 64, "SHAPE": [1, 2]}, "num_warps": 8, "maxnreg": None},
    "tuned": [
        {
            "device": "sm_90",
            "key": [8, "torch.float32"],
            "configs_timings": [[{"kwargs": {"BLOCK": 8}, "num_stages": 3}, [0.1, 0.1, 0.2]]],
        },
        {"device": "sm_80", "when": "n % 4 == 0 and x % 16 == 0", "config": {"num_warps": 2}},
        {
            "device": "NVIDIA H200",
            "sm": 90,
            "key": [9],
            "config": {"num_warps": 2},
            "time": 1.5,
            "source": "1f",
        },
    ],
}


def test_booleans_of_toml_are_those_of_python() -> None:
    assert parse_instantiation("f(n: i32, A=true, B=(false, 1))") == parse_instantiation(
        "f(n: i32, A=True, B=(False, 1))"
    )


TUNED = parse_instantiation("f(x: *fp32:16, n: i32)")


@given(damaged_data({"": TUNING}))
def test_a_tuning_table_is_read_or_an_error(damaged: Any) -> None:
    content = as_json(damaged.get("", damaged)).encode()
    try:
        table = TuningTable.parse("tuning.json", content, "1f")
        choices = table.choose("f", table.key, (), TUNED.constants, ["torch.float32"])
        choices.append(Choice(table.default or {}))
        where = table.name
    except ConfigError as error:
        choices, where = [], error.where
    assert where.startswith("tuning.json")
    for choice in choices:
        if {*table.key} <= {"n"} and choice.configuration.keys() <= {"BLOCK", "SHAPE", *TRITON_OPTIONS}:
            each = replace(TUNED, configuration=choice.configuration, when=choice.when)
            assert parse_instantiation(str(each)) == each
