"""Doxygen's comments as plain text: ``///``, ``//!``, ``/** */`` and ``/*! */``."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from cuda_ext.text.declarations import KERNELS, SPECIFIER_MARKS, declarators, read_kernel
from cuda_ext.text.lexer import C_LINKAGE, read_text

# A word in place of a comment, with its number.
_COMMENT = "cuda_ext_comment_"
# The beginning of a comment that documents what follows: not of a rule of slashes, nor of what precedes.
_BEGINNING = re.compile(r"//[/!](?![/<])|/\*[*!](?![*/<])")
# Comments on a file are not on the kernel below them.
_OF_FILE = re.compile(r"[@\\]file\b|\bCopyright\b|\bSPDX-")
_PARAMETER = re.compile(r"[@\\]t?param(?:\s*\[[^\]]*\])?\s+(\w+)\s+")
_REMARK = re.compile(r"[@\\](note|warning|returns?|see|sa|pre|post|remarks?)\s+")
_COMMAND = re.compile(r"[@\\](?:brief|short|details?|p|c|a|em|b|ingroup\s+\w+)\s+")
_LONGEST = 4000  # characters, of what an editor shows beside a name


def may_have_doc_comments(content: bytes) -> bool:
    """Return True if such a comment begins anywhere in `content`."""
    return any(beginning in content for beginning in (b"///", b"//!", b"/**", b"/*!"))


def read_doc_comment(comment: str) -> str | None:
    """Return the text of a `comment` with its slashes; ``None`` if it documents nothing that follows.

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


def find_doc_comments(texts: Iterable[bytes]) -> dict[str, str]:
    """Find the comments above kernels that `texts` declare, by the names of these with their namespaces.

    A definition's comment precedes that of a prototype.
    """
    found: dict[str, str] = {}
    for content in texts:
        if not (may_have_doc_comments(content) and any(word.encode() in content for word in KERNELS)):
            continue
        comments: list[str] = []

        def mark(comment: str, comments: list[str] = comments) -> str:
            if (documentation := read_doc_comment(comment)) is None:
                return " "
            comments.append(documentation)
            return f" {_COMMENT}{len(comments) - 1} "

        text = read_text(content).reading.plain(spell_comment=mark)
        code = re.sub(rf"\b{_COMMENT}\d+\b", lambda word: " " * len(word[0]), text)
        for scope, head, space, _ in declarators(code, SPECIFIER_MARKS):
            lines = _last_comment(text[head : space.start()], comments)
            if not lines or scope is None or space[0] not in KERNELS:
                continue
            if kernel := read_kernel(code, space.end(), ()):
                plain, _, is_definition = kernel
                name = "::".join([*(part for part in scope if part not in ("", C_LINKAGE)), plain])
                if is_definition or name not in found:
                    found[name] = "\n".join(lines).strip()
    return found


def _last_comment(text: str, comments: Sequence[str]) -> list[str]:
    """Return the last of `comments` whose words are in `text`, with those that it goes on from."""
    lines: list[str] = []
    begin = len(text)
    for word in reversed(list(re.finditer(rf"\b{_COMMENT}(\d+)\b", text))):
        between = text[word.end() : begin]
        if lines and (between.strip() or between.count("\n") > 1):
            break
        lines.insert(0, comments[int(word[1])])
        begin = word.start()
    return lines
