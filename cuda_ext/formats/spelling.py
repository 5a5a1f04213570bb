"""The canonical spelling of C++ name expressions, and their parts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

_CHARACTER = r"'(?:\\.|[^'\\]){0,64}'"
_TOKEN = rf"{_CHARACTER}|\d(?:'?[\w.])*|\w+|::|->|&&|[^\s\w]"
# The words of <cstdint> and <cstddef> on the device.
STANDARD_INTEGERS = {
    "int8_t": "signed char",
    "int16_t": "short",
    "int32_t": "int",
    "int64_t": "long",
    "uint8_t": "unsigned char",
    "uint16_t": "unsigned short",
    "uint32_t": "unsigned int",
    "uint64_t": "unsigned long",
    "size_t": "unsigned long",
    "ptrdiff_t": "long",
    "intptr_t": "long",
    "uintptr_t": "unsigned long",
}
_INTEGER_WORDS = {"signed", "unsigned", "char", "short", "int", "long", "__int128"}


def normalise(expression: str) -> str:
    """Return the canonical spelling of a name expression.

    It unifies white space, the position of ``const``, the words for an integer type, and the ``::`` of the
    global namespace. Typedefs and default arguments are not resolved.

    >>> normalise(" ns :: reduce< double,256 > ")
    'ns::reduce<double, 256>'
    >>> normalise("k<unsigned,float const *>")
    'k<unsigned int, const float*>'
    >>> normalise("::k<unsigned __int128, char signed>")
    'k<unsigned __int128, signed char>'
    """
    if _is_normal(expression):
        return expression
    tokens: list[str] = []
    for token in re.findall(_TOKEN, expression):
        if token == "const" and tokens and (_is_word(tokens[-1]) or tokens[-1] == ">"):
            tokens.insert(_start_of_type(tokens), token)
        else:
            tokens.append(token)
    return _joined(_with_plain_integers(tokens)).removeprefix("::")


def _is_normal(expression: str) -> bool:
    """Return True if `expression` is already canonical, as most are; this check is fast.

    >>> _is_normal("ns::reduce<double, 256>"), _is_normal("k<float const *>")
    (True, False)
    """
    words = expression.replace("::", "_").replace(", ", "_").replace("<", "_").replace(">", "_")
    # These words have other spellings and positions; the canonical spelling has a space before them.
    return (
        words.isidentifier()
        and "signed" not in words
        and "const" not in words
        and not expression.startswith("::")
        and not expression.endswith(" ")
        and all(not each or each.startswith((", ", "::")) for each in expression.split(">")[1:])
    )


def _is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] in "_'"


def _start_of_type(tokens: Sequence[str]) -> int:
    """Return the index at which the type at the end of `tokens` begins."""
    start = len(tokens)
    depth = 0
    while start and (depth or _is_word(tokens[start - 1]) or tokens[start - 1] in ("::", ">")):
        if not depth and tokens[start - 1] == "const":
            break
        start -= 1
        depth += {">": 1, "<": -1}.get(tokens[start], 0)
    return start


def _with_plain_integers(tokens: Iterable[str]) -> Iterator[str]:
    """Normalise integer types: ``unsigned int`` for ``unsigned``, ``long`` for ``long int``."""
    for is_integer, group in itertools.groupby(tokens, _INTEGER_WORDS.__contains__):
        words = list(group)
        if not is_integer:
            yield from words
            continue
        if not {"char", "__int128"}.isdisjoint(words):
            yield from sorted(words, reverse=True)
            continue
        if "unsigned" in words:
            yield "unsigned"
        yield from [word for word in words if word in ("short", "long")] or ["int"]


def _joined(tokens: Iterable[str]) -> str:
    """Join `tokens` with the white space that C++ requires or that is customary."""
    text, last, declarator = "", "", False
    for token in tokens:
        after_type = last == ">" or (last != "" and _is_word(last))
        if (
            last == ","
            or (_is_word(token) and (after_type or declarator))
            or (last, token) == ("const", "::")
            or (last in ("+", "-", "&") and token[0] == last)
        ):
            text += " "
        # A star or an ampersand after a type is a declarator; elsewhere it is an operator.
        declarator = token in ("*", "&", "&&") and (after_type or declarator)
        text, last = text + token, token
    return text


def template_name(expression: str) -> str:
    """Return a normalised expression without its template arguments.

    >>> template_name("ns::reduce<double, 256>")
    'ns::reduce'
    """
    return expression.partition("<")[0] if expression.endswith(">") else expression


def plain_name(expression: str) -> str:
    """Return `expression` without template arguments and parameters."""
    return normalise(expression).partition("<")[0].partition("(")[0]


def base_name(expression: str) -> str:
    """Return `expression` without namespaces, template arguments and parameters.

    >>> base_name("ns::reduce<double, 256>"), base_name("Limits<int>::most")
    ('reduce', 'most')
    >>> base_name("ns::k<(3 > 2), &S::f>(int)")
    'k'
    """
    import re

    # Within parentheses, angle brackets may be operators.
    for bracketed in (rf"{_CHARACTER}|->|\([^()]*\)", r"<[^<>]*>"):
        while (outer := re.sub(bracketed, "", expression)) != expression:
            expression = outer
    return expression.rpartition("::")[2]
