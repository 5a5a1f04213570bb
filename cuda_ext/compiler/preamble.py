"""What a source begins with: the part of it that several sources may share, precompiled.

Sources that use the same library rarely begin with the same line, but its headers do: all of CUB's include
``<cub/config.cuh>`` before anything else, and most of their cost is in there. So the first include of a
source is led by those that it would come to first anyway (:func:`led`). The compiler sees the same text in
the same order.
"""

from __future__ import annotations

import re
from collections.abc import Callable

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
    rb"GAP \#[ \t]*pragma[ \t]+once\b[^\n]*+ GAP".replace(b"GAP", _GAP) + _INCLUDE + _END, _FLAGS
)
_GUARDED = re.compile(
    rb"GAP (?: \#[ \t]*pragma[ \t]+once\b | \#[ \t]*ifndef[ \t]+(\w+) GAP \#[ \t]*define[ \t]+\1\b )".replace(
        b"GAP", _GAP
    ),
    _FLAGS,
)
# Lines are counted from here on.
_FIRST_LINE = b"#line 1\n"


def led(source: bytes, find: Callable[[str], bytes | None]) -> bytes:
    """`source`, with the headers in front that its first include would come to before anything else.

    `find` gives the text of a header by name. One is followed as long as nothing but ``#pragma once`` stands
    before its own first include, and put in front if including it again does nothing.

    >>> texts = {"x.h": b"#pragma once\\n#include <y.h>\\n", "y.h": b"#ifndef Y\\n#define Y\\n#endif\\n"}
    >>> led(b"#include <x.h>\\nint x;\\n", texts.get)
    b'#include <y.h>\\n#line 1\\n#include <x.h>\\nint x;\\n'
    """
    found: list[bytes] = []
    here = _LINE.match(source)
    while here and (text := find(_name(here[1]))) is not None:
        here = _ONCE.match(text)
        inner = find(_name(here[1])) if here else None
        if here is None or inner is None or not _GUARDED.match(inner) or here[1] in found:
            break
        found.append(here[1])
    if not found:
        return source
    return b"".join([*(line + b"\n" for line in reversed(found)), _FIRST_LINE, source])


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
