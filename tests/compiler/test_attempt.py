"""What a compiler rejects is left out of the next attempt, and answers are read by what was asked for."""

from __future__ import annotations

import pytest

from cuda_ext.compiler.signatures.attempt import Attempt
from cuda_ext.compiler.signatures.spellings import NO_QUESTIONS, Questions

TYPES = {"half": "cuda_ext_probe::meaning<::half>", "real": "cuda_ext_probe::meaning<::real>"}
ASKED = Attempt(("k<int>",), ("&a", "&b"), ("f", "g"), Questions(b"using half = int;", TYPES))


@pytest.mark.parametrize(
    ("rejected", "left"),
    [
        ({1}, (("&b",), ("f", "g"), ("half", "real"))),
        ({2, 3}, (("&a",), ("g",), ("half", "real"))),
        ({5}, (("&a", "&b"), ("f", "g"), ("real",))),
        ({0}, (("&a", "&b"), ("f", "g"), ())),  # questions may be what makes its name ambiguous
    ],
)
def test_the_next_attempt_leaves_out_what_was_rejected(
    rejected: set[int], left: tuple[tuple[str, ...], ...]
) -> None:
    following = ASKED.after(rejected, "")
    assert following is not None
    assert following.instantiate == ASKED.instantiate
    assert (tuple(following.addresses), tuple(following.subjects), tuple(following.questions.types)) == left


def test_a_source_that_is_at_fault_is_not_compiled_again() -> None:
    assert ASKED._replace(questions=NO_QUESTIONS).after({0}, "k.cu(1): error: expected a ;") is None


def test_rejected_declarations_end_the_questions() -> None:
    following = ASKED.after((), 'cuda_ext_probes(1): error: name followed by "::"')
    assert following == ASKED._replace(questions=NO_QUESTIONS)


def test_answers_are_read_in_the_order_of_the_expressions() -> None:
    lowered = ["_Z1kIiEvv", "a", "b", "not a probe", "", "", ""]
    assert len(ASKED.expressions) == len(lowered)
    answers = ASKED.read(lowered)
    assert (answers.names, answers.addresses) == ({"k<int>": "_Z1kIiEvv"}, ["a", "b"])
    assert (answers.types, answers.meanings) == ({}, {})
