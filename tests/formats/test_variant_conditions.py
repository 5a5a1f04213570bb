"""Conditions of variants: their spelling, the messages for invalid ones, and which can hold."""

from __future__ import annotations

import pytest

from cuda_ext.facts.candidates import Term
from cuda_ext.formats.variant_conditions import ConditionError, can_hold, holds, parse, parse_either, spell

RIGHT = {
    "sm_90a": Term("sm_90a"),
    "sm_100f": Term("sm_100f"),
    "sm_75": Term("sm", "==", 75),
    "sm >= 80": Term("sm", ">=", 80),
    "n>=65_536": Term("n", ">=", 65536),
    "n % 4 == 0": Term("n", "==", 0, 4),
    "x.shape[0] > 1": Term("x.shape[0]", ">", 1),
    "in.stride[1]%8==0": Term("in.stride[1]", "==", 0, 8),
    " größe < -0x10 ": Term("größe", "<", -16),
    "sm_count != 3": Term("sm_count", "!=", 3),
    "from % 0x4 >= 2": Term("from", ">=", 2, 4),
    "p.width >= 4": Term("p.width", ">=", 4),
    "p.inner.n%2==0": Term("p.inner.n", "==", 0, 2),
    "bias == null": Term("bias", "==", 0),
    "p.bias!=null": Term("p.bias", "!=", 0),
    "nullable > 1": Term("nullable", ">", 1),
    "True == 1": Term("True", "==", 1),
    "\ufb01 < 5": Term("\ufb01", "<", 5),
    "android\n==\t0": Term("android", "==", 0),
}


@pytest.mark.parametrize("text", RIGHT)
def test_a_term_is_a_target_or_a_comparison(text: str) -> None:
    assert parse(text) == (RIGHT[text],)
    assert parse(str(RIGHT[text])) == parse(text)


def test_terms_are_joined_by_and_and_conditions_by_or() -> None:
    text = "sm_90a and n == 1 or brand == 2 and order > 3"
    conditions = ((Term("sm_90a"), Term("n", "==", 1)), (Term("brand", "==", 2), Term("order", ">", 3)))
    assert parse_either(text) == conditions
    assert spell(conditions) == text


EXPECTED = "expected a target such as sm_90a, or a comparison such as sm >= 80 or n % 16 == 0, found "
TWO = "; join comparisons with 'and', and write two candidates for 'or'"
WRONG = {
    "": f"{EXPECTED}nothing",
    "n": f"{EXPECTED}'n'",
    "n = 3": f"{EXPECTED}'n = 3'",
    "n > 3 or m > 3": f"found 'or'{TWO}",
    "not n > 3": f"found 'not'{TWO}",
    "(n > 3)": f"found '('{TWO}",
    "n > 3 && m > 3": f"found '&'{TWO}",
    "n > 3 || m > 3": f"found '|'{TWO}",
    "!n > 3": f"found '!'{TWO}",
    "n => 3": f"{EXPECTED}'n => 3'",
    "n > m": f"{EXPECTED}'n > m'",
    "n > 1e5": f"{EXPECTED}'n > 1e5'",
    "n > 1.5": f"{EXPECTED}'n > 1.5'",
    "n > 010": f"{EXPECTED}'n > 010'",
    "n > --1": f"{EXPECTED}'n > --1'",
    "n > - 1": f"{EXPECTED}'n > - 1'",
    "n > 1__0": "expected an integer of 64 bits, found '1__0'",
    "n > 0x8000000000000000": "expected an integer of 64 bits, found '0x8000000000000000'",
    "n > " + "9" * 5000: "expected an integer of 64 bits, found '9999",
    "64 <= n": f"{EXPECTED}'64 <= n'",
    "0 < n < 9": f"{EXPECTED}'0 < n < 9'",
    "n > 1 m > 1": f"{EXPECTED}'n > 1 m > 1'",
    "n > 1 and": f"{EXPECTED}nothing",
    "and n > 1": f"{EXPECTED}nothing",
    "n % 0 == 1": "expected a number from 1 on after '%', found 0",
    "n % m == 1": f"{EXPECTED}'n % m == 1'",
    "n - 1 > 2": f"{EXPECTED}'n - 1 > 2'",
    "n > 1 # one": f"{EXPECTED}'n > 1 # one'",
    "sm_90b": f"{EXPECTED}'sm_90b'",
    "sm_9": f"{EXPECTED}'sm_9'",
    "sm_90 > 3": f"{EXPECTED}'sm_90 > 3'",
    "sm >= 90a": f"{EXPECTED}'sm >= 90a'",
    "sm >= 90and n > 1": f"{EXPECTED}'sm >= 90and n > 1'",
    "x.size[0] > 3": f"{EXPECTED}'x.size[0] > 3'",
    "x.shape[-1] > 3": f"{EXPECTED}'x.shape[-1] > 3'",
    "n > \u0661": f"{EXPECTED}'n > \u0661'",
    "bias > null": f"{EXPECTED}'bias > null'",
    "bias % 2 == null": f"{EXPECTED}'bias % 2 == null'",
    "bias == nullptr": f"{EXPECTED}'bias == nullptr'",
    "p. width > 3": f"{EXPECTED}'p. width > 3'",
    "p.and > 3": f"{EXPECTED}'p.'",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:20])
def test_an_invalid_condition_is_reported_with_its_remedy(text: str) -> None:
    with pytest.raises(ConditionError) as raised:
        parse(text)
    assert WRONG[text] in str(raised.value)


@pytest.mark.parametrize("number", range(-9, 10))
@pytest.mark.parametrize("text", ["n < 2", "n <= 2", "n == 2", "n != 2", "n >= 2", "n > 2", "n % 3 == 1"])
def test_a_term_has_the_meaning_of_python(text: str, number: int) -> None:
    (term,) = parse(text)
    assert holds(term, number) is eval(text, {"n": number})


@pytest.mark.parametrize(
    "text",
    [
        *("n > 5 and n < 7", "n % 4 == 1 and n % 6 == 3", "n % 7 == 6 and n < -100 and n > -108", "sm_90a"),
        *("n > 5 and m < 3", "n == 8 and x.shape[0] % 16 == 0", "sm >= 80 and sm < 90"),
        "n % 1009 == 1 and n % 1013 == 2 and n < 9",
    ],
)
def test_a_condition_can_hold(text: str) -> None:
    assert can_hold(parse(text))


@pytest.mark.parametrize(
    "text",
    [
        *("n > 5 and n < 6", "n % 4 == 1 and n % 6 == 2", "n % 7 == 6 and n < -100 and n > -104"),
        *("n % 4 < 0", "n > 5 and n < 3", "x.shape[0] == 8 and x.shape[0] % 16 == 0"),
        *("sm_80 and sm_90", "sm >= 90 and sm < 90", "sm >= 900", "m > 1 and n > 5 and sm_90 and n == 3"),
    ],
)
def test_a_condition_never_holds(text: str) -> None:
    assert not can_hold(parse(text))
