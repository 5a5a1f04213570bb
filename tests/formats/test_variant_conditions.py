"""Conditions of variants: their spelling, their meaning, and the messages for invalid ones."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from cuda_ext.facts.architecture import Architecture
from cuda_ext.formats.variant_conditions import (
    Comparison,
    Condition,
    ConditionError,
    Junction,
    Leaf,
    branch,
    decide,
    list_comparisons,
    parse,
)


def holding(values: Mapping[str, int], *targets: str) -> Any:
    """Evaluate terms for these values of the names and these targets of the GPU."""

    def evaluate(leaf: Leaf) -> tuple[bool, Leaf]:
        holds = str(leaf) in targets if isinstance(leaf, Architecture) else leaf.holds(values[leaf.name])
        return holds, leaf

    return evaluate


target = Architecture.parse
RIGHT = {
    "sm_90a": [target("sm_90a")],
    "sm_100f": [target("sm_100f")],
    "sm_75": [target("sm_75")],
    "sm >= 80": [Comparison("sm", None, ">=", 80)],
    "n>=65_536": [Comparison("n", None, ">=", 65536)],
    "n % 4 == 0": [Comparison("n", 4, "==", 0)],
    "x.shape[0] > 1": [Comparison("x.shape[0]", None, ">", 1)],
    "in.stride[1]%8==0": [Comparison("in.stride[1]", 8, "==", 0)],
    " größe < -0x10 ": [Comparison("größe", None, "<", -16)],
    "sm_count != 3": [Comparison("sm_count", None, "!=", 3)],
    "((v1 > -3))": [Comparison("v1", None, ">", -3)],
    # Names that Python keeps for itself or normalises.
    "in > 3": [Comparison("in", None, ">", 3)],
    "from % 0x4 >= 2": [Comparison("from", 4, ">=", 2)],
    "True == 1": [Comparison("True", None, "==", 1)],
    "\u00b5 < 5": [Comparison("\u00b5", None, "<", 5)],
    "\ufb01 < 5": [Comparison("\ufb01", None, "<", 5)],
    "not lambda == 1 and (is > 2 or sm_90a)": [
        Junction(
            "and",
            (
                Junction("not", (Comparison("lambda", None, "==", 1),)),
                Junction("or", (Comparison("is", None, ">", 2), target("sm_90a"))),
            ),
        )
    ],
}


@pytest.mark.parametrize("text", RIGHT)
def test_a_condition_is_a_target_or_a_comparison(text: str) -> None:
    assert [parse(text)] == RIGHT[text]


@pytest.mark.parametrize(
    "text",
    [
        "n > 3 or m > 3 and k > 3",
        "(n > 3 or m > 3) and k > 3",
        "not n > 3 and m > 3",
        "not (n > 3 and m > 3)",
        "not not n > 3 or not m <= 3",
        "n % 3 == 1 and (m % 2 != 0 or not (k < 2 or n >= 4))",
        "n == 1 or n == 2 or n == 3 and m < 2",
    ],
)
def test_conditions_have_the_meaning_of_python(text: str) -> None:
    condition = parse(text)
    for number in range(6**3):
        values = {"n": number % 6, "m": number // 6 % 6, "k": number // 36}
        assert decide(condition, holding(values))[0] is bool(eval(text, dict(values)))


LEAF = "a target such as sm_90a, or a comparison such as sm >= 80 or n >= 65536"
TERM = "expected the name of an argument or its remainder, such as n or n % 4"
WRONG = {
    "": f"invalid syntax at the end; write {LEAF}, and join several with 'and' or 'or'",
    "n": f"expected {LEAF}, found 'n'",
    "n = 3": "found '='; did you mean '=='?",
    "n > 3 && m > 3": "found '&&'; did you mean 'and'?",
    "n > 3 || m > 3": "found '||'; did you mean 'or'?",
    "!(n > 3)": "found '!'; did you mean 'not'?",
    "n => 3": "found '=>'; did you mean '>='?",
    "n > m": "expected an integer after '>', found 'm'",
    "n > 1e5": "expected an integer, found '1e5'",
    "n > 1.5": "expected an integer after '>', found '1.5'",
    "n > 010": "expected an integer, found '010'",
    "n > --1": "expected an integer after '>', found '--1'",
    "n > " + "9" * 5000: "expected an integer, found '9999",
    "64 <= n": f"{TERM}, found '64'",
    "0 < n < 9": f"expected {LEAF}, found '0 < n < 9'",
    "n > 1 < 9": f"expected {LEAF}, found 'n > 1 < 9'",
    "n > 1 m > 1": f"invalid syntax at 'm > 1'; write {LEAF}, and join several with 'and' or 'or'",
    "(n > 1": "'(' was never closed",
    "n > 1)": "unmatched ')'",
    "n > 1 and": "invalid syntax at the end",
    "and n > 1": "invalid syntax at 'and n > 1'",
    "n % 0 == 1": "expected a number from 1 on after '%', found 0",
    "n % m == 1": "expected an integer after '%', found 'm'",
    "n - 1 > 2": f"{TERM}, found 'n - 1'",
    "n if n else n": "invalid syntax at 'if n else n'",
    "n > True": "expected an integer after '>', found 'True'",
    "in > 1 from > 1": "invalid syntax at 'from > 1'",
    "(n) > 3": "parentheses must enclose whole comparisons, found '(n) > 3'; write n > 3",
    "n > (3)": "parentheses must enclose whole comparisons, found 'n > (3)'; write n > 3",
    "n > (-3)": "parentheses must enclose whole comparisons, found 'n > (-3)'; write n > -3",
    "n % (4) == 0": "parentheses must enclose whole comparisons, found 'n % (4) == 0'; write n % 4 == 0",
    "(n % 4) == 0": "parentheses must enclose whole comparisons, found '(n % 4) == 0'; write n % 4 == 0",
    "sm_90 or (((n)) % (4) == (0))": "found '((n)) % (4) == (0)'; write n % 4 == 0",
    "n > - 5": "expected an integer after '>', found '- 5'",
    "n > -(5)": "expected an integer after '>', found '-(5)'",
    "n > 1 # one": "'#' is not supported",
    "sm_90b": "'sm_90b' is not a target; targets are spelled as sm_90, sm_90a or sm_100f",
    "sm_9": "'sm_9' is not a target",
    "sm_90 > 3": f"{TERM}, found 'sm_90'",
    "sm >= 90a": "expected an integer, found '90a'",
    "sm >= 90and n > 1": "expected an integer, found '90and'",
    "__import__('os').system('true')": '"\'" is not supported; write a target',
    "__import__(n) > 1": f"{TERM}, found '__import__(n)'",
    "n.bit_length() > 3": f"{TERM}, found 'n.bit_length()'",
    "x.size[0] > 3": f"{TERM}, found 'x.size[0]'",
    "x.shape[-1] > 3": "found 'x.shape[-1]'",
    "x.shape[n] > 3": "found 'x.shape[n]'",
    "(" * 300 + "n > 1" + ")" * 300: "too many nested parentheses",
    "not " * 40 + "n > 1": "is nested more than 32 deep; write it with fewer parentheses",
    "not " * 99_999 + "n > 1": "is nested more than 32 deep",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:20])
def test_an_invalid_condition_is_reported_with_its_remedy(text: str) -> None:
    with pytest.raises(ConditionError) as raised:
        parse(text)
    assert WRONG[text] in str(raised.value)


def any_condition(choose: random.Random, depth: int = 3) -> Condition:
    match choose.randrange(5) if depth else choose.randrange(2):
        case 0:
            return target(choose.choice(("sm_80", "sm_80a", "sm_90", "sm_90a")))
        case 1:
            modulus = choose.choice((None, 2, 3))
            return Comparison(choose.choice(("sm", "n", "m")), modulus, choose.choice(("<", "==")), 2)
        case 2:
            return Junction("not", (any_condition(choose, depth - 1),))
        case _:
            word = choose.choice(("and", "or"))
            return Junction(
                word, tuple(any_condition(choose, depth - 1) for _ in range(choose.randint(2, 3)))
            )


def write(condition: Condition) -> str:
    if not isinstance(condition, Junction):
        return str(condition)
    operands = [f"({write(operand)})" for operand in condition.operands]
    return f"not {operands[0]}" if condition.word == "not" else f" {condition.word} ".join(operands)


@pytest.mark.parametrize("seed", range(200))
def test_the_deciding_leaves_alone_determine_the_value(seed: int) -> None:
    choose = random.Random(seed)
    condition = any_condition(choose)
    values = {name: choose.randrange(4) for name in ("sm", "n", "m")}
    evaluate = holding(values, *choose.sample(("sm_80", "sm_80a", "sm_90", "sm_90a"), 2))
    value, deciding = decide(condition, evaluate)
    assert decide(parse(write(condition)), evaluate)[0] is value

    def evaluate_deciding(leaf: Leaf) -> tuple[bool, Leaf]:
        return evaluate(leaf) if leaf in deciding else (choose.random() < 0.5, leaf)

    assert {decide(condition, evaluate_deciding)[0] for _ in range(20)} == {value}


@pytest.mark.parametrize("seed", range(200))
def test_branches_lead_to_the_value(seed: int) -> None:
    choose = random.Random(seed)
    condition = any_condition(choose)
    values = {name: choose.randrange(4) for name in ("sm", "n", "m")}
    evaluate = holding(values, "sm_80", "sm_90a")
    added: list[tuple[Leaf, int, int]] = []

    def add(leaf: Leaf, then: int, otherwise: int) -> int:
        assert max(then, otherwise) < len(added)
        added.append((leaf, then, otherwise))
        return len(added) - 1

    at = branch(condition, -1, -2, add)
    while at >= 0:
        leaf, then, otherwise = added[at]
        at = then if evaluate(leaf)[0] else otherwise
    assert at == (-1 if decide(condition, evaluate)[0] else -2)
    compared = {leaf.name for leaf, *_ in added if isinstance(leaf, Comparison)}
    assert {comparison.name for comparison in list_comparisons(condition)} == {"n", "m"} & compared
