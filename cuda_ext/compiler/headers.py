"""Gathers the project's own headers, under names that are the same on every machine.

``#include`` directives are followed from a source through the project's include directories, and each one
that leads to a file of the project is rewritten to that file's *canonical name*, its path within the project,
with forward slashes. A compiler that gets the gathered headers by name needs no search path of the project
and no file system, and writes the same ``__FILE__`` on every machine. Line numbers do not change.

The closure is what could be read under any condition: a superset of what one compilation reads.
Directives that do not lead to a file of the project are the tool chain's; they are put into angle brackets,
so that no compiler searches its working directory.

Names that macros make are left unchanged. For each file that one may lead to, there is a header of that name
which includes the file; they lie in :data:`~cuda_ext.compiler.translation_unit.NAMED`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cuda_ext.compiler.file_tree import FileTree
from cuda_ext.compiler.spelled_settings import spell_setting
from cuda_ext.compiler.translation_unit import NAMED
from cuda_ext.errors import BuildError, escape_controls
from cuda_ext.filesystem.inner_path import is_inner_path
from cuda_ext.filesystem.regular_file import check_regular, read_file
from cuda_ext.text.directives import definitions_of, has_directives

# The reader of includes is imported where it is used: sources without directives do not need its patterns.
if TYPE_CHECKING:
    from pathlib import Path

    from cuda_ext.facts.sources import Options
    from cuda_ext.text.includes import Include, PossibleName

_STOP = (b"\0", b"\xff")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def is_plain(name: str) -> bool:
    """True if the name of a file is text that depfiles, manifests and all systems can have."""
    return escape_controls(name) == name and not re.search(r"[\t\r\n\\]", name)


NOT_PLAIN = "has a control character, a backslash, or bytes that are not UTF-8"


class _Header(NamedTuple):
    """The text of a file with canonical includes, and the names in them; macros ``may_name_more``."""

    text: bytes
    names: tuple[str, ...]
    may_name_more: bool = False


def closure(text: bytes, options: Options, texts: Mapping[str, bytes]) -> dict[str, bytes]:
    """Select the headers that `text` can reach from `texts`, which :meth:`Headers.gather` returned."""

    def read(name: str) -> _Header | None:
        return _canonical(texts[name]) if name in texts else None

    source = _canonical(text)
    found = _reach((*source.names, *options.pre_include), read)
    given = definitions_of(options.define, options.raw)
    return _with_named("", source, found, given, read, lambda possible: f"{NAMED}{possible.name}")


def _canonical(text: bytes) -> _Header:
    if not has_directives(text):
        return _Header(text, ())
    from cuda_ext.text.includes import find_includes

    found = find_includes(text)
    names = tuple(include.name for include in found.named if include.is_quoted)
    return _Header(text, names, found.may_name_more)


class _Reached(NamedTuple):
    """Headers by name, and whether macros of one may name more."""

    texts: dict[str, bytes]
    may_name_more: bool


def _reach(names: Iterable[str], read: Callable[[str], _Header | None]) -> _Reached:
    """Return the headers `names` and all that they can reach, as `read` gives them."""
    reached: dict[str, bytes] = {}
    may_name_more = False
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in reached and (content := read(name)):
            reached[name] = content.text
            pending += content.names
            may_name_more |= content.may_name_more
    return _Reached(dict(sorted(reached.items())), may_name_more)


def _with_named(
    source: str,
    text: _Header,
    found: _Reached,
    definitions: bytes,
    read: Callable[[str], _Header | None],
    find: Callable[[PossibleName], str | None],
) -> dict[str, bytes]:
    """Return the headers `found`, and those that macros may name, where `find` gives the name of one."""
    texts, may_name_more = found
    while may_name_more or text.may_name_more:
        from cuda_ext.text.includes import names_by_macros

        possible = names_by_macros({source: text.text, **texts}, definitions)
        more = _reach(sorted({*filter(None, map(find, possible))} - texts.keys()), read)
        if not more.texts:
            break
        texts = dict(sorted({**texts, **more.texts}.items()))
    return texts


class Headers:
    """The headers of a project, looked up in one list of include directories. Each is read once.

    `include_dirs` are absolute and real paths.
    """

    def __init__(self, tree: FileTree, include_dirs: Sequence[str | Path]) -> None:
        self._tree = tree
        self._root = f"{tree.root}{os.sep}"
        self._include_dirs = tuple(map(str, include_dirs))
        self._headers: dict[str, _Header] = {}
        self._places: dict[tuple[str, str], str | None] = {}
        self._names: dict[str, str] = {}
        self._closures: dict[tuple[str, ...], _Reached] = {}

    def gather(
        self,
        source: str,
        pre_include: Iterable[str] = (),
        text: bytes | None = None,
        definitions: bytes = b"",
    ) -> tuple[bytes, dict[str, bytes]]:
        """Read the source of that canonical name, or use its `text`; read all headers that it can reach.

        Returns the source and the headers by canonical name, include directives rewritten. `definitions` are
        those of options. Raises :class:`BuildError` for a file that cannot be read or is not text.
        """
        own = self._rewrite(source, text, is_source=True)
        names = (*own.names, *filter(None, map(self._find_before, pre_include)))
        if names not in self._closures:
            self._closures[names] = _reach(names, self._header)
        found = self._closures[names]
        return own.text, _with_named(source, own, found, definitions, self._header, self._name)

    def resolve(self, name: str) -> str:
        """Return the canonical name that a pre-include of `name` leads to.

        It is `name` itself if that is for the compiler to find. Raises :class:`BuildError` if it leads out of
        the project.
        """
        return self._find_before(name) or name

    def _find_before(self, name: str) -> str | None:
        # Compilers look in their working directory too.
        from cuda_ext.text.includes import OUTSIDE

        found = self._find(name, (*self._include_dirs, self._root))
        if found is None and (OUTSIDE.match(name) or _is_file(self._root + name)):
            raise BuildError(
                f"{name!r} is not a file of the project",
                where=spell_setting("pre-include"),
                remedy="copy it into the project, or write its name on the search path of the compiler",
            )
        return found

    def _header(self, name: str) -> _Header:
        if name not in self._headers:
            self._headers[name] = self._rewrite(name)
        return self._headers[name]

    def _name(self, possible: PossibleName) -> str | None:
        """Return the header for a name that macros may make, if that leads to a file of the project."""
        path = self._tree.path(possible.includer)
        target = self._find(possible.name, self._directories(path, possible.is_quoted))
        if target is None or not is_inner_path(possible.name):
            return None
        name = f"{NAMED}{possible.name}"
        forwarding = _Header(b'#include "%b"\n' % os.fsencode(target), (target,))
        at_root = possible.name != target and _is_file(self._root + possible.name)
        if at_root or self._headers.setdefault(name, forwarding) != forwarding:
            other = possible.name if at_root else self._headers[name].names[0]
            raise BuildError(
                f"{possible.name!r}, which a macro makes, may be {target} or {other}",
                where=possible.includer,
                remedy="write out the names in the #include directives",
            )
        return name

    def _rewrite(self, name: str, text: bytes | None = None, *, is_source: bool = False) -> _Header:
        """Read a file, and spell its includes canonically."""
        names: list[str] = []
        path = self._tree.path(name)

        def spell(include: Include) -> tuple[str, str] | None:
            target = self._find(include.name, self._searched(path, include, is_source=is_source))
            word = include.word.removesuffix("_next")
            if target is None:
                is_root = _is_file(self._root + include.name)
                return (word, f"<./{include.name}>" if is_root else f"<{include.name}>")
            if not is_plain(target):
                raise BuildError(f"{target!r} {NOT_PLAIN}", where=name, remedy="rename it")
            names.append(target)
            return word, f'"{target}"'

        if text is None:
            text = read_project_file(path, name)
        if stop := next(filter(text.__contains__, _STOP), None):
            # A compiler would stop there.
            raise BuildError(
                f"is not UTF-8 text, as it holds a byte 0x{stop.hex()}",
                where=name,
                remedy="save it as UTF-8",
            )
        text = text.removeprefix(_BYTE_ORDER_MARK)
        if not has_directives(text):
            return _Header(text, ())
        from cuda_ext.text.includes import find_includes, rewrite_includes

        return _Header(rewrite_includes(text, spell), tuple(names), find_includes(text).may_name_more)

    def _searched(self, path: str, include: Include, *, is_source: bool = False) -> tuple[str, ...]:
        """Return the directories in which the file at `path` looks an include up."""
        if is_source or not include.word.endswith("_next"):
            return self._directories(path, include.is_quoted)
        # From the directory on behind that in which the file itself was found.
        holding = [d for d in self._include_dirs if path.startswith(d + os.sep)]
        own = [d for d in holding if os.path.join(d, include.name) == path] or holding
        return self._include_dirs[self._include_dirs.index(own[0]) + 1 :] if own else self._include_dirs

    def _directories(self, path: str, is_quoted: bool) -> tuple[str, ...]:
        return (*((os.path.dirname(path),) if is_quoted else ()), *self._include_dirs)

    def _find(self, name: str, directories: Iterable[str]) -> str | None:
        """Find the first file of the project that `name` leads to, and return its canonical name."""
        return next(filter(None, (self._find_in(directory, name) for directory in directories)), None)

    def _find_in(self, directory: str, name: str) -> str | None:
        if (directory, name) not in self._places:
            path = os.path.join(directory, name)
            real = os.path.realpath(path)
            target = self._tree.name(real)
            found = self._canonical(path, real, target) if target and _is_file(path) else None
            self._places[directory, name] = found
        return self._places[directory, name]

    def _canonical(self, path: str, real: str, target: str) -> str:
        """Return the canonical name of the file at `path`: of a link's `target`, unless its includes differ.

        Compilers look up quoted names beside the link.
        """
        path = os.path.normpath(path)
        link = self._tree.name(path)
        if real == path or link is None or os.path.realpath(path) != real:
            return target
        if link not in self._names:
            from cuda_ext.text.includes import find_includes

            self._names[link] = target  # for files that include each other
            includes = find_includes(_bytes_of(real)).named
            places = [[self._find(i.name, self._searched(p, i)) for i in includes] for p in (real, path)]
            self._names[link] = target if places[0] == places[1] else link
        return self._names[link]


def read_project_file(path: str | Path, name: str) -> bytes:
    """Read the file `path`, called `name` in errors. Raises :class:`BuildError`."""
    try:
        return read_file(str(path))
    except OSError as error:
        raise BuildError(
            f"cannot be read: {error.strerror}", where=name, remedy="make it a file that you can read"
        ) from None


def _bytes_of(path: str) -> bytes:
    try:
        return read_file(path).removeprefix(_BYTE_ORDER_MARK)
    except OSError:
        return b""  # reading the header reports it


def _is_file(path: str) -> bool:
    """True if there is a file. Raises :class:`BuildError` for a pipe or device, on which compilers wait."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    try:
        check_regular(status, path)
    except IsADirectoryError:
        return False
    except OSError as error:
        raise BuildError(f"{error.strerror}", where=path, remedy="do not include it") from None
    return True
