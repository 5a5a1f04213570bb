"""The headers that a compilation depends on: by the name under which it looked them up, and by content.

A name is the canonical name of a project's header, or the path below the directory of the search path that
leads to it, or else an absolute path. So a header that appears earlier on the search path, or lies elsewhere
on another machine, counts by its content alone. A name after a question mark was only tested, as
``__has_include`` does: then it counts whether, and in which directory, the header exists.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING

from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.filesystem.regular_file import read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

__all__ = ["Resolver", "header_names", "make_dependencies"]

# Patterns, which the module re compiles when they are first used.
_HAS_INCLUDE = rb'\b__has_include\w*\s*\(\s*[<"]([^>"\n]+)[>"]'
_QUOTED = rb'(?m)^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"'
# A name that is a macro, and the values of macros.
_BY_MACRO = rb"(?:__has_include\w*\s*\(|#[ \t]*include\b)\s*[A-Za-z_]"
_DEFINED = rb'(?m)^[ \t]*#[ \t]*define\b[^\n<"]*[<"]([^>"\n]+)[>"]'


def header_names(opened: Iterable[str], unit: TranslationUnit, search_path: Sequence[Path]) -> frozenset[str]:
    """The names of the headers that the compilation of `unit` has `opened`, or may have tested.

    `opened` are canonical names of the project's headers, and the paths of all others.
    """
    names = set(_tested(unit.source))
    directories = tuple(os.path.normpath(d) + os.sep for d in search_path)
    for path in opened:
        if path in unit.headers:
            names.add(path)
            names.update(_tested(unit.headers[path]))
        else:
            names.update(_names(path, directories))
    return frozenset(names - {unit.name})


@cache
def _names(path: str, directories: tuple[str, ...]) -> frozenset[str]:
    """The name of the header at `path`, and the names that it tests."""
    path = os.path.normpath(path)
    try:
        content = read_file(path)
    except OSError:
        content = b""
    # Quoted names are looked up beside the header first, and then on the search path, where they were found.
    beside = (f"{os.path.dirname(path)}/{os.fsdecode(name)}" for name in re.findall(_QUOTED, content))
    tested = [f"?{_name(os.path.normpath(place), directories)}" for place in beside]
    name = _name(path, directories)
    if name == path:  # others of that name come first on the search path
        tested += (f"?{path.removeprefix(d)}" for d in directories if path.startswith(d))
    return frozenset([name, *tested, *_tested(content)])


def _name(path: str, directories: tuple[str, ...]) -> str:
    """The shortest name with which the search path leads to the file at `path`, or else its path."""
    holding = sorted((d for d in directories if path.startswith(d)), key=len, reverse=True)
    for directory in holding:
        name = path.removeprefix(directory)
        if next((d for d in directories if d == directory or os.path.isfile(d + name)), None) == directory:
            return name.replace(os.sep, "/")
    return path


@cache
def _tested(content: bytes) -> frozenset[str]:
    names = re.findall(_HAS_INCLUDE, content)
    if re.search(_BY_MACRO, content):
        names += re.findall(_DEFINED, content)
    return frozenset(f"?{os.fsdecode(name)}" for name in names)


def make_dependencies(rule: str) -> list[str]:
    """The prerequisites in a Makefile `rule`, as ``-MD`` writes it.

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
        """The digest of a header that is not the project's, or the place of one that was tested."""
        if name not in self._resolved:
            self._resolved[name] = self._place(name[1:]) if name.startswith("?") else self._content(name)
        return self._resolved[name]

    def file(self, name: str) -> str | None:
        """The file that `name` leads to, if there is one."""
        places = self._places(name.removeprefix("?"))
        return next((place for place in places if os.path.isfile(place)), None)

    def _content(self, name: str) -> str | None:
        return next(filter(None, map(self._digest, self._places(name))), None)

    def _place(self, name: str) -> str | None:
        return next((str(i) for i, path in enumerate(self._places(name)) if os.path.isfile(path)), None)

    def _places(self, name: str) -> Sequence[str]:
        return [name] if os.path.isabs(name) else [directory + name for directory in self._search_path]
