"""Write the types of constants and template arguments, which choose a kernel, in stubs."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Collection, Iterable, Sequence

from cuda_ext.facts.kernels import Kernel
from cuda_ext.text.brackets import split_arguments

# The most values that a type lists.
_MOST_VALUES = 16
_NUMBER = re.compile(r"0|-?[1-9][0-9]*")


def keywords_of(
    kernels: Iterable[Kernel], taken: Collection[str], typing: str, builtins: str, is_any: bool = False
) -> tuple[str, ...]:
    """Return the keywords for the constants of `kernels` that are not `taken`, with a star before them.

    `typing` and `builtins` are what the stub calls these modules. With `is_any`, no type lists the values.
    """
    values: dict[str, dict[str, None]] = {}
    for kernel in kernels:
        for name, text in kernel.constants.items():
            if name.isidentifier() and not keyword.iskeyword(name) and name not in taken:
                values.setdefault(name, {})[text] = None
    keywords = []
    for name, texts in values.items():
        type_ = "" if is_any else _type([*texts], typing, builtins)
        keywords.append(f"{name}: {type_ or f'{builtins}.object'} = ...")
    return ("*", *keywords) if keywords else ()


def _type(texts: Sequence[str], typing: str, builtins: str) -> str:
    """Return the type of the arguments for the constants `texts`, as Python spells them; nothing for any.

    Few values are listed, for editors. Others may be variables, or be compiled on demand.
    """
    if {*texts} == {"True", "False"}:
        return f"{builtins}.bool"
    types: list[str] = []
    for text in texts:
        if text in ("True", "False"):
            types.append(f"{builtins}.bool")
        elif _NUMBER.fullmatch(text):
            types.append(f"{typing}.SupportsIndex")
        elif text == "None":
            types.append(text)
        else:
            return ""
    few = [f"{typing}.Literal[{', '.join(texts)}]"] if len(texts) <= _MOST_VALUES else []
    return " | ".join(dict.fromkeys([*few, *types]))


def template_arguments(items: Iterable[str], typing: str, builtins: str) -> str:
    """Return the type of `items` in brackets, ``"double, 256"`` or ``"double", 256``."""
    whole: list[str] = []
    tuples: dict[int, list[list[str]]] = {}  # by length, the literals at each position
    for item in items:
        parts = [] if item.startswith("(") else list(split_arguments(item))
        whole += _literals(item) if parts == [item] else [quote(item)]
        if len(parts) > 1:
            positions = tuples.setdefault(len(parts), [[] for _ in parts])
            for literals, part in zip(positions, parts, strict=True):
                literals += _literals(part)
    types = [f"{typing}.Literal[{', '.join(dict.fromkeys(whole))}]"]
    for positions in tuples.values():
        values = (f"{typing}.Literal[{', '.join(dict.fromkeys(literals))}]" for literals in positions)
        types.append(f"{builtins}.tuple[{', '.join(values)}]")
    return " | ".join(types)


def _literals(argument: str) -> list[str]:
    """Return the template argument as a text, and as a number or bool of Python if it is one."""
    if argument in ("true", "false"):
        return [quote(argument), argument.title()]
    return [quote(argument), argument] if _NUMBER.fullmatch(argument) else [quote(argument)]


def quote(text: str) -> str:
    """Write `text` as a string of Python."""
    return json.dumps(text, ensure_ascii=False)
