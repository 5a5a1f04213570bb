"""Constants that launches derive from their arguments: ``BLOCK={next_power_of_2(n_cols)}``.

A launch takes the smallest value that was built and is not less than the expression. An expression grows with
each of its arguments, so "at most 512" becomes comparisons of arguments with numbers: ``n_cols <= 512``.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import chain

from cuda_ext.errors import shorten
from cuda_ext.facts.candidates import Term
from cuda_ext.formats.variant_conditions import Condition, ConditionError, parse, spell

_EXAMPLES = "next_power_of_2(n), cdiv(n, 4), n // 2, n + 1, max(m, n), min(n, 4096), or n % 16 == 0"


def derive_values(expression: str, values: Sequence[str]) -> list[str]:
    """Write each of `values` with the condition under which a launch takes it: ``512 if n <= 512``.

    A comparison has no `values`: a launch takes ``True`` if it holds. Raises :class:`ValueError`.
    """
    if not values:
        condition = _without_strict(parse(expression))
        return [f"True if {spell([condition])}", "False otherwise"]
    numbers = sorted({int(value) for value in values if value.isdecimal()})
    if len(numbers) < len(values):
        raise ValueError("a launch takes the smallest that suffices: expected different numbers")
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
        conditions = [_at_most(tree, number) for number in numbers]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        problem = f"{shorten(expression)!r} cannot be derived: write an expression such as {_EXAMPLES}"
        raise ValueError(problem) from None
    if None in conditions:
        raise ValueError(f"{expression} is never at most {numbers[conditions.index(None)]}: take it out")
    texts = (f"if {spell([(*terms,)])}" if terms else "otherwise" for terms in conditions)
    return [f"{number} {text}" for number, text in zip(numbers, texts, strict=True)]


def _at_most(node: ast.expr, most: int) -> list[Term] | None:
    """Return the terms that hold where the expression is at most `most`; ``None`` if it never is.

    Raises :class:`ValueError` for other expressions.
    """
    match node:
        case ast.Constant(int(value)):
            return [] if value <= most else None
        case ast.Name() | ast.Subscript():
            return [*parse(f"{ast.unparse(node)} <= {most}")]
        case ast.Call(func, arguments):
            return _of_call(ast.unparse(func).rpartition(".")[2], arguments, most)
        case ast.BinOp(left, operator, ast.Constant(int(number))) if number > 0:
            match operator:
                case ast.Add():
                    return _at_most(left, most - number)
                case ast.Sub():
                    return _at_most(left, most + number)
                case ast.Mult():
                    return _at_most(left, most // number)
                case ast.FloorDiv():
                    return _at_most(left, most * number + number - 1)
    raise ValueError


def _of_call(name: str, arguments: Sequence[ast.expr], most: int) -> list[Term] | None:
    match name, arguments:
        case "next_power_of_2", [argument]:
            return _at_most(argument, 1 << (most.bit_length() - 1)) if most > 0 else None
        case "cdiv", [argument, ast.Constant(int(number))] if number > 0:
            return _at_most(argument, most * number)
        case "max", [_, *_]:
            parts = [_at_most(each, most) for each in arguments]
            return None if None in parts else [*chain.from_iterable(part for part in parts if part)]
        case "min", [_, *_]:
            possible = [p for p in (_at_most(each, most) for each in arguments) if p is not None]
            if [] in possible:
                return []
            if len(possible) < 2:
                return possible[0] if possible else None
    raise ValueError


def _without_strict(condition: Condition) -> Condition:
    """Replace ``n < 4`` by ``n <= 3``: in an instantiation, ``<`` opens a bracket."""
    strict = {"<": ("<=", -1), ">": (">=", 1)}
    terms = []
    for term in condition:
        if not term.modulus and term.operator in strict:
            symbol, step = strict[term.operator]
            term = next(iter(parse(f"{term.name} {symbol} {term.number + step}")))
        terms.append(term)
    if any(term.operator in strict for term in terms):
        raise ConditionError("expected a comparison with == or != behind '%'")
    return tuple(terms)
