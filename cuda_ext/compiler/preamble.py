"""What a source begins with: the part of it that several sources may share, precompiled."""

from __future__ import annotations

import re

__all__ = ["preambles"]

# Possessive, since comments and blank lines could be taken apart in countless ways.
_LINE = re.compile(
    rb"""
    (?: \s++ | COMMENT | \#[ \t]*pragma[ \t]+once\b[^\n]*+ )*+
    (\#[ \t]*include[ \t]*(?:"[^"\n]+"|<[^>\n]+>)) [ \t]*+ (?:COMMENT)?+ [ \t]*+ (?:\r?\n|$)
    """.replace(b"COMMENT", rb"(?>//(?:\\\r?\n|[^\r\n])*+|/\*.*?\*/)"),
    re.VERBOSE | re.DOTALL,
)


def preambles(source: bytes) -> list[bytes]:
    """The beginnings of `source` that are include directives alone, shortest first, the empty one included.

    >>> preambles(b'// A\\n#include <a.h>\\n#include "b.h"\\nint x;')
    [b'', b'#include <a.h>\\n', b'#include <a.h>\\n#include "b.h"\\n']
    """
    found = [b""]
    position = 0
    while match := _LINE.match(source, position):
        found.append(found[-1] + match[1] + b"\n")
        position = match.end()
    return found
