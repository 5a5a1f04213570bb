"""Find the types that a source declares, without compiling it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from cuda_ext.text.declarations import MARKS, declarators
from cuda_ext.text.lexer import C_LINKAGE, read_text
from cuda_ext.text.macros import WORD

_TYPE = (
    r"\b(?:struct|class|union|enum(?:\s+(?:class|struct))?)\s+(?:alignas\s*\([^()]*\)\s*)?(?P<type>\w+)"
    r"(?=\s*[:;{])|\busing\s+(?P<alias>\w+)\s*=|\btypedef\b[^;{}]{0,1000}?\b(?P<typedef>\w+)\s*;"
    r"|\busing\s+(?:\w*\s*::\s*)+(?P<used>\w+)\s*;"
)
_TYPE_MARKS = re.compile(MARKS % _TYPE)
_DIRECTIVE = re.compile(r"(?m)^[ \t]*#.*$")
_ENUMERATION = re.compile(r"enum\s+(?P<word>class\s+|struct\s+)?[^;{}]*\{(?P<body>[^{};]*)\}")


class DeclaredType(NamedTuple):
    """A type that a text declares: an alias of another, or perhaps an enumeration.

    The ``enumerators`` of one that is not scoped are names of its namespace, too. A name of another namespace
    that ``is_used`` here may be anything.
    """

    is_alias: bool
    enumerators: tuple[str, ...] = ()
    is_scoped: bool = True
    is_used: bool = False


def find_types(texts: Iterable[bytes]) -> dict[str, DeclaredType]:
    """Find the types that `texts` declare at the scope of namespaces."""
    return {name: type_ for text in texts for name, type_ in _find_types(text)}


@lru_cache(maxsize=1000)
def _find_types(content: bytes) -> tuple[tuple[str, DeclaredType], ...]:
    text = read_text(content).plain
    found = []
    for scope, head, mark, _ in declarators(text, _TYPE_MARKS):
        if scope is None:
            continue
        alias = mark["alias"] or mark["typedef"] or mark["used"]
        is_alias = bool(alias) and "template" not in text[head : mark.start()]
        body = _ENUMERATION.match(text, mark.start())
        values = _DIRECTIVE.sub("", body["body"]).split(",") if body else []
        enumerators = (WORD.match(value.lstrip()) for value in values)
        is_scoped = not body or bool(body["word"])
        type_ = DeclaredType(is_alias, tuple(e[0] for e in enumerators if e), is_scoped, bool(mark["used"]))
        names = [part for part in scope if part and part != C_LINKAGE]
        found.append(("::".join([*names, alias or mark["type"]]), type_))
    return tuple(found)
