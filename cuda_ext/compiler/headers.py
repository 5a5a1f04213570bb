"""The project's own headers: found, gathered, and named the same on every machine.

:func:`gather` follows ``#include`` directives from a source through the project's include roots, and
rewrites each one that leads to a project file to that file's *canonical name*, its path within the
project. A compiler that is given the gathered headers by name needs no search path of the project and
no file system, and writes the same ``__FILE__`` everywhere. Line numbers do not change.

The closure is what could be read under any condition: a superset of what one compilation reads.
Directives that lead nowhere in the project are the tool chain's; they are put into angle brackets, so that
no compiler looks for them where it happens to run. Those whose name is a macro are left as they are: they
are not followed, and an error of the compiler's says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from cuda_ext.errors import BuildError

__all__ = ["canonical_name", "gather", "resolve"]

# Comments and literals are matched too, so that a directive within one is passed over. What stands between
# the words of a directive may be spaces, comments and continued lines.
_DIRECTIVE = re.compile(
    rb"""
    (?P<head> ^ GAP \# GAP include GAP | \b __has_include GAP \( GAP )
      (?: "(?P<quoted>[^"\n]+)" | <(?P<angled>[^>\n]+)> )
    | //(?:\\\r?\n|[^\n])* | /\*.*?\*/
    | \b(?:u8|[uUL])?R"(?P<fence>[^()\\\s"]*)\(.*?\)(?P=fence)"
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    """.replace(b"GAP", rb"(?:[ \t]|\\\r?\n|(?>/\*.*?\*/))*"),
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def canonical_name(path: Path, root: Path) -> str:
    """`path` relative to the project's `root`, with forward slashes."""
    return path.relative_to(root).as_posix()


def gather(
    source: Path,
    root: Path,
    include_dirs: Sequence[Path],
    pre_include: Iterable[str] = (),
    text: bytes | None = None,
) -> tuple[bytes, dict[str, bytes]]:
    """Read `source` and every header of the project that it can reach.

    All paths are absolute and real; only files below `root` count as the project's. `text` stands for
    the content of a `source` that is not on disk. Returns the source and the headers by canonical
    name, include directives rewritten. Raises :class:`BuildError` for a file that cannot be read or is
    not text.
    """
    headers: dict[str, bytes] = {}
    rewritten, pending = _rewrite(source, root, include_dirs, text)
    pending += filter(None, (_find(name, root, include_dirs) for name in pre_include))
    while pending:
        path = pending.pop()
        name = canonical_name(path, root)
        if name not in headers:
            headers[name], more = _rewrite(path, root, include_dirs)
            pending += more
    return rewritten, dict(sorted(headers.items()))


def resolve(name: str, root: Path, include_dirs: Sequence[Path]) -> str:
    """The canonical name that an include of `name` leads to, or `name` itself if none."""
    found = _find(name, root, include_dirs)
    return canonical_name(found, root) if found else name


def _rewrite(
    path: Path, root: Path, include_dirs: Sequence[Path], text: bytes | None = None
) -> tuple[bytes, list[Path]]:
    """The text of `path` with canonical includes, and the files that these lead to."""
    found: list[Path] = []

    def replace(match: re.Match[bytes]) -> bytes:
        spelled = match["quoted"] or match["angled"]
        if spelled is None:
            return match[0]
        directories = [path.parent, *include_dirs] if match["quoted"] else include_dirs
        target = _find(os.fsdecode(spelled), root, directories)
        if target is None:
            return match["head"] + b"<" + spelled + b">"
        found.append(target)
        return match["head"] + b'"' + os.fsencode(canonical_name(target, root)) + b'"'

    name = canonical_name(path, root)
    try:
        text = path.read_bytes() if text is None else text
    except OSError as error:
        raise BuildError(f"{name}: cannot be read: {error.strerror}") from None
    if stop := re.search(rb"[\0\xff]", text):
        # A compiler would take it for the end.
        raise BuildError(f"{name}: is not UTF-8 text, as it holds a byte 0x{stop[0].hex()}; save it as UTF-8")
    return _DIRECTIVE.sub(replace, text.removeprefix(_BYTE_ORDER_MARK)), found


def _find(name: str, root: Path, directories: Sequence[Path]) -> Path | None:
    for directory in directories:
        candidate = Path(os.path.realpath(directory / name))
        if candidate.is_relative_to(root) and candidate.is_file():
            return candidate
    return None
