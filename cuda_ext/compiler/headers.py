"""Gathers the project's own headers, under names that are the same on every machine.

``#include`` directives are followed from a source through the project's include directories, and each one
that leads to a file of the project is rewritten to that file's *canonical name*, its path within the project,
with forward slashes. A compiler that gets the gathered headers by name needs no search path of the project
and no file system, and writes the same ``__FILE__`` on every machine. Line numbers do not change.

The closure is what could be read under any condition: a superset of what one compilation reads.
Directives that do not lead to a file of the project are the tool chain's; they are put into angle brackets,
so that no compiler searches its working directory. Directives whose name is a macro are left unchanged: they
are not followed, and the compiler's error says so.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from cuda_ext.compiler.spelled_settings import spell_setting
from cuda_ext.errors import BuildError, escape_controls
from cuda_ext.filesystem.regular_file import check_regular, read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

# Comments and literals are matched too, so that directives within them are skipped. Spaces, comments and
# continued lines may separate the words of a directive.
_DIRECTIVE = rb"""(?xms)
    (?P<head> ^ GAP \# GAP include GAP | \b __has_include GAP \( GAP )
      (?: "(?P<quoted>[^"\n]+)" | <(?P<angled>[^>\n]+)> )
    | //(?:\\\r?\n|[^\n])* | /\*.*?(?:\*/|\Z)
    | \b(?:u8|[uUL])?R"(?P<fence>[^()\\\s"]*)\(.*?(?:\)(?P=fence)"|\Z)
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    """.replace(b"GAP", rb"(?:[ \t]|\\\r?\n|(?>/\*.*?\*/))*")
# An include in any other form: by a macro, with a digraph, or of what is no header.
_INCLUDES = (b"include", b"import", b"embed")
_OTHER_INCLUDE = rb"(?:\#|%:|\?\?=)\s*(?:include|import|embed)|\b__has_(?:include|embed)\b"
# The name of a file that lies in none of the directories that are searched.
_OUTSIDE = rb"/|\\|[A-Za-z]:|(?s:.*)\.\."
_STOP = (b"\0", b"\xff")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def is_plain(name: str) -> bool:
    """Whether the name of a file is text that depfiles, manifests and all systems can have."""
    return escape_controls(name) == name and not re.search(r"[\t\r\n\\]", name)


NOT_PLAIN = "has a control character, a backslash, or bytes that are not UTF-8"


def closure(text: bytes, pre_include: Iterable[str], texts: Mapping[str, bytes]) -> dict[str, bytes]:
    """Select the headers that `text` can reach from `texts`, which :meth:`Headers.gather` returned."""
    return _reach(
        [*_canonical(text), *pre_include],
        lambda name: (texts[name], _canonical(texts[name])) if name in texts else None,
    )


def names_its_includes(text: bytes) -> bool:
    """Whether every include of `text` names a file of the project or of the tool chain.

    Others depend on a macro, or lead to any file of this machine.
    """

    def without(match: re.Match[bytes]) -> bytes:
        name = match["quoted"] or match["angled"]
        return match[0] if name and re.match(_OUTSIDE, name) else b" "

    joined = re.sub(rb"\\\r?\n", b"", text) if b"\\" in text else text
    if not any(word in joined for word in _INCLUDES):  # spares most small sources the patterns
        return True
    return not re.search(_OTHER_INCLUDE, re.sub(_DIRECTIVE, without, joined))


def _canonical(text: bytes) -> list[str]:
    """List the canonical names in the include directives of `text`."""
    if b"include" not in text:  # spares most small sources the pattern
        return []
    return [os.fsdecode(match["quoted"]) for match in re.finditer(_DIRECTIVE, text) if match["quoted"]]


def _reach(
    names: Sequence[str], read: Callable[[str], tuple[bytes, Sequence[str]] | None]
) -> dict[str, bytes]:
    """The texts of the headers `names` and all that they can reach, as `read` gives them with their names."""
    reached: dict[str, bytes] = {}
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in reached and (content := read(name)):
            reached[name], more = content
            pending += more
    return dict(sorted(reached.items()))


class Headers:
    """The headers of a project, looked up in one list of include directories. Each is read once.

    All paths are absolute and real; files below `root` are the project's.
    """

    def __init__(self, root: str | Path, include_dirs: Sequence[str | Path]) -> None:
        self._root = f"{root}{os.sep}"
        self._include_dirs = tuple(map(str, include_dirs))
        self._texts: dict[str, tuple[bytes, tuple[str, ...]]] = {}
        self._names: dict[tuple[str, str], str | None] = {}
        self._closures: dict[tuple[str, ...], dict[str, bytes]] = {}

    def gather(
        self, source: str, pre_include: Iterable[str] = (), text: bytes | None = None
    ) -> tuple[bytes, dict[str, bytes]]:
        """Read the source of that canonical name, or use its `text`; read all headers that it can reach.

        Returns the source and the headers by canonical name, include directives rewritten. Raises
        :class:`BuildError` for a file that cannot be read or is not text.
        """
        rewritten, direct = self._rewrite(source, text)
        before = filter(None, map(self._find_before, pre_include))
        names = (*direct, *before)
        if names not in self._closures:
            self._closures[names] = _reach(names, self._text)
        return rewritten, self._closures[names]

    def resolve(self, name: str) -> str:
        """Return the canonical name that a pre-include of `name` leads to.

        It is `name` itself if that is for the compiler to find. Raises :class:`BuildError` if it leads out of
        the project.
        """
        return self._find_before(name) or name

    def _find_before(self, name: str) -> str | None:
        # Compilers look in their working directory too.
        found = self._find(name, (*self._include_dirs, self._root))
        if found is None and (re.match(_OUTSIDE, os.fsencode(name)) or _is_file(self._root + name)):
            raise BuildError(
                f"{name!r} is not a file of the project",
                where=spell_setting("pre-include"),
                remedy="copy it into the project, or write its name on the search path of the compiler",
            )
        return found

    def _text(self, name: str) -> tuple[bytes, tuple[str, ...]]:
        if name not in self._texts:
            self._texts[name] = self._rewrite(name)
        return self._texts[name]

    def _rewrite(self, name: str, text: bytes | None = None) -> tuple[bytes, tuple[str, ...]]:
        """Return the text of a file with canonical includes, and the names in them."""
        names: list[str] = []
        path = self._root + name

        def replace(match: re.Match[bytes]) -> bytes:
            spelled = match["quoted"] or match["angled"]
            if spelled is None:
                return match[0]
            beside = (os.path.dirname(path),) if match["quoted"] else ()
            target = self._find(os.fsdecode(spelled), beside + self._include_dirs)
            if target is None:
                return match["head"] + b"<" + spelled + b">"
            if not is_plain(target):
                raise BuildError(f"{target!r} {NOT_PLAIN}", where=name, remedy="rename it")
            names.append(target)
            return match["head"] + b'"' + os.fsencode(target) + b'"'

        try:
            if text is None:
                text = read_file(path)
        except OSError as error:
            raise BuildError(
                f"cannot be read: {error.strerror}", where=name, remedy="make it a file that you can read"
            ) from None
        if stop := next(filter(text.__contains__, _STOP), None):
            # A compiler would stop there.
            raise BuildError(
                f"is not UTF-8 text, as it holds a byte 0x{stop.hex()}",
                where=name,
                remedy="save it as UTF-8",
            )
        text = text.removeprefix(_BYTE_ORDER_MARK)
        return re.sub(_DIRECTIVE, replace, text) if b"include" in text else text, tuple(names)

    def _find(self, name: str, directories: Iterable[str]) -> str | None:
        """Find the first file of the project that `name` leads to, and return its canonical name."""
        return next(filter(None, (self._find_in(directory, name) for directory in directories)), None)

    def _find_in(self, directory: str, name: str) -> str | None:
        if (directory, name) not in self._names:
            path = os.path.realpath(os.path.join(directory, name))
            inside = _is_file(path) and path.startswith(self._root)
            canonical = path.removeprefix(self._root).replace(os.sep, "/")
            self._names[directory, name] = canonical if inside else None
        return self._names[directory, name]


def _is_file(path: str) -> bool:
    """Whether there is a file. Raises :class:`BuildError` for a pipe or device, on which compilers wait."""
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
