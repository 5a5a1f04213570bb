"""Slices of Python sources: the statements that some functions need, in all files of a project.

A slice has the functions, the statements that bind the names that they read or change their values, and what
these need in turn, followed through imports. It is found in the texts: nothing runs. Statements keep their
lines. Decorators for tuning and those around a compiler's own decorator are left out.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache

from cuda_ext.compiler.front_ends.python_file import PythonFile, Statement, modules_of, possible_files
from cuda_ext.compiler.front_ends.python_functions import COMPILED, name_of_decorator
from cuda_ext.text.python_names import (
    Chain,
    called_chains,
    changed_chains,
    nodes_of_scope,
    parameters_of,
    read_chains,
)

# The name in a module of a function that stands for an import that failed: its line, and what it imports.
MISSING = "__cuda_ext_missing__"
# Decorators that choose the constants of a kernel.
_TUNING = re.compile(r"(.+\.)?triton\.(\w+\.)*(autotune|heuristics)")
_IN_EACH_MODULE = {*dir(builtins), "__file__", "__name__", "__package__", "__path__", "__spec__", "__doc__"}
# The modules of annotations that compilers read.
_OF_COMPILERS = {*sys.stdlib_module_names, "triton", "cuda"}
_Import = ast.Import | ast.ImportFrom

_parse = lru_cache(maxsize=None)(PythonFile)


@cache
def _words(source: bytes) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", source.decode(errors="replace")))


class Slice:
    """The statements that `names` of the file `path` need, in the files `contents`.

    `public_names` returns the names that ``import *`` imports from a module of another package.
    ``unresolved`` are reasons for which it may lack statements. Raises :class:`SyntaxError` or
    :class:`ValueError` for a file that is no Python.
    """

    def __init__(
        self,
        contents: Mapping[str, bytes],
        path: str,
        names: Iterable[str],
        public_names: Callable[[str], Container[str]],
    ) -> None:
        self._contents, self._paths, self._public_names = contents, modules_of(contents), public_names
        self.unresolved: list[str] = []
        self._looked_up: set[str] = set()
        self._of_others: set[str] = set()  # attributes of modules, not of Python's own
        self._read_files: set[str] = set()
        self._seen: set[tuple[PythonFile, Chain]] = set()
        self._searched: list[tuple[PythonFile, str]] = []
        self._kept: set[ast.AST] = set()
        self._with_decorators: set[ast.AST] = set()
        self._stars: dict[ast.AST, dict[str, None]] = defaultdict(dict)
        self._in_annotations: dict[str, set[str]] = defaultdict(set)
        module = next(name for name, each in self._paths.items() if each == path)
        own = self._file(module)
        self._waiting: list[tuple[PythonFile, Chain]] = [
            (own, (name,))
            for name in sorted(names)  # a dtype is no name of the file
            if name in own.binders or self._by_star(own, name)
        ]
        while self._waiting:
            self._need(*self._waiting.pop())
        self.unresolved += self._find_changes()

    def tree(self, module: str) -> ast.Module:
        """Return the statements of `module` that are needed."""
        file = self._file(module)
        return ast.Module([*self._select(file, file.tree.body)], [])

    @property
    def reads(self) -> frozenset[str]:
        """The files that determine the slice, and those that would if they existed."""
        modules = (
            n for n in self._looked_up if n.partition(".")[0] not in _OF_COMPILERS - self._paths.keys()
        )
        possible = (file for module in modules for file in possible_files(module.replace(".", "/")))
        return frozenset(possible) | self._read_files

    def in_annotations(self, module: str) -> set[str]:
        """Return the names of other packages that annotations of `module` have. Triton looks them up."""
        return self._in_annotations[module]

    def _file(self, module: str) -> PythonFile:
        path = self._paths[module]
        self._read_files |= {path} - {""}
        return _parse(module, path, self._contents[path] if path else b"")

    def _need(self, file: PythonFile, names: Chain) -> None:
        if (file, names) in self._seen:
            return
        self._seen.add((file, names))
        name, *attributes = names
        for statement in (*file.binders.get(name, ()), *file.binders_of_any):
            self._keep(file, statement, name, attributes)
        is_variable = self._is_variable(file, name)
        changing = file.calling if is_variable else {}
        for statement in (*file.assigning.get(name, ()), *changing.get(name, ())):
            self._keep(file, statement)
        if is_variable:
            self._waiting += ((file, (alias,)) for alias in file.aliases.get(name, ()) if alias != name)
        if name in file.setters:
            self._keep_callers(file, name)
        first = min((each.node.lineno for each in file.binders.get(name, ())), default=0)
        self._look_elsewhere(file, name, attributes, first)

    def _keep_callers(self, file: PythonFile, name: str) -> None:
        """Keep the statements that call functions which change `name`. Other files must have none."""
        for statement in file.callers(file.setters[name]):
            self._with_decorators.add(statement.node)
            self._keep(file, statement)
        others = [self._file(module) for module in self._paths]
        if any(other is not file and [*other.callers(file.setters[name])] for other in others):
            self.unresolved.append(f"other files call functions that assign {name} of {file.path}")

    def _find_changes(self) -> Iterator[str]:
        """Yield a reason for each statement that is not kept and changes what is needed of another module."""
        seen = {(file, name) for file, (name, *_) in self._seen if name in file.binders}
        variables = {f"{file.module}.{name}" for file, name in seen if self._is_variable(file, name)}
        needed = {f"{file.module}.{name}" for file, name in seen} | self._of_others
        for module, path in self._paths.items():
            words = _words(self._contents[path]) if path else ()
            if not any(name.rpartition(".")[2] in words for name in needed):
                continue
            file = self._file(module)
            for chains, names in ((changed_chains, needed), (called_chains, variables)):
                for full, statement in file.changes(chains):
                    parts = full.split(".")
                    found = names.intersection(".".join(parts[:end]) for end in range(2, len(parts) + 1))
                    if found and statement.node not in self._kept:
                        yield f"{path}:{statement.node.lineno} changes {min(found)}"

    def _is_variable(self, file: PythonFile, name: str, seen: frozenset[PythonFile] = frozenset()) -> bool:
        """Return True if calls may change the value of `name`: it is no module and no function."""
        for node, _ in file.binders.get(name, ()) if file not in seen else ():
            if isinstance(node, ast.ImportFrom):
                names = {alias.asname or alias.name: alias.name for alias in node.names}
                owner = self._definer(file, file.base_of(node), names[name])
                if owner and self._is_variable(owner, names[name], seen | {file}):
                    return True
            elif not isinstance(node, ast.Import | ast.FunctionDef):
                return True
        return False

    def _definer(self, file: PythonFile, base: str, name: str) -> PythonFile | None:
        """Return the module `base` from which `file` imports `name`; ``None`` if that is a module, too."""
        self._looked_up |= {base, f"{base}.{name}"}
        if base not in self._paths:
            return None
        owner, is_module = self._file(base), f"{base}.{name}" in self._paths
        return None if is_module and (owner is file or name not in owner.binders) else owner

    def _keep(
        self, file: PythonFile, each: Statement, name: str = "", attributes: Sequence[str] = ()
    ) -> None:
        """Keep a statement that binds `name`, whose `attributes` are needed."""
        node = each.node
        self._kept |= {node, *each.guards}
        for part in each.guards:
            self._read(file, part.test)
        if isinstance(node, ast.FunctionDef):
            if attributes:  # a decorator may define them
                self._with_decorators.add(node)
            self._read(file, self._reduced(file, node))
        elif not isinstance(node, _Import):
            self._read(file, node)
        own = {*nodes_of_scope(node)}
        for found in ast.walk(node):
            if isinstance(found, _Import):
                for alias in found.names:
                    self._keep_import(file, found, alias, name if found in own else None, attributes)

    def _keep_import(
        self,
        file: PythonFile,
        node: _Import,
        alias: ast.alias,
        name: str | None,
        attributes: Sequence[str],
    ) -> None:
        """Keep an import of `name`, whose `attributes` are needed. Any name of an import in a function is."""
        bound = alias.asname or alias.name.partition(".")[0]
        if name is not None and name != bound:
            if node in self._kept or isinstance(node, ast.Import):
                return
            attributes = ()  # it is in a statement, such as try, that is kept as a whole
        self._kept.add(alias)
        if isinstance(node, ast.Import):
            self._need_module(alias.name if alias.asname else bound, attributes)
        else:
            self._need_from(file, file.base_of(node), alias.name, attributes)

    def _need_from(self, file: PythonFile, base: str, name: str, attributes: Sequence[str]) -> None:
        owner = self._definer(file, base, name)
        if owner:
            self._waiting.append((owner, (name, *attributes)))
            return
        if base in self._paths and self._by_star(self._file(base), name):
            self.unresolved.append(f"{name} of {self._paths[base]} is a module and imported by *")
        self._need_module(f"{base}.{name}", attributes)

    def _need_module(self, module: str, attributes: Sequence[str]) -> None:
        self._looked_up.add(module)
        if attributes and module.partition(".")[0] not in sys.stdlib_module_names:
            self._of_others.add(f"{module}.{attributes[0]}")
        if module in self._paths:
            file = self._file(module)
            names = [tuple(attributes)] if attributes else [(name,) for name in file.binders if name != "*"]
            self._waiting += ((file, each) for each in names)

    def _read(self, file: PythonFile, node: ast.AST) -> None:
        self._waiting += ((file, names) for names in read_chains(node))

    def _look_elsewhere(self, file: PythonFile, name: str, attributes: Sequence[str], bound: int) -> None:
        """Find a name that no statement of `file` spells: in a package, or by ``import *``.

        If one does, on the line `bound`, each ``import *`` behind it counts.
        """
        if not bound and file.is_package and f"{file.module}.{name}" in self._paths:
            return self._need_from(file, file.module, name, attributes)
        found = bound > 0
        for statement, star in file.stars():
            if star.lineno > bound and self._exports(file, star, name):
                found = True
                self._stars[star][name] = None
                self._kept |= {star, *statement.guards, *star.names}
                self._need_from(file, file.base_of(star), name, attributes)
        if not found and name not in _IN_EACH_MODULE:
            self.unresolved.append(f"no statement defines {name} in {file.path or file.module}")
        return None

    def _exports(self, file: PythonFile, star: ast.ImportFrom, name: str) -> bool:
        """Return True if this ``import *`` imports `name`."""
        base = file.base_of(star)
        if base not in self._paths:
            return name in self._public_names(base)
        owner = self._file(base)
        if owner.exported is not None:
            return name in owner.exported
        if name in owner.binders:
            return "__all__" in owner.binders or not name.startswith("_")
        return self._by_star(owner, name)

    def _by_star(self, file: PythonFile, name: str) -> bool:
        if (file, name) in self._searched:  # by a circle of imports
            return False
        self._searched.append((file, name))
        found = any(self._exports(file, star, name) for _, star in file.stars())
        self._searched.pop()
        return found

    def _select(self, file: PythonFile, body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        for node in body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                yield node
            elif node not in self._kept:
                continue
            elif isinstance(node, ast.If):
                inner = [*self._select(file, node.body)] or [ast.copy_location(ast.Pass(), node)]
                yield ast.copy_location(ast.If(node.test, inner, [*self._select(file, node.orelse)]), node)
            elif isinstance(node, ast.FunctionDef):
                yield self._reduced(file, node)
            elif isinstance(node, _Import):
                yield from self._imports(file, node)
            else:
                yield node

    def _imports(self, file: PythonFile, node: _Import) -> Iterator[ast.stmt]:
        """Yield the needed parts of an import, each by itself.

        One of another package that fails binds its name to what says so when it is used.
        """
        for alias in node.names:
            if alias not in self._kept:
                continue
            part = copy.copy(node)
            part.names = [alias]
            bound = alias.asname or alias.name
            base = file.base_of(node) if isinstance(node, ast.ImportFrom) else alias.name
            if base.partition(".")[0] in self._paths:
                if bound == "*":
                    part.names = [ast.copy_location(ast.alias(name), alias) for name in self._stars[node]]
                yield part
            elif bound == "*" or "." in bound or base.partition(".")[0] in sys.stdlib_module_names:
                yield part
            else:
                text = f"try: 0\nexcept ImportError: {bound} = {MISSING}({node.lineno}, {base!r})"
                (attempt,) = ast.parse(text).body
                vars(attempt)["body"] = [part]
                yield attempt

    def _reduced(self, file: PythonFile, node: ast.FunctionDef) -> ast.FunctionDef:
        """Return a function without decorators around its compiler's, and without foreign annotations."""
        reduced = copy.copy(node)
        names = [name_of_decorator(each, file.imported) for each in node.decorator_list]
        if node not in self._with_decorators:
            compiled = [index for index, name in enumerate(names) if COMPILED.fullmatch(name)]
            inner = range(compiled[-1] if compiled else 0, len(names))
            reduced.decorator_list = [
                node.decorator_list[index] for index in inner if not _TUNING.fullmatch(names[index])
            ]
        reduced.args = copy.deepcopy(node.args)
        for each in parameters_of(reduced.args):
            if each.annotation and self._is_foreign(file, each.annotation):
                each.annotation = None
        if node.returns and self._is_foreign(file, node.returns):
            reduced.returns = None
        return reduced

    def _is_foreign(self, file: PythonFile, annotation: ast.expr) -> bool:
        """Return True for an annotation with names of other packages, which say nothing to compilers."""
        names = {name for name, *_ in read_chains(annotation)}
        foreign = {name for name in names if self._is_unknown(file, name)}
        self._in_annotations[file.module] |= foreign
        return bool(foreign)

    def _is_unknown(self, file: PythonFile, name: str) -> bool:
        if name not in file.binders:
            return name not in _IN_EACH_MODULE and not self._by_star(file, name)
        top = file.imported.get(name, "").partition(".")[0]
        return bool(top) and top not in self._paths and top not in _OF_COMPILERS
