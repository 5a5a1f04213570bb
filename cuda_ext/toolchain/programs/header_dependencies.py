"""The headers that a compilation depends on: by the name under which it looked them up, and by content.

A name is the canonical name of a project's header, or the path of a header below its directory of the search
path, or else an absolute path. So a header that appears earlier on the search path, or lies elsewhere
on another machine, counts only by its content. A name after a question mark was only tested, as by
``__has_include``: the dependency is then on its existence, and on the directory that has it.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING

from cuda_ext.compiler.translation_unit import NAMED, TranslationUnit
from cuda_ext.filesystem.regular_file import read_file
from cuda_ext.text.directives import definitions_of
from cuda_ext.text.includes import find_includes, names_in_macros

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

# CCCL's spelling of names of headers of its back ends.
_BEGINS_WITH_MACRO = re.compile(r"[A-Z_][A-Z0-9_]*(?=/)")


def header_names(opened: Iterable[str], unit: TranslationUnit, search_path: Sequence[Path]) -> frozenset[str]:
    """Return the names of the headers that the compilation of `unit` has `opened`, or may have tested.

    `opened` are canonical names of the project's headers, and the paths of all others.
    """
    names = set(_tested(unit.source))
    directories = tuple(os.path.normpath(d) + os.sep for d in search_path)
    for path in opened:
        if path not in unit.headers and f"{NAMED}{path}" in unit.headers:
            names.add(f"{NAMED}{path}")
        elif path in unit.headers:
            names.add(path)
            names.update(_tested(unit.headers[path]))
        else:
            names.update(_names(path, directories))
    return frozenset(names - {unit.name})


def reachable_headers(unit: TranslationUnit, search_path: Sequence[Path]) -> set[str]:
    """Find all headers that `unit` includes under any condition, for a compiler that does not name them.

    They are as :func:`header_names` takes them. A name that is a macro may be any that a macro is defined as;
    of one with further macros in it, only the last part is known.
    """
    tree = _HeaderTree([os.path.normpath(directory) for directory in search_path])
    given = definitions_of(unit.options.define, unit.options.raw)
    pending = [found for name in unit.options.pre_include for found in tree.find(name)]
    for text in (unit.source, *unit.headers.values(), given):
        pending += (found for name in _included(text) for found in tree.find(name))
    reached = set(unit.headers)
    while pending:
        path = pending.pop()
        if path not in reached:
            reached.add(path)
            pending += (found for name in _included_by(path) for found in tree.find(name, path))
    return reached


class _HeaderTree:
    """The files in the directories of a search path. Each directory is listed once."""

    def __init__(self, search_path: Sequence[str]) -> None:
        self._search_path = search_path
        self._listed: dict[str, frozenset[str]] = {}
        # By name: the files in all directories, and those to which it leads.
        self._places: dict[str, list[str]] = {}
        self._found: dict[str, list[str]] = {}
        self._libraries: dict[str, list[str]] = {}

    def find(self, name: str, includer: str = "") -> list[str]:
        """Return the files that `name` may lead to in the header `includer`."""
        if name not in self._found:
            paths = (os.path.normpath(os.path.join(directory, name)) for directory in self._search_path)
            self._places[name] = list(filter(self._is_file, paths))
            self._found[name] = self._places[name][:1]
        found, beside = self._found[name], os.path.dirname(includer)
        near = os.path.normpath(os.path.join(beside, name)) if beside else ""
        if includer and includer in (near, *self._places[name][:1]):
            return self._places[name]  # include_next
        if near and self._is_file(near):
            return [near, *found]
        if beside and not found and (macro := _BEGINS_WITH_MACRO.match(name)):
            ending = name.removeprefix(macro[0]).replace("/", os.sep)
            found = [path for path in self._library(beside) if path.endswith(ending)]
            self._found[name] = found
        return found

    def _library(self, directory: str) -> list[str]:
        """List the files of the library of `directory`, such as ``thrust`` in an include directory."""
        above = next((d for d in self._search_path if directory.startswith(d + os.sep)), directory)
        library = os.path.join(above, directory.removeprefix(above + os.sep).partition(os.sep)[0])
        if library not in self._libraries:
            walk = os.walk(library)
            self._libraries[library] = [os.path.join(at, file) for at, _, files in walk for file in files]
        return self._libraries[library]

    def _is_file(self, path: str) -> bool:
        directory, _, file = path.rpartition(os.sep)
        if directory not in self._listed:
            try:
                with os.scandir(directory) as entries:
                    self._listed[directory] = frozenset(e.name for e in entries if not e.is_dir())
            except OSError:
                self._listed[directory] = frozenset()
        return file in self._listed[directory]


def _included_by(path: str) -> frozenset[str]:
    """Return the names that the header at `path` includes."""
    try:
        status = os.stat(path)
        return _read_includes(path, status.st_mtime_ns, status.st_size)
    except OSError:
        return frozenset()


@cache
def _read_includes(path: str, *_state: int) -> frozenset[str]:
    return _included(read_file(path))


def _included(content: bytes) -> frozenset[str]:
    named = frozenset(include.name for include in find_includes(content).named)
    return named | names_in_macros(content)


@cache
def _names(path: str, directories: tuple[str, ...]) -> frozenset[str]:
    """Return the name of the header at `path`, and the names that it tests."""
    path = os.path.normpath(path)
    try:
        content = read_file(path)
    except OSError:
        content = b""
    # Quoted names are looked up beside the header first, and then on the search path, where they were found.
    named = (each for each in find_includes(content).named if each.is_quoted and not each.is_test)
    beside = (f"{os.path.dirname(path)}/{each.name}" for each in named)
    tested = [f"?{_name(os.path.normpath(place), directories)}" for place in beside]
    name = _name(path, directories)
    if name == path:  # others of that name come first on the search path
        tested += (f"?{path.removeprefix(d)}" for d in directories if path.startswith(d))
    return frozenset([name, *tested, *_tested(content)])


def _name(path: str, directories: tuple[str, ...]) -> str:
    """Return the shortest name with which the search path leads to the file at `path`, or else its path."""
    holding = sorted((d for d in directories if path.startswith(d)), key=len, reverse=True)
    for directory in holding:
        name = path.removeprefix(directory)
        if next((d for d in directories if d == directory or os.path.isfile(d + name)), None) == directory:
            return name.replace(os.sep, "/")
    return path


@cache
def _tested(content: bytes) -> frozenset[str]:
    """Return the names that `content` tests, or may include or test by macros."""
    found = find_includes(content)
    names = {include.name for include in found.named if include.is_test}
    if found.tests_macros or found.by_macro:
        names |= names_in_macros(content)
    return frozenset(f"?{name}" for name in names)


def make_dependencies(rule: str) -> list[str]:
    """Return the prerequisites in a Makefile `rule`, as ``-MD`` writes it.

    >>> make_dependencies("a.o : a.cu \\\\\\n    with\\\\ space.h\\n")
    ['a.cu', 'with space.h']
    """
    # ccache leaves no space before the colon.
    _, prerequisites = re.split(r"\s*:\s", rule.replace("\\\n", " "), maxsplit=1)
    prerequisites = prerequisites.replace("$$", "$")
    return [re.sub(r"\\(.)", r"\1", name) for name in re.findall(r"(?:\\.|\S)+", prerequisites)]


class Resolver:
    """Resolves names to the digests of headers, ``None`` where there is none.

    `digest` computes that of a file. An instance looks at every place once, and is for one build.
    """

    def __init__(self, search_path: Sequence[Path], digest: Callable[[str], str | None]) -> None:
        self._search_path = [f"{directory}{os.sep}" for directory in search_path]
        self._digest = digest
        self._resolved: dict[str, str | None] = {}

    def __call__(self, name: str) -> str | None:
        """Return the digest of a header that is not the project's, or the place of one that was tested."""
        if name not in self._resolved:
            self._resolved[name] = self._place(name[1:]) if name.startswith("?") else self._content(name)
        return self._resolved[name]

    def file(self, name: str) -> str | None:
        """Return the file that `name` leads to, if there is one."""
        places = self._places(name.removeprefix("?"))
        return next((place for place in places if os.path.isfile(place)), None)

    def _content(self, name: str) -> str | None:
        return next(filter(None, map(self._digest, self._places(name))), None)

    def _place(self, name: str) -> str | None:
        return next((str(i) for i, path in enumerate(self._places(name)) if os.path.isfile(path)), None)

    def _places(self, name: str) -> Sequence[str]:
        return [name] if os.path.isabs(name) else [directory + name for directory in self._search_path]
