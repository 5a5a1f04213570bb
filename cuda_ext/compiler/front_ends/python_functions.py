"""Functions in Python sources, and the modules of their decorators, as the text shows them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from cuda_ext.text.python_names import nodes_of_scope


class PythonFunction(NamedTuple):
    """A decorated function of a source and the names of its parameters; those in ``defaults`` have one.

    The names of decorators contain their module: ``triton.jit``, ``cuda.tile.kernel``.
    """

    name: str
    parameters: tuple[str, ...]
    defaults: frozenset[str]
    decorators: tuple[str, ...]


def kernels_in_strings(source: bytes) -> bytes:
    """Return the kernels in the strings of a file that torch.compile generated, on their lines.

    They are arguments of ``async_compile.triton``. Any other source is returned as it is.
    """
    if b"async_compile.triton(" not in source:
        return source
    kernels = ""
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Call(
                    ast.Attribute(ast.Name("async_compile"), "triton"), [_, ast.Constant(str(text)) as at, *_]
                ):
                    kernels += "\n" * (at.lineno - 1 - kernels.count("\n")) + text
    return kernels.encode() or source


def find_functions(source: bytes) -> Iterator[PythonFunction]:
    """Find the decorated functions of a Python source. Raises :class:`SyntaxError` or :class:`ValueError`.

    They may be in ``if``, ``try`` and ``with``, and not in functions and classes.
    """
    tree = ast.parse(source)
    imported = imported_names(tree)
    for node in nodes_of_scope(tree):
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            by_position, by_name = [*node.args.posonlyargs, *node.args.args], node.args.kwonlyargs
            defaults = by_position[len(by_position) - len(node.args.defaults) :]
            defaults += (each for each, of in zip(by_name, node.args.kw_defaults, strict=True) if of)
            yield PythonFunction(
                node.name,
                tuple(argument.arg for argument in (*by_position, *by_name)),
                frozenset(argument.arg for argument in defaults),
                tuple(name_of_decorator(each, imported) for each in node.decorator_list),
            )


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Return the names that imports outside of functions define, and their full names."""
    names: dict[str, str] = {}
    for node in nodes_of_scope(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                names[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def name_of_decorator(decorator: ast.expr, imported: Mapping[str, str]) -> str:
    """Return the name of a decorator with its module; empty if it is another expression."""
    match decorator:
        case ast.Call(func):
            return name_of_decorator(func, imported)
        case ast.Attribute(value, attribute):
            return f"{name_of_decorator(value, imported)}.{attribute}"
        case ast.Name(name):
            return imported.get(name, name)
    return ""
