"""The messages of the package's Python modules, read from their sources: nothing is run.

A message is the first argument of an exception's or a warning's call. What reaches it through a name, a
conditional expression, or a function that does nothing but choose between strings, is put in, so that each
message stands there whole. A function that returns an exception makes a message of each of its calls.
"""

# ruff: noqa: RUF001 - what differs in a message stands in these brackets

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from messages.message import Message, has_words, placeholder

__all__ = ["WARNING", "Module", "Package"]

# The kind of what a build tells and goes on.
WARNING = "warning"
# Methods of strings, whose result still is what the string is about.
_OF_STRINGS = {"lower", "partition", "replace", "rpartition", "split", "splitlines", "strip", "upper"}
# Of a message with more alternatives, the first are shown.
_MOST_ALTERNATIVES = 12

Texts = Mapping[str, list[str]]


class Package:
    """The modules of the package in the directory `path`."""

    def __init__(self, path: Path) -> None:
        self.modules = {
            ".".join(file.relative_to(path.parent).with_suffix("").parts): Module(file, self)
            for file in sorted(path.rglob("*.py"))
        }


class Module:
    """The module in the file `path`, which looks up in `package` what it imports."""

    def __init__(self, path: Path, package: Package) -> None:
        self._path, self._package = path, package
        self._known_in: dict[ast.FunctionDef, Texts] = {}
        self._returned_by: dict[str, list[str]] = {}

    @cached_property
    def _source(self) -> str:
        return self._path.read_text("utf-8")

    @cached_property
    def _nodes(self) -> list[tuple[ast.FunctionDef | None, ast.AST]]:
        return list(_with_functions(ast.parse(self._source)))

    @cached_property
    def _functions(self) -> dict[str, ast.FunctionDef]:
        return {node.name: node for _, node in self._nodes if isinstance(node, ast.FunctionDef)}

    @cached_property
    def _constants(self) -> dict[str, str]:
        return {
            node.targets[0].id: node.value.value
            for function, node in self._nodes
            if function is None
            and isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        }

    @cached_property
    def _imports(self) -> dict[str, tuple[str | None, str]]:
        return {
            alias.asname or alias.name: (node.module, alias.name)
            for _, node in self._nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    def messages(self, kinds: frozenset[str]) -> Iterator[Message]:
        """Those of all exceptions whose class is one of `kinds`."""
        if not any(kind in self._source for kind in {*kinds, "warn("}):
            return
        makers = dict(self._makers(kinds))
        for function, call in self._nodes:
            if not isinstance(call, ast.Call):
                continue
            if maker := makers.get(_last_name(call.func) or ""):
                made, known = maker[1], self._given(call, function, maker[0])
            elif _kind(call, kinds) and not (function and function.name in makers):
                made, known = call, self._known(function)
            else:
                continue
            for text in filter(has_words, self._texts(made.args[0], known)):
                yield Message(self._path, call.lineno, _kind(made, kinds) or "", text)

    def _given(self, call: ast.Call, function: ast.FunctionDef | None, maker: ast.FunctionDef) -> Texts:
        """The strings that names within `maker` stand for when it is called so in `function`."""
        parameters = [argument.arg for argument in maker.args.args if argument.arg != "self"]
        given = zip(parameters, call.args, strict=False)
        known = self._known(function)
        return {**self._known(maker), **{name: self._texts(value, known) for name, value in given}}

    def _makers(self, kinds: frozenset[str]) -> Iterator[tuple[str, tuple[ast.FunctionDef, ast.Call]]]:
        """Functions that return an exception, which they make in one place from what they are given."""
        for name, function in self._functions.items():
            if function.returns is None or ast.unparse(function.returns) not in kinds:
                continue
            made = [call for call in ast.walk(function) if isinstance(call, ast.Call) and _kind(call, kinds)]
            parameters = {argument.arg for argument in function.args.args}
            if len(made) == 1 and parameters & set(_names_in(made[0])):
                yield name, (function, made[0])

    def _known(self, function: ast.FunctionDef | None) -> Texts:
        """The strings that names within `function` stand for."""
        if function is None:
            return {}
        if function not in self._known_in:
            found: dict[str, list[str]] = {}
            self._known_in[function] = {}
            for node in ast.walk(function):
                match node:
                    case (
                        ast.Assign(targets=[ast.Name(id=name)], value=value)
                        | ast.NamedExpr(target=ast.Name(id=name), value=value)
                    ):
                        found.setdefault(name, []).extend(self._texts(value, _with_words(found)))
            self._known_in[function] = _with_words(found)
        return self._known_in[function]

    def constant(self, name: str) -> list[str]:
        """The string that has the name `name` in the whole module; none if it is none."""
        if name in self._constants:
            return [self._constants[name]]
        module = self._imported(name)
        return module.constant(self._imports[name][1]) if module else []

    def returned(self, name: str) -> list[str]:
        """The strings that the function `name` chooses from; none if it does anything else."""
        if name not in self._functions:
            module = self._imported(name)
            return module.returned(self._imports[name][1]) if module else []
        if name not in self._returned_by:
            self._returned_by[name] = []  # of one that calls itself
            function = self._functions[name]
            if function.returns and ast.unparse(function.returns).removesuffix(" | None") == "str":
                known = self._known(function)
                values = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value]
                texts = _without_nothing(text for value in values for text in self._texts(value, known))
                if all(map(has_words, texts)):
                    self._returned_by[name] = texts
        return self._returned_by[name]

    def _imported(self, name: str) -> Module | None:
        return self._package.modules.get(self._imports.get(name, ("", ""))[0] or "")

    def _texts(self, node: ast.expr, known: Texts) -> list[str]:
        """What `node` may be as text."""
        match node:
            case ast.Constant(value=None):
                return [""]
            case ast.Constant(value=value):
                return [str(value)]
            case ast.JoinedStr(values=parts):
                return self._joined("", parts, known)
            case ast.Call(
                func=ast.Attribute(ast.Constant(str(separator)), "join"), args=[ast.List(elts=parts)]
            ):
                return self._joined(separator, parts, known)
            case ast.FormattedValue(value=value, conversion=conversion):
                quote = "'" if conversion == ord("r") else ""
                return [f"{quote}{text}{quote}" if text else "" for text in self._texts(value, known)]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                texts = self._joined("", [left, right], known)
                return texts if all(map(has_words, texts)) else [_standing_for(node)]
            case ast.IfExp(body=body, orelse=other):
                return _without_nothing([*self._texts(body, known), *self._texts(other, known)])
            case ast.BoolOp(op=ast.Or(), values=[first, *_]):
                return self._texts(first, known)
            case ast.Name(id=name) if name in known:
                return list(known[name])
            case ast.Name(id=name) if texts := self.constant(name):
                return texts
            case ast.Call(func=ast.Name(id=name)) if texts := self.returned(name):
                return texts
        return [_standing_for(node)]

    def _joined(self, separator: str, parts: Iterable[ast.expr], known: Texts) -> list[str]:
        choices = itertools.product(*(self._texts(part, known) for part in parts))
        joined = (separator.join(chosen) for chosen in choices)
        return list(dict.fromkeys(itertools.islice(joined, _MOST_ALTERNATIVES)))


def _with_words(known: Texts) -> Texts:
    return {name: texts for name, texts in known.items() if all(map(has_words, texts))}


def _without_nothing(texts: Iterable[str]) -> list[str]:
    """What a message says where it says something."""
    found = list(dict.fromkeys(texts))
    return list(filter(None, found)) or found


def _kind(call: ast.Call, kinds: frozenset[str]) -> str | None:
    """The class of the exception or the warning that `call` makes."""
    name = _last_name(call.func)
    if name == "warn" and call.args:
        return (_last_name(call.args[1]) if len(call.args) > 1 else None) or WARNING
    return name if name in kinds and call.args else None


def _standing_for(node: ast.expr) -> str:
    """A placeholder for the value of `node`, named after what it is made from."""
    match node:
        case ast.Name(id=name):
            return placeholder(name)
        case ast.Attribute(value=value, attr=name):
            return placeholder(*([] if ast.unparse(value) == "self" else _names_in(value)), name)
        case ast.Call(func=function, args=[_, argument]) if _last_name(function) == "map":
            return _standing_for(argument)
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _OF_STRINGS:
            return _standing_for(value)
        case ast.Call(func=function, args=[ast.Constant(), *_]):
            return placeholder(_last_name(function) or "value")
        case ast.Call(args=[argument]) | ast.Starred(value=argument):
            return _standing_for(argument)
        case ast.Call(func=function):
            return placeholder(_last_name(function) or "value")
        case ast.Subscript(value=value) | ast.GeneratorExp(elt=value) | ast.ListComp(elt=value):
            return _standing_for(value)
        case ast.BinOp(left=value) | ast.BoolOp(values=[value, *_]) | ast.NamedExpr(value=value):
            return _standing_for(value)
        case ast.List(elts=[value, *_]) | ast.Tuple(elts=[value, *_]):
            return _standing_for(value)
    return "‹…›"


def _with_functions(tree: ast.AST) -> Iterator[tuple[ast.FunctionDef | None, ast.AST]]:
    """All nodes, each with the function that it stands in."""
    pending: list[tuple[ast.FunctionDef | None, ast.AST]] = [(None, tree)]
    while pending:
        function, node = pending.pop()
        yield function, node
        inner = node if isinstance(node, ast.FunctionDef) else function
        pending += [(inner, child) for child in ast.iter_child_nodes(node)]


def _names_in(node: ast.AST) -> list[str]:
    """All names in `node`, the outermost of a chain first."""
    return [_last_name(n) or "" for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)][::-1]


def _last_name(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None
