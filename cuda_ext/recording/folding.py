"""Fold instantiations into tables with lists of values, where they are products.

>>> for item in fold(["f<float, 1>", "f<float, 2>", "f<double, 1>", "f<double, 2>", "g<int>"]):
...     print(item)
{ kernel = "f<{T}, {U}>", T = ["float", "double"], U = [1, 2] }
"g<int>"
>>> for item in fold(["f(x: *fp16, y: *kfp16, B=64)", "f(x: *fp32, y: *kfp32, B=64)", "f(x: *fp32, B=-1)"]):
...     print(item)
{ kernel = "f(x: *{T}, y: *k{T}, B=64)", T = ["fp16", "fp32"] }
"f(x: *fp32, B=-1)"
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

# A string, a number or a name; not the k of Triton's *kfp16.
_WORD = r"""('(?:\\.|[^'\\])*'|(?<![\w.)])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)|(?!(?<=\*)k[a-z]+\d)\w+)"""
_PLAIN = re.compile(r"true|false|-?(?:0|[1-9]\d{0,15})")  # in TOML
# The values of one word.
_Values = tuple[str, ...]


def fold(texts: Iterable[str]) -> Iterator[str]:
    """Yield the items of ``instantiate`` for `texts` as TOML spells them: strings, and tables for several."""
    alike: dict[_Values, list[_Values]] = {}
    for text in dict.fromkeys(texts):
        parts = re.split(_WORD, text)
        alike.setdefault((parts[1], *parts[::2]), []).append(tuple(parts[1::2]))
    for (_, *signs), rows in alike.items():
        columns = [*zip(*rows, strict=True)]
        names = _name_columns(signs, columns)
        rows = [*zip(*names, strict=True)] or [()]
        for product in _unite([tuple((value,) for value in row) for row in rows]):
            lists = dict(zip(names.values(), product, strict=True))
            words = (f"{{{names[each]}}}" if each in names else each[0] for each in columns)
            kernel = "".join(chain.from_iterable(zip(signs, [*words, ""], strict=True)))
            for name in [name for name, values in lists.items() if len(values) == 1]:
                kernel = kernel.replace(f"{{{name}}}", lists.pop(name)[0])
            pairs = [f"{name} = [{', '.join(map(_spell, values))}]" for name, values in lists.items()]
            pattern = _spell(kernel)
            yield f"{{ {', '.join([f'kernel = {pattern}', *pairs])} }}" if pairs else pattern


def _unite(products: list[tuple[_Values, ...]]) -> list[tuple[_Values, ...]]:
    """Unite products that differ in the values of one column, until there are none."""
    count = 0
    while count != len(products):
        count = len(products)
        for place in range(len(products[0])):
            found: dict[tuple[_Values, ...], _Values] = {}
            for product in products:
                others = product[:place] + product[place + 1 :]
                found[others] = found.get(others, ()) + product[place]
            products = [(*key[:place], values, *key[place:]) for key, values in found.items()]
    return products


def _name_columns(signs: Sequence[str], columns: Sequence[_Values]) -> dict[_Values, str]:
    """Name each column that varies: as the constant whose value it is, or by a letter."""
    names: dict[_Values, str] = {}
    letters = (f"{letter}{number}" for number in ("", *range(len(columns))) for letter in "TUVWXYZ")
    for place, column in enumerate(columns):
        if len({*column}) > 1 and column not in names:
            own = columns[place - 1][:1] if signs[place] == "=" else ()
            names[column] = next(
                name for name in chain(own, letters) if name not in {"kernel", *names.values()}
            )
    return names


def _spell(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
