"""Fold instantiations into tables with lists of values, where they are products.

>>> fold(["f<float, 1>", "f<float, 2>", "f<double, 1>", "f<double, 2>", "g<int>"])
[{'kernel': 'f<{T}, {U}>', 'T': ['float', 'double'], 'U': [1, 2]}, 'g<int>']
>>> fold(["f(x: *fp16, y: *kfp16, B=64)", "f(x: *fp32, y: *kfp32, B=64)", "f(x: *fp32, y: *kfp32, B=-1)"])
[{'kernel': 'f(x: *{T}, y: *k{T}, B=64)', 'T': ['fp16', 'fp32']}, 'f(x: *fp32, y: *kfp32, B=-1)']
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeAlias

# A string, a number or a name; not the k of Triton's *kfp16.
_WORD = r"""('(?:\\.|[^'\\])*'|(?<![\w.)])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)|(?!(?<=\*)k[a-z]+\d)\w+)"""
_LETTERS = ("T", "U", "V", "W", "X", "Y", "Z")
# The values of one word in a product.
_Values = tuple[str, ...]
Item: TypeAlias = str | dict[str, str | list[str | int | bool]]


def spell(item: Item) -> str:
    """Spell an item of ``instantiate`` as TOML does."""
    if isinstance(item, str):
        return json.dumps(item, ensure_ascii=False)
    pairs = (f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in item.items())
    return f"{{ {', '.join(pairs)} }}"


def fold(texts: Iterable[str]) -> list[Item]:
    """Return `texts` as the items of ``instantiate``: strings, and tables that stand for several."""
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for text in dict.fromkeys(texts):
        parts = re.split(_WORD, text)
        alike.setdefault((*parts[::2], parts[1]), []).append(parts)
    return list(chain.from_iterable(map(_fold_alike, alike.values())))


def _fold_alike(rows: Sequence[list[str]]) -> list[Item]:
    """Fold texts that have the same words and signs, but for the values of some words."""
    columns: dict[_Values, list[int]] = {}
    for place in range(1, len(rows[0]), 2):
        columns.setdefault(tuple(row[place] for row in rows), []).append(place)
    varied = [values for values in columns if len({*values}) > 1]
    products: list[tuple[_Values, ...]] = [
        tuple((value,) for value in row) for row in zip(*varied, strict=True)
    ] or [()]
    names = _name_columns(rows[0], [columns[values] for values in varied])
    items: list[Item] = []
    for product in _unite(products):
        parts = [*rows[0]]
        lists: dict[str, str | list[str | int | bool]] = {}
        for name, values, column in zip(names, product, varied, strict=True):
            for place in columns[column]:
                parts[place] = f"{{{name}}}" if len(values) > 1 else values[0]
            if len(values) > 1:
                lists[name] = [_value(value) for value in values]
        items.append({"kernel": "".join(parts), **lists} if lists else "".join(parts))
    return items


def _unite(products: list[tuple[_Values, ...]]) -> list[tuple[_Values, ...]]:
    """Unite products that differ in the values of one column, until there are none."""
    count = 0
    while count != len(products):
        count = len(products)
        for number in range(len(products[0])):
            found: dict[tuple[_Values, ...], _Values] = {}
            for product in products:
                others = product[:number] + product[number + 1 :]
                found[others] = found.get(others, ()) + product[number]
            products = [(*key[:number], values, *key[number:]) for key, values in found.items()]
    return products


def _name_columns(parts: Sequence[str], places: Sequence[Sequence[int]]) -> list[str]:
    """Name a column as the constant whose value it is, or by a letter."""
    names: list[str] = []
    for own in places:
        place = own[0]
        is_value = parts[place - 1] == "=" and place > 1
        letters = (letter + str(n or "") for n in range(len(places)) for letter in _LETTERS)
        candidates = chain([parts[place - 2]] if is_value else (), letters)
        names.append(next(name for name in candidates if name not in (*names, "kernel")))
    return names


def _value(text: str) -> str | int | bool:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?(?:0|[1-9]\d{0,15})", text) else text
