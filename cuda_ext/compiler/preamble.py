"""What a source begins with: the part of it that several sources may share, precompiled.

Sources that use the same library rarely begin with the same line, but its headers do: all of CUB's include
``<cub/config.cuh>`` before anything else, and most of their cost is in there. So the first include of a
source is led by those that it would come to first anyway (:func:`led`). The compiler sees the same text in
the same order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container

__all__ = ["beginnings", "led"]

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
# Lines are counted from here on.
_FIRST_LINE = b"#line 1\n"


def led(source: bytes, find: Callable[[str], bytes | None], own: Container[str] = ()) -> bytes:
    """`source`, with the headers in front that its first include would come to before anything else.

    `find` gives the text of a header by name, and `own` has the names of the project's. A header is followed,
    and put in front, if ``#pragma once`` is all that stands before its own first include.

    >>> texts = {"x.h": b"#pragma once\\n#include <y.h>\\n", "y.h": b"#pragma once\\nint y;\\n"}
    >>> led(b"#include <x.h>\\nint x;\\n", texts.get)
    b'#include <y.h>\\n#line 1\\n#include <x.h>\\nint x;\\n'
    """
    first = _LINE.match(source)
    chain: list[bytes] = []
    directive = first[1] if first else None
    while directive and directive not in chain:
        here = _ONCE.match(find(_name(directive)) or b"")
        if here is None:
            break
        chain.append(directive)
        # Others' headers look beside themselves for what they quote, and their names do not tell where.
        quoted = here[1] and b'"' in here[1]
        directive = None if quoted and _name(directive) not in own else here[1]
    if len(chain) < 2:
        return source
    return b"".join([*(line + b"\n" for line in reversed(chain[1:])), _FIRST_LINE, source])


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
