"""C++ name expressions and the little of their mangling that is needed.

Nothing here demangles: lowered names come from the compiler, and so do types. Only the namespaces of a
lowered name are read, because debug information leaves them out.
"""

from __future__ import annotations

import re

__all__ = ["normalise", "scope_of", "split_template"]

_TOKEN = re.compile(r"\w+|::|->|[^\s\w]")


def normalise(expression: str) -> str:
    """One spelling for expressions that differ in white space only.

    >>> normalise(" ns :: reduce< double,256 > ")
    'ns::reduce<double, 256>'
    >>> normalise("k<unsigned  int,const float *>")
    'k<unsigned int, const float*>'
    """
    out = ""
    for token in _TOKEN.findall(expression):
        word = token[0].isalnum() or token[0] == "_"
        if (word and out and (out[-1].isalnum() or out[-1] in "_*&")) or out.endswith(","):
            out += " "
        out += token
    return out


def split_template(expression: str) -> tuple[str, str | None]:
    """Divide a normalised expression into its name and what stands between the outer brackets.

    >>> split_template("ns::reduce<double, 256>")
    ('ns::reduce', 'double, 256')
    >>> split_template("histogram")
    ('histogram', None)
    """
    if not expression.endswith(">"):
        return expression, None
    name, _, rest = expression.partition("<")
    return name, rest[:-1]


def scope_of(lowered: str) -> tuple[str, ...]:
    """The namespaces in an Itanium-mangled name, outermost first, anonymous ones left out.

    >>> scope_of("_ZN2ns5inner6reduceIfLi128EEEvxPKf")
    ('ns', 'inner')
    >>> scope_of("_Z4axpyIfEviT_PKS0_PS0_"), scope_of("histogram")
    ((), ())
    """
    if not lowered.startswith("_ZN"):
        return ()
    parts: list[str] = []
    position = 3
    while match := re.compile(r"(?:St|L)?(\d+)").match(lowered, position):
        end = match.end() + int(match[1])
        if match[0].startswith("St"):
            parts.append("std")
        parts.append(lowered[match.end() : end])
        position = end
    return tuple(part for part in parts[:-1] if not part.startswith("_GLOBAL__N_"))
