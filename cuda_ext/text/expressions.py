"""Expressions in Python of constants and names, evaluated without running a program.

They are what lists of configurations and conditions on them consist of: numbers, texts, lists, tables,
arithmetic, comparisons, calls of the given functions, and comprehensions.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "cdiv": lambda number, size: -(-number // size),
    "next_power_of_2": lambda number: 1 << max(number - 1, 0).bit_length(),
}
_KNOWN = (
    *(ast.Constant, ast.Name, ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.comprehension, ast.keyword),
    *(ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp),
    *(ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),  # powers and shifts may take all memory
)


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
        code = compile(ast.Expression(_Checked(functions).visit(node)), "expression", "eval")
        return eval(code, {"__builtins__": {}, **names, **functions})  # noqa: S307 - as far as it is checked
    except NameError as error:
        raise ValueError(f"{error.name} is not known") from None
    except (SyntaxError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise ValueError(str(error) or type(error).__name__) from None
    except (RecursionError, MemoryError):
        raise ValueError("it is too large") from None


class _Checked(ast.NodeTransformer):
    """Refuses everything that could do more than calculate, and takes functions out of their modules."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._functions = functions

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in self._functions:
                node.func = ast.copy_location(ast.Name(name, ast.Load()), node)
                return self.generic_visit(node)
        if not isinstance(node, _KNOWN):
            raise ValueError(f"{ast.unparse(node)[:60] or type(node).__name__} is not known")
        return self.generic_visit(node)
