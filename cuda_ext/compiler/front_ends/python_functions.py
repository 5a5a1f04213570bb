"""Functions in Python sources, and the modules of their decorators, as the text shows them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class PythonFunction(NamedTuple):
    """A decorated function of a source and the names of its parameters; those in ``defaults`` have one.

    The names of decorators contain their module: ``triton.jit``, ``cuda.tile.kernel``.
    """

    name: str
    parameters: tuple[str, ...]
    defaults: frozenset[str]
    decorators: tuple[str, ...]


def find_functions(source: bytes) -> Iterator[PythonFunction]:
    """Find the decorated functions of a Python source. Raises :class:`SyntaxError` or :class:`ValueError`."""
    body = ast.parse(source).body
    imported = dict(_imports(body))
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            by_position, by_name = [*node.args.posonlyargs, *node.args.args], node.args.kwonlyargs
            defaults = by_position[len(by_position) - len(node.args.defaults) :]
            defaults += (each for each, of in zip(by_name, node.args.kw_defaults, strict=True) if of)
            yield PythonFunction(
                node.name,
                tuple(argument.arg for argument in (*by_position, *by_name)),
                frozenset(argument.arg for argument in defaults),
                tuple(_full_name(each, imported) for each in node.decorator_list),
            )


def _imports(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield the names that imports define, and their full names."""
    for node in body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _full_name(decorator: ast.expr, imported: Mapping[str, str]) -> str:
    """Return the name of a decorator with its module; empty if it is another expression."""
    match decorator:
        case ast.Call(func):
            return _full_name(func, imported)
        case ast.Attribute(value, attribute):
            return f"{_full_name(value, imported)}.{attribute}"
        case ast.Name(name):
            return imported.get(name, name)
    return ""
