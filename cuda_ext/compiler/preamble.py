"""What a source begins with: the part of it that several sources may share, precompiled.

Sources that use the same library rarely begin with the same line, but its headers do: all of CUB's include
``<cub/config.cuh>`` before anything else, and most of their cost is in there. So the first include of a
source is led by those that it would come to first anyway (:func:`led`). The compiler sees the same text in
the same order.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from functools import cache

__all__ = ["Headers", "beginnings", "led"]

_GAP = rb"(?: \s++ | (?>//(?:\\\r?\n|[^\r\n])*+|/\*.*?\*/) )*+"
_INCLUDE = rb"""(\#[ \t]*include[ \t]*(?:"[^"\n]+"|<[^>\n]+>))"""
_END = rb"[ \t]*+ (?:(?>//(?:\\\r?\n|[^\r\n])*+|/\*.*?\*/))?+ [ \t]*+ (?:\r?\n|$)"
_FLAGS = re.VERBOSE | re.DOTALL
# Possessive, since comments and blank lines could be taken apart in countless ways.
_LINE = re.compile(
    rb"GAP (?: \#[ \t]*pragma[ \t]+once\b[^\n]*+ GAP )?+".replace(b"GAP", _GAP) + _INCLUDE + _END, _FLAGS
)
_ONCE = re.compile(
    rb"GAP \#[ \t]*pragma[ \t]+once\b[^\n]*+ GAP (?: INCLUDE )?".replace(b"GAP", _GAP).replace(
        b"INCLUDE", _INCLUDE + _END
    ),
    _FLAGS,
)
_SPELLED = re.compile(rb'^[ \t]*\#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
# Lines are counted from here on.
_FIRST_LINE = b"#line 1\n"


def led(source: bytes, own: Mapping[str, bytes], others: Headers) -> bytes:
    """`source`, with the headers in front that its first include would come to before anything else.

    `own` are the project's headers by name. A header is followed if ``#pragma once`` is all that stands
    before its own first include; it is put in front if it is one of the `others`, and leads to nothing of what
    would have come to it.

    >>> texts = {"x.h": b"#pragma once\\n#include <y.h>\\n", "y.h": b"#pragma once\\nint y;\\n"}
    >>> led(b"#include <x.h>\\nint x;\\n", {}, Headers(texts.get))
    b'#include <y.h>\\n#line 1\\n#include <x.h>\\nint x;\\n'
    """
    first = _LINE.match(source)
    directive = first[1] if first else None
    passed: list[str] = []
    leading: list[bytes] = []
    while directive:
        name = _name(directive)
        here = _ONCE.match(own.get(name) or others.text(name) or b"")
        if here is None or name in passed:
            break
        if passed and name not in own:
            if not others.reached(name).isdisjoint([*passed, *own]):
                break
            leading.insert(0, directive + b"\n")
        passed.append(name)
        # Others' headers look beside themselves for what they quote, and their names do not tell where.
        quoted = here[1] and b'"' in here[1]
        directive = None if quoted and name not in own else here[1]
    return b"".join([*leading, _FIRST_LINE, source]) if leading else source


class Headers:
    """The headers that a search path leads to: `find` gives the text of one by name."""

    def __init__(self, find: Callable[[str], bytes | None]) -> None:
        self.text = cache(find)
        self.reached = cache(self._reached)

    def _reached(self, name: str) -> frozenset[str]:
        """The names of all headers that `name` may come to, as far as text tells."""
        found: set[str] = set()
        pending = [name]
        while pending:
            here = pending.pop()
            for spelled in _SPELLED.findall(self.text(here) or b""):
                inner = spelled.decode(errors="surrogateescape")
                # What is quoted may lie beside.
                for candidate in {inner, posixpath.normpath(f"{posixpath.dirname(here)}/{inner}")} - found:
                    found.add(candidate)
                    pending.append(candidate)
        return frozenset(found)


def beginnings(source: bytes) -> list[bytes]:
    """The beginnings of `source`, as :func:`led` gives it, that are include directives alone, shortest first.

    >>> beginnings(b'// A\\n#include <a.h>\\n#include "b.h"\\nint x;')
    [b'', b'#include <a.h>\\n', b'#include <a.h>\\n#include "b.h"\\n']
    """
    found = [b""]
    position = 0
    while match := _LINE.match(source, position):
        found.append(found[-1] + match[1] + b"\n")
        position = match.end()
        if source.startswith(_FIRST_LINE, position):
            break  # NVRTC cannot precompile what counts lines anew
    return found


def _name(directive: bytes) -> str:
    return re.split(rb'[<">]', directive)[1].decode(errors="surrogateescape")
