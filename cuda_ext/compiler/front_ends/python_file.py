"""A Python file of a project as statements, by the names that these bind and change."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from cuda_ext.compiler.front_ends.python_functions import imported_names, name_of_decorator
from cuda_ext.compiler.translation_unit import NAMED
from cuda_ext.text.python_names import (
    aliases,
    binds_by_texts,
    bound_names,
    called_chains,
    called_names,
    changed_by,
    changed_chains,
    nodes_of_scope,
)


class Statement(NamedTuple):
    """A statement of a module, or one in the ``if`` statements `guards` of it."""

    node: ast.stmt
    guards: tuple[ast.If, ...]


class PythonFile:
    """The module `module` in the file `path`, which is empty for a directory without ``__init__.py``.

    ``binders`` are the statements that bind each name; ``import *`` binds ``*``, and ``binders_of_any`` may
    bind any. ``assigning`` are those that assign its attributes or items or change it as a container, and
    ``calling`` those that call another method of it, or a function with it. ``aliases`` are its other names.
    Raises :class:`SyntaxError` or :class:`ValueError` if `source` is no Python.
    """

    def __init__(self, module: str, path: str, source: bytes) -> None:
        self.module, self.path = module, path
        self.is_package = not path or path.endswith("__init__.py")
        self.tree = ast.parse(source, path or module)
        self.binders: dict[str, list[Statement]] = defaultdict(list)
        self.assigning: dict[str, list[Statement]] = defaultdict(list)
        self.calling: dict[str, list[Statement]] = defaultdict(list)
        self.aliases: dict[str, dict[str, None]] = defaultdict(dict)
        self.statements = [*_statements(self.tree.body)]
        self.binders_of_any = [each for each in self.statements if binds_by_texts(each.node)]
        for statement in self.statements:
            changed = (chain[0] for chain in changed_chains(statement.node) if chain)
            called = (chain[0] for chain in called_chains(statement.node) if chain)
            for table, names in (
                (self.binders, bound_names(statement.node)),
                (self.assigning, changed),
                (self.calling, called),
            ):
                for name in dict.fromkeys(names):
                    table[name].append(statement)
            for chain, name in aliases(statement.node):
                if chain:
                    self.aliases[chain[0]][name] = None

    @cached_property
    def imported(self) -> dict[str, str]:
        """The names that its imports define, and their full names."""
        return imported_names(self.tree)

    @cached_property
    def exported(self) -> tuple[str, ...] | None:
        """The names that ``import *`` imports, if ``__all__`` lists them."""
        for node, _ in self.binders.get("__all__", ()):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Tuple):
                return tuple(str(each.value) for each in node.value.elts if isinstance(each, ast.Constant))
        return None

    @cached_property
    def setters(self) -> dict[str, set[str]]:
        """The functions that change each name, themselves or by functions of this file."""
        functions = {n.name: n for n, _ in self.statements if isinstance(n, ast.FunctionDef)}
        found: dict[str, set[str]] = defaultdict(set)
        for function in functions.values():
            for name in changed_by(function):
                found[name].add(function.name)
        callers: dict[str, set[str]] = defaultdict(set)
        for function in functions.values():
            for called in functions.keys() & called_names(ast.walk(function)):
                callers[called].add(function.name)
        for names in found.values():
            waiting = [*names]
            while waiting:
                new = callers[waiting.pop()] - names
                names |= new
                waiting += new
        return found

    def callers(self, functions: Container[str]) -> Iterator[Statement]:
        """Yield the statements that call one of `functions`, which may be attributes of modules."""
        for statement in self.statements:
            decorators = getattr(statement.node, "decorator_list", [])
            called = [*called_names(nodes_of_scope(statement.node))]
            called += (name_of_decorator(each, {}).rpartition(".")[2] for each in decorators)
            if any(name in functions for name in called):
                yield statement

    def changes(
        self, chains: Callable[[ast.stmt], Iterable[Sequence[str]]]
    ) -> Iterator[tuple[str, Statement]]:
        """Yield the full names of those `chains` of its statements that begin with an import."""
        for statement in self.statements:
            for chain in chains(statement.node):
                if chain and chain[0] in self._origins:
                    yield ".".join([self._origins[chain[0]], *chain[1:]]), statement

    @cached_property
    def _origins(self) -> dict[str, str]:
        """The full names of what its imports bind, relative ones too."""
        own = {
            alias.asname or alias.name: f"{self.base_of(node)}.{alias.name}"
            for node in nodes_of_scope(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        return {**self.imported, **own}

    def stars(self) -> Iterator[tuple[Statement, ast.ImportFrom]]:
        """Yield the statements ``from module import *``."""
        for statement in self.binders.get("*", ()):
            if isinstance(statement.node, ast.ImportFrom):
                yield statement, statement.node

    def base_of(self, node: ast.ImportFrom) -> str:
        """Return the absolute name of the module from which `node` imports."""
        if not node.level:
            return node.module or ""
        parts = self.module.split(".")
        parts = parts[: max(0, len(parts) - node.level + self.is_package)]
        return ".".join([*parts, *([node.module] if node.module else [])])


def _statements(body: Sequence[ast.stmt], guards: tuple[ast.If, ...] = ()) -> Iterator[Statement]:
    for node in body:
        if not isinstance(node, ast.If):
            yield Statement(node, guards)
            continue
        if not re.fullmatch(r"__name__ == '__main__'|(\w+\.)?TYPE_CHECKING", ast.unparse(node.test)):
            yield from _statements(node.body, (*guards, node))
        yield from _statements(node.orelse, (*guards, node))


def possible_files(module: str) -> Iterator[str]:
    """Yield the files in which Python may find `module`, ``a/b``, in the order of its search."""
    for directory in ("src/", ""):
        yield f"{directory}{module}.py"
        yield f"{directory}{module}/__init__.py"


def modules_of(paths: Iterable[str]) -> dict[str, str]:
    """Return the files of modules by names, for a search in the project's directory and ``src``.

    Files of other packages are in :data:`NAMED`. Directories are packages, too. Their path is empty.
    """
    found: dict[str, str] = {}
    for path in sorted(paths, key=lambda path: not path.startswith("src/")):
        for below in dict.fromkeys((path.removeprefix("src/"), path.removeprefix(NAMED))):
            found.setdefault(re.sub(r"(/__init__)?\.py$", "", below).replace("/", "."), path)
    for name in [*found]:
        while name := name.rpartition(".")[0]:
            found.setdefault(name, "")
    return found
