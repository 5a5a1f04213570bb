"""Functions in Python sources, and the modules of their decorators, as the text shows them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from cuda_ext.text.python_names import bound_names, nodes_of_scope

# Decorators that make a kernel, or a function of kernels.
COMPILED = re.compile(r"(.+\.)?triton\.(\w+\.)*jit|cuda\.tile\.(kernel|function)")


class PythonFunction(NamedTuple):
    """A decorated function of a source and the names of its parameters; ``defaults`` are texts, by parameter.

    The names of decorators contain their module: ``triton.jit``, ``cuda.tile.kernel``. ``annotations`` are
    texts, by parameter, with names of types replaced. ``excluded`` are the parameters, by name or position,
    that each keyword of a decorator lists: ``do_not_specialize=["n"]``.
    """

    name: str
    parameters: tuple[str, ...]
    defaults: Mapping[str, str]
    decorators: tuple[str, ...]
    annotations: Mapping[str, str] = {}
    excluded: Mapping[str, tuple[object, ...]] = {}

    def is_constant(self, parameter: str) -> bool:
        """Return True if the annotation of `parameter` says that it is a constant."""
        annotation = self.annotations.get(parameter, "")
        return "constexpr" in annotation or "Constant" in annotation

    def excludes(self, keyword: str, parameter: str) -> bool:
        """Return True if `keyword` of a decorator lists `parameter`."""
        listed = self.excluded.get(keyword, ())
        return parameter in listed or self.parameters.index(parameter) in listed


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

    They may be in ``if``, ``try`` and ``with``, and not in functions and classes. ``f = triton.jit(f)``
    decorates, too.
    """
    tree = ast.parse(source)
    imported = imported_names(tree)
    nodes = [*nodes_of_scope(tree)]
    renamed = dict(_aliases(nodes))
    for name, node, decorators in _decorated(nodes, imported):
        by_position, by_name = [*node.args.posonlyargs, *node.args.args], node.args.kwonlyargs
        arguments = [*by_position, *by_name]
        last = by_position[len(by_position) - len(node.args.defaults) :]
        defaults = [*zip(last, node.args.defaults, strict=True)]
        defaults += ((a, of) for a, of in zip(by_name, node.args.kw_defaults, strict=True) if of)
        yield PythonFunction(
            name,
            tuple(argument.arg for argument in arguments),
            {argument.arg: ast.unparse(of) for argument, of in defaults},
            tuple(name_of_decorator(each, imported) for each in decorators),
            {a.arg: renamed.get(t := ast.unparse(a.annotation), t) for a in arguments if a.annotation},
            dict(_lists(decorators)),
        )


def _decorated(
    nodes: Iterable[ast.AST], imported: Mapping[str, str]
) -> Iterator[tuple[str, ast.FunctionDef, list[ast.expr]]]:
    """Yield the decorated functions with their names and decorators."""
    functions: dict[str, tuple[ast.FunctionDef, list[ast.expr]]] = {}
    for node in nodes:
        match node:
            case ast.FunctionDef(name):
                functions[name] = node, node.decorator_list
                if node.decorator_list:
                    yield name, node, node.decorator_list
            case ast.Assign([ast.Name(name)], ast.Call() as value):
                decorators: list[ast.expr] = []
                inner: ast.expr = value
                while isinstance(inner, ast.Call) and inner.args:
                    decorators.append(inner.func if isinstance(inner.func, ast.Call) else inner)
                    inner = inner.args[0]
                if not isinstance(inner, ast.Name) or inner.id not in functions:
                    continue
                function, others = functions[inner.id]
                decorators += others
                if any(COMPILED.fullmatch(name_of_decorator(each, imported)) for each in decorators):
                    functions[name] = function, decorators
                    yield name, function, decorators


def _aliases(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield the names that are assigned once, such as ``ConstInt = ct.Constant[int]``, and their values."""
    for node in nodes:
        match node:
            case ast.Assign([ast.Name(name)], value):
                yield name, ast.unparse(value)


def _lists(decorators: Sequence[ast.expr]) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield the keywords of decorators that list constants."""
    for keyword in (each for call in decorators if isinstance(call, ast.Call) for each in call.keywords):
        if keyword.arg and isinstance(keyword.value, ast.List | ast.Tuple):
            items = keyword.value.elts
            yield keyword.arg, tuple(item.value for item in items if isinstance(item, ast.Constant))


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


def functions_with_hooks(source: bytes) -> Iterator[str]:
    """Yield the functions whose decorators give a ``pre_hook``, themselves or by names of the file."""
    if b"pre_hook" not in source:
        return
    tree = ast.parse(source)
    nodes = [*nodes_of_scope(tree)]
    definitions = {name: node for node in nodes if isinstance(node, ast.stmt) for name in bound_names(node)}
    for name, _, decorators in _decorated(nodes, imported_names(tree)):
        if _gives_hook(decorators, definitions):
            yield name


def _gives_hook(nodes: Sequence[ast.AST], definitions: Mapping[str, ast.AST]) -> bool:
    waiting, seen = [*nodes], set[str]()
    while waiting:
        for node in ast.walk(waiting.pop()):
            match node:
                case ast.keyword("pre_hook", value) if not isinstance(value, ast.Constant):
                    return True
                case ast.Name(name) if name in definitions and name not in seen:
                    seen.add(name)
                    waiting.append(definitions[name])
    return False
