"""The headers that a compilation depends on: by name as it looked them up, and by content.

A name is the canonical one of a project's header, or the path below the directory of the search path that
leads to it, or else an absolute path. So a header that appears earlier on the search path, or on another
machine in another place, is told from its content alone. A name behind a question mark was only asked about,
as ``__has_include`` does: what counts is whether, and in which directory, it is there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

from cuda_ext.compiler.translation_unit import TranslationUnit

__all__ = ["Resolver", "looked_up", "make_dependencies"]

_HAS_INCLUDE = re.compile(rb'\b__has_include\w*\s*\(\s*[<"]([^>"\n]+)[>"]')
_QUOTED = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
# A name that is a macro, and what macros stand for.
_BY_MACRO = re.compile(rb"(?:__has_include\w*\s*\(|#[ \t]*include\b)\s*[A-Za-z_]")
_DEFINED = re.compile(rb'^[ \t]*#[ \t]*define\b[^\n<"]*[<"]([^>"\n]+)[>"]', re.MULTILINE)


def looked_up(opened: Iterable[str], unit: TranslationUnit, search_path: Sequence[Path]) -> frozenset[str]:
    """The names of the headers that the compilation of `unit` has `opened`, or may have asked about.

    What was opened are canonical names and the paths of all others.
    """
    names = set(_asked_about(unit.source))
    directories = tuple(os.path.normpath(d) + os.sep for d in search_path)
    for path in opened:
        if path in unit.headers:
            names.add(path)
            names.update(_asked_about(unit.headers[path]))
        else:
            names.update(_names(path, directories))
    return frozenset(names - {unit.name})


@cache
def _names(path: str, directories: tuple[str, ...]) -> frozenset[str]:
    """The name of the header at `path`, and those that it asks about."""
    path = os.path.normpath(path)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        content = b""
    # Such names are looked up beside the header first, and then on the search path, where they were found.
    beside = (f"{os.path.dirname(path)}/{os.fsdecode(name)}" for name in _QUOTED.findall(content))
    asked = (f"?{_name(os.path.normpath(place), directories)}" for place in beside)
    return frozenset([_name(path, directories), *asked, *_asked_about(content)])


def _name(path: str, directories: tuple[str, ...]) -> str:
    """The shortest name of the file at `path` that the search path leads to it with, or else its path."""
    holding = sorted((d for d in directories if path.startswith(d)), key=len, reverse=True)
    for directory in holding:
        name = path.removeprefix(directory)
        if next((d for d in directories if d == directory or os.path.exists(d + name)), None) == directory:
            return name.replace(os.sep, "/")
    return path


@cache
def _asked_about(content: bytes) -> frozenset[str]:
    names = _HAS_INCLUDE.findall(content)
    if _BY_MACRO.search(content):
        names += _DEFINED.findall(content)
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
    """What names lead to now: the digest of each header, ``None`` where there is none.

    `digest` gives that of a file. One instance is for one moment: it looks at every place once.
    """

    def __init__(self, search_path: Sequence[Path], digest: Callable[[str], str | None]) -> None:
        self._search_path = [f"{directory}{os.sep}" for directory in search_path]
        self._digest = digest
        self._found: dict[str, str | None] = {}

    def __call__(self, name: str) -> str | None:
        """The digest of a header that is not the project's, or where one is that was asked about."""
        if name not in self._found:
            self._found[name] = self._where(name[1:]) if name.startswith("?") else self._what(name)
        return self._found[name]

    def file(self, name: str) -> str | None:
        """The file that `name` leads to, if there is one."""
        places = self._places(name.removeprefix("?"))
        return next((place for place in places if os.path.isfile(place)), None)

    def _what(self, name: str) -> str | None:
        return next(filter(None, map(self._digest, self._places(name))), None)

    def _where(self, name: str) -> str | None:
        return next((str(i) for i, path in enumerate(self._places(name)) if os.path.exists(path)), None)

    def _places(self, name: str) -> Sequence[str]:
        return [name] if os.path.isabs(name) else [directory + name for directory in self._search_path]
