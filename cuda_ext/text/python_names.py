"""Names in Python statements: what they bind, read and change."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
# A name, and the attributes behind it.
Chain: TypeAlias = tuple[str, ...]
# Methods that change a container, whatever takes their result.
_CHANGING = re.compile(
    "add|append|clear|discard|extend|insert|pop|popitem|remove|reverse|setdefault|sort|update"
)


def nodes_of_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield `node` and the nodes in it, in order, without the bodies of functions and classes.

    Variables of comprehensions are left out, too.
    """
    yield node
    if isinstance(node, ast.comprehension):
        inner: Iterable[ast.AST] = (node.iter, *node.ifs)
    else:
        inner = () if isinstance(node, Function | ast.ClassDef) else ast.iter_child_nodes(node)
    for child in inner:
        yield from nodes_of_scope(child)


def bound_names(statement: ast.AST) -> Iterator[str]:
    """Yield the names that `statement` binds or deletes; ``*`` for ``import *``."""
    for node in nodes_of_scope(statement):
        match node:
            case ast.Name(name, ast.Store() | ast.Del()):
                yield name
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                yield name
            case ast.alias(name, alias):
                yield alias or name.partition(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(str(name)):
                yield name


def changed_chains(statement: ast.AST, *, inside: bool = False) -> Iterator[Chain]:
    """Yield what `statement` changes by assignments to attributes and items, and by methods of containers.

    The bodies of functions in it count only if `inside` is true.
    """
    for node in ast.walk(statement) if inside else nodes_of_scope(statement):
        match node:
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                yield _behind_items(node)
            case ast.Call(ast.Name("setattr" | "delattr"), [owner, ast.Constant(str(name)), *_]):
                yield (*_behind_items(owner), name)
            case ast.Call(ast.Name("setattr" | "delattr"), [owner, *_]):
                yield _behind_items(owner)
            case ast.Call(ast.Attribute(owner, method)) if _CHANGING.fullmatch(method):
                yield _behind_items(owner)


def called_chains(statement: ast.AST) -> Iterator[Chain]:
    """Yield what calls in `statement` may change, since nothing takes what these return.

    They are the owner of the method and the arguments.
    """
    for node in nodes_of_scope(statement):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            for each in (call.func, *call.args, *(keyword.value for keyword in call.keywords)):
                yield _behind_items(each)


def aliases(statement: ast.AST) -> Iterator[tuple[Chain, str]]:
    """Yield what `statement` gives other names to, as ``E = D`` and ``for E in D`` do, and these names."""
    for node in nodes_of_scope(statement):
        match node:
            case ast.Assign(targets, value):
                pass
            case ast.AnnAssign(target, value=ast.expr() as value) | ast.NamedExpr(target, value):
                targets = [target]
            case ast.For(target, value):
                targets = [target]
            case _:
                continue
        for target in targets:
            for name in bound_names(target):
                yield _behind_items(value), name


def changed_by(function: ast.FunctionDef) -> Iterator[str]:
    """Yield the names of the module that the body of `function` changes, or declares as ``global``."""
    own = _own_names(function)
    yield from (chain[0] for chain in changed_chains(function, inside=True) if chain and chain[0] not in own)
    yield from _declared_global(function.body)


def called_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the last names of the functions that `nodes` call."""
    for node in nodes:
        match node:
            case ast.Call(ast.Name(name) | ast.Attribute(_, name)):
                yield name


def binds_by_texts(statement: ast.AST) -> bool:
    """Return True if `statement` may bind any name: it uses the namespace of its module, or runs a text."""
    for node in nodes_of_scope(statement):
        match node:
            case ast.Call(ast.Name("globals" | "locals" | "exec")) | ast.Call(ast.Name("vars"), []):
                return True
            case ast.Subscript(ast.Attribute(_, "modules"), ast.Name("__name__")):
                return True
    return False


def _behind_items(node: ast.expr) -> Chain:
    """Return the names of ``a.b[0].c`` up to its first item; none for another expression."""
    parts = [node]
    while isinstance(parts[-1], ast.Attribute | ast.Subscript | ast.Starred):
        parts.append(parts[-1].value)
    spelled = [names for part in parts if (names := _spelled(part))]
    return spelled[0] if spelled else ()


def read_chains(node: ast.AST, local: frozenset[str] = frozenset()) -> Iterator[Chain]:
    """Yield the names outside of `local` that `node` reads, each with the attributes behind it.

    The bodies of functions and classes count.
    """
    match node:
        case ast.Name(_, ast.Store()):
            return
        case ast.Name() | ast.Attribute() if names := _spelled(node):
            if names[0] not in local:
                yield names
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            for part in parts_outside(node):
                yield from read_chains(part, local)
            yield from _read_inside(node, local)
        case ast.ClassDef():
            yield from _read_class(node, local)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            inner = local.union(*(bound_names(each.target) for each in node.generators))
            for child in ast.iter_child_nodes(node):
                yield from read_chains(child, inner)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from read_chains(child, local)


def _spelled(node: ast.expr) -> Chain:
    """Return ``a.b.c`` as its names; empty for another expression."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if not isinstance(node, ast.Attribute):
        return ()
    before = _spelled(node.value)
    return (*before, node.attr) if before else ()


def parts_outside(function: Function) -> Iterator[ast.expr]:
    """Yield what runs when `function` is defined: decorators, defaults and annotations."""
    arguments = function.args
    yield from arguments.defaults
    yield from (default for default in arguments.kw_defaults if default)
    if not isinstance(function, ast.Lambda):
        yield from function.decorator_list
        yield from (each.annotation for each in parameters_of(arguments) if each.annotation)
        yield from [function.returns] if function.returns else []


def parameters_of(arguments: ast.arguments) -> Iterator[ast.arg]:
    """Yield all parameters, ``*args`` and ``**kwargs`` too."""
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (each for each in (arguments.vararg, arguments.kwarg) if each)


def _read_inside(function: Function, local: frozenset[str]) -> Iterator[Chain]:
    own = _own_names(function)
    for node in _body_of(function):
        yield from read_chains(node, local | own)


def _body_of(function: Function) -> Sequence[ast.AST]:
    return [function.body] if isinstance(function, ast.Lambda) else function.body


def _own_names(function: Function) -> set[str]:
    body = _body_of(function)
    own = {each.arg for each in parameters_of(function.args)}.union(*map(bound_names, body))
    return own.difference(_declared_global(body))


def _declared_global(body: Iterable[ast.AST]) -> Iterator[str]:
    for node in body:
        for each in ast.walk(node):
            yield from each.names if isinstance(each, ast.Global) else ()


def _read_class(node: ast.ClassDef, local: frozenset[str]) -> Iterator[Chain]:
    """Names of a class are visible in its statements, and not in its methods."""
    for outside in (*node.bases, *(keyword.value for keyword in node.keywords), *node.decorator_list):
        yield from read_chains(outside, local)
    own = local.union(*map(bound_names, node.body))
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from chain.from_iterable(read_chains(part, own) for part in parts_outside(statement))
            yield from _read_inside(statement, local)
        else:
            yield from read_chains(statement, own)
