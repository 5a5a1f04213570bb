"""Doxygen's comments as plain text: ``///``, ``//!``, ``/** */`` and ``/*! */``."""

from __future__ import annotations

import re
import textwrap

# The beginning of a comment that documents what follows: not of a rule of slashes, nor of what precedes.
_BEGINNING = re.compile(r"//[/!](?![/<])|/\*[*!](?![*/<])")
# Comments on a file are not on the kernel below them.
_OF_FILE = re.compile(r"[@\\]file\b|\bCopyright\b|\bSPDX-")
_PARAMETER = re.compile(r"[@\\]t?param(?:\s*\[[^\]]*\])?\s+(\w+)\s+")
_REMARK = re.compile(r"[@\\](note|warning|returns?|see|sa|pre|post|remarks?)\s+")
_COMMAND = re.compile(r"[@\\](?:brief|short|details?|p|c|a|em|b|ingroup\s+\w+)\s+")
_LONGEST = 4000  # characters, of what an editor shows beside a name


def may_have_doc_comments(content: bytes) -> bool:
    """Whether `content` has the beginning of such a comment, wherever."""
    return any(beginning in content for beginning in (b"///", b"//!", b"/**", b"/*!"))


def read_doc_comment(comment: str) -> str | None:
    """The text of a `comment` with its slashes; ``None`` if it documents nothing that follows.

    >>> read_doc_comment("/// @brief Adds.")
    'Adds.'
    >>> read_doc_comment("/** Scales.\\n *\\n *  @param[in] a  the factor\\n */")
    'Scales.\\n\\na: the factor'
    >>> read_doc_comment("// plain"), read_doc_comment("///< of what precedes")
    (None, None)
    """
    beginning = _BEGINNING.match(comment)
    if beginning is None or _OF_FILE.search(comment):
        return None
    text = comment[beginning.end() :]
    if comment.startswith("/*"):
        lines = text.removesuffix("*/").expandtabs(2).splitlines()
        text = "\n".join(re.sub(r"^\s*\*(?!\*) ?", "", line) for line in lines)
    first, newline, rest = text.partition("\n")
    text = f"{first.strip()}{newline}{textwrap.dedent(rest)}".strip()
    text = _COMMAND.sub("", _REMARK.sub(lambda m: f"{m[1].title()}: ", _PARAMETER.sub(r"\1: ", text)))
    return text[:_LONGEST]
