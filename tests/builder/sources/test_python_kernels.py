"""Instantiations of Python functions: what each is compiled for, by its condition."""

from __future__ import annotations

import pytest

from cuda_ext.builder.sources.python_kernels import one_for_each_instantiation
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.facts.architecture import Architecture

TARGETS = {
    # What a condition leaves of sm_80, sm_90a and compute_80.
    "": ["sm_80", "sm_90a", "compute_80"],
    "n >= 16": ["sm_80", "sm_90a", "compute_80"],
    "sm_90 and n >= 16": ["sm_90a"],
    "sm_80": ["sm_80"],
    "sm_86 or n == 4 and sm_90": ["sm_80", "sm_90a", "compute_80"],
    "sm_100 and n >= 16": ["compute_80"],
    "sm >= 90": ["sm_90a", "compute_80"],
    "sm != 90": ["sm_80", "compute_80"],
    "sm < 80": [],
}


@pytest.mark.parametrize("when", TARGETS)
def test_an_instantiation_is_compiled_where_its_condition_may_hold(when: str) -> None:
    text = f"f(n: i32) if {when}" if when else "f(n: i32)"
    unit = TranslationUnit("f.py", b"", "triton", instantiate=(text, "f(n: i32, B=1)"))
    architectures = tuple(map(Architecture.parse, TARGETS[""]))
    *conditional, (_, everywhere) = one_for_each_instantiation(unit, architectures)
    assert [str(each) for _, targets in conditional for each in targets] == TARGETS[when]
    assert everywhere == architectures
