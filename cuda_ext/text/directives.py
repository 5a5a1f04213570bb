"""Texts without directives: most small sources, which need no reader of includes and its patterns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def has_directives(content: bytes) -> bool:
    """Return True if `content` may have a directive, whose sign may be a digraph or trigraph."""
    return any(sign in content for sign in (b"#", b"%:", b"??="))


def definitions_of(define: Mapping[str, str], options: Iterable[str]) -> bytes:
    """Return the macros of options, as a text that defines them."""
    given = [f"{name} {value}" for name, value in define.items()]
    given += (option.removeprefix("-D").replace("=", " ", 1) for option in options)
    return "".join(f"#define {each}\n" for each in given).encode(errors="surrogateescape")
