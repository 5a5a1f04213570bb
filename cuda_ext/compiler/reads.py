"""The headers that a compilation depends on: by name as it looked them up, and by content.

A name is the canonical one of a project's header, or the path below the directory of the search path in which
it was found, or else an absolute path. So a header that appears earlier on the search path, or on another
machine in another place, is told from its content alone. Names in ``__has_include`` count as looked up,
whether or not they lead anywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

from cuda_ext.compiler.translation_unit import TranslationUnit

__all__ = ["Resolver", "looked_up", "make_dependencies"]

_HAS_INCLUDE = re.compile(rb'\b__has_include(?:_next)?\s*\(\s*[<"]([^>"\n]+)[>"]')


def looked_up(opened: Iterable[str], unit: TranslationUnit, search_path: Sequence[Path]) -> frozenset[str]:
    """The names of the headers that the compilation of `unit` has `opened`, with those that they ask about.

    What was opened are canonical names and the paths of all others.
    """
    names = set()
    contents = [unit.source]
    places = {os.path.normpath(d) + os.sep for d in search_path}
    directories = tuple(sorted(places, key=len, reverse=True))
    for path in opened:
        if path in unit.headers:
            names.add(path)
            contents.append(unit.headers[path])
        else:
            names.update(_names(path, directories))
    return frozenset(names.union(*map(_asked_about, contents)))


@cache
def _names(path: str, directories: tuple[str, ...]) -> frozenset[str]:
    """The name of the header at `path`, and those that it asks about."""
    path = os.path.normpath(path)
    name = next((path[len(d) :] for d in directories if path.startswith(d)), path)
    try:
        content = Path(path).read_bytes()
    except OSError:
        content = b""
    return _asked_about(content) | {Path(name).as_posix()}


def _asked_about(content: bytes) -> frozenset[str]:
    return frozenset(os.fsdecode(name) for name in _HAS_INCLUDE.findall(content))


def make_dependencies(rule: str) -> list[str]:
    """The prerequisites in a Makefile `rule`, as ``-MD`` writes it.

    >>> make_dependencies("a.o : a.cu \\\\\\n    with\\\\ space.h\\n")
    ['a.cu', 'with space.h']
    """
    _, _, prerequisites = rule.replace("\\\n", " ").partition(" : ")
    return [re.sub(r"\\(.)", r"\1", name) for name in re.findall(r"(?:\\.|\S)+", prerequisites)]


class Resolver:
    """What names lead to now: the digest of each header, ``None`` where there is none.

    `digest` gives that of a file. One instance is for one moment: it looks at every place once.
    """

    def __init__(self, search_path: Sequence[Path], digest: Callable[[Path], str | None]) -> None:
        self._search_path = search_path
        self._digest = digest
        self._found: dict[str, str | None] = {}

    def __call__(self, name: str) -> str | None:
        """The digest of a header that is not the project's."""
        if name not in self._found:
            digests = (self._digest(directory / name) for directory in self._search_path)
            # An absolute name stands for itself, in whichever directory it is looked up.
            self._found[name] = next(filter(None, digests), None)
        return self._found[name]
