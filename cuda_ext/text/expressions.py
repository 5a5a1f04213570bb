"""Expressions in Python of constants and names, evaluated without running a program.

They are what lists of configurations and conditions on them consist of: numbers, texts, lists, tables,
arithmetic, comparisons, calls of the given functions, and comprehensions.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}
_MOST_STEPS = 200_000
_LARGEST = 1 << 63
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "cdiv": lambda number, size: -(-number // size),
    "next_power_of_2": lambda number: 1 << max(number - 1, 0).bit_length(),
}


def evaluate(
    expression: str | ast.expr,
    names: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]] = FUNCTIONS,
) -> Any:
    """Evaluate `expression` with the values `names`. A call may name one of `functions` in any module.

    Raises :class:`ValueError` that says what cannot be evaluated.
    """
    try:
        node = ast.parse(expression.strip(), mode="eval").body if isinstance(expression, str) else expression
        return _Evaluation(functions).value(node, names)
    except (SyntaxError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
        raise ValueError(str(error) or type(error).__name__) from None
    except (RecursionError, MemoryError):
        raise ValueError("it nests too deep") from None


class _Evaluation:
    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._functions = functions
        self._steps = 0

    def value(self, node: ast.expr | None, names: Mapping[str, Any]) -> Any:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise ValueError("it takes too long")
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name) if name in names:
                return names[name]
            case ast.List(items):
                return [self.value(item, names) for item in items]
            case ast.Tuple(items):
                return tuple(self.value(item, names) for item in items)
            case ast.Dict(keys, values):
                pairs = zip(keys, values, strict=True)
                return {self.value(key, names): self.value(each, names) for key, each in pairs}
            case ast.UnaryOp(operation, operand):
                return _OPERATORS[type(operation)](self.value(operand, names))
            case ast.BinOp(left, operation, right):
                return self._calculate(operation, self.value(left, names), self.value(right, names))
            case ast.BoolOp(operation, values):
                results = (bool(self.value(each, names)) for each in values)
                return all(results) if isinstance(operation, ast.And) else any(results)
            case ast.Compare(left, operations, others):
                numbers = [self.value(each, names) for each in (left, *others)]
                each = zip(operations, numbers, numbers[1:], strict=False)
                return all(_OPERATORS[type(operation)](one, other) for operation, one, other in each)
            case ast.IfExp(test, one, other):
                return self.value(one if self.value(test, names) else other, names)
            case ast.Call(func, arguments, keywords):
                name = ast.unparse(func).rpartition(".")[2]
                if name in self._functions:
                    given = {each.arg or "": self.value(each.value, names) for each in keywords}
                    return self._functions[name](*(self.value(each, names) for each in arguments), **given)
            case ast.ListComp(item, generators):
                return [self.value(item, scope) for scope in self._scopes(generators, names)]
        raise ValueError(f"{ast.unparse(node)[:60] if node else '**'} is not known")

    @staticmethod
    def _calculate(operation: ast.operator, left: Any, right: Any) -> Any:
        are_lists = isinstance(left, list) and isinstance(right, list) and isinstance(operation, ast.Add)
        if not are_lists and not all(isinstance(each, int | float) for each in (left, right)):
            raise ValueError("expected numbers")
        result = _OPERATORS[type(operation)](left, right)
        if not are_lists and abs(result) > _LARGEST:
            raise ValueError("a number has more than 64 bits")
        return result

    def _scopes(
        self, generators: list[ast.comprehension], names: Mapping[str, Any]
    ) -> Iterator[Mapping[str, Any]]:
        if not generators:
            yield names
            return
        first, *rest = generators
        targets = first.target.elts if isinstance(first.target, ast.Tuple) else [first.target]
        for each in self.value(first.iter, names):
            values = each if isinstance(first.target, ast.Tuple) else [each]
            own = {ast.unparse(target): one for target, one in zip(targets, values, strict=True)}
            scope = {**names, **own}
            if all(self.value(test, scope) for test in first.ifs):
                yield from self._scopes(rest, scope)
