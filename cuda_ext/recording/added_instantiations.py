"""Add instantiations to pyproject.toml, with its comments and formatting.

Those that are products become tables with lists of values.

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
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from cuda_ext.builder.config.modules import parse_table
from cuda_ext.builder.project import Project
from cuda_ext.errors import BuildError, ConfigError, ToolchainError
from cuda_ext.filesystem.regular_file import read_file
from cuda_ext.recording.built_launches import Missing, compare
from cuda_ext.recording.records import RecordError

# A string, a number or a name; not the k of Triton's *kfp16.
_WORD = r"""('(?:\\.|[^'\\])*'|(?<![\w.)])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)|(?!(?<=\*)k[a-z]+\d)\w+)"""
_PLAIN = re.compile(r"true|false|-?(?:0|[1-9]\d{0,15})")  # in TOML
# The values of one word.
_Values = tuple[str, ...]


def add_to_table(project: Project, missing: Sequence[Missing]) -> bytes:
    """Return pyproject.toml with instantiations for what is `missing`; all else stays as it is.

    Raises :class:`~cuda_ext.errors.ToolchainError` without tomlkit, and :class:`ConfigError` for a file that
    cannot be extended.
    """
    try:
        import tomlkit
    except ModuleNotFoundError:
        remedy = 'install "cuda-ext[record]"'
        raise ToolchainError("tomlkit, which keeps comments, is not installed", remedy=remedy) from None
    content = read_file(str(project.root / "pyproject.toml"))
    if not missing:
        return content
    document: Any = tomlkit.parse(content.decode())
    try:
        for each in missing:
            if each.instantiations:
                _add(document["tool"]["cuda_ext"], each)
        text = tomlkit.dumps(document)
        if (table := tomllib.loads(text)) != document.unwrap():
            raise ValueError
    # tomlkit does not extend each form of a table, and spells some wrong.
    except (ValueError, TypeError, LookupError, AttributeError):
        raise _refusal(missing) from None
    complete = [launch for each in missing if not each.notes for launch in each.launches]
    try:
        modules, _ = parse_table(table["tool"]["cuda_ext"], project.modules[0].name)
        left, _ = compare(replace(project, modules=modules), complete)
    except BuildError as error:
        remedy = "records may be older than the sources: remove them, and record again"
        raise RecordError(f"cannot be built: {error.problem}", remedy=remedy) from None
    if left:
        raise _refusal(left)
    has_cr = content.count(b"\n") == content.count(b"\r\n") > 0
    return (text.replace("\r\n", "\n").replace("\n", "\r\n") if has_cr else text).encode()


def _add(common: Any, missing: Missing) -> None:
    """Add what is `missing` to the table of all modules: to an override of the source, or to the module."""
    from tomlkit import aot, array, table, value
    from tomlkit.items import AoT, InlineTable

    is_python, name = missing.source.endswith(".py"), missing.module.name
    own = common.get("modules", {}).get(name, {})
    overrides = [*common.get("overrides", ()), *own.get("overrides", ())]
    fitting = (o for o in overrides if o["sources"] == [missing.source] and "tuning" not in o)
    place = next(fitting, common)
    if place is common and (is_python or "instantiate" in own or "instantiate" not in common):
        modules = common.setdefault("modules", table(is_super_table=True))
        place = modules.setdefault(name, table(is_super_table=False))
        if is_python:
            before = (place["overrides"][-1] if place.get("overrides") else place).as_string()
            several = place.setdefault("overrides", array() if isinstance(place, InlineTable) else aot())
            several.append({"sources": [missing.source]})
            place = several[-1]
            if isinstance(several, AoT):
                place.trivia.indent = "" if before.endswith("\n\n") else "\n"
    items = place.setdefault("instantiate", array().multiline(True))
    for item in map(value, fold(missing.instantiations)):
        plain: Any = item.unwrap()
        if isinstance(items, AoT):
            items.append({"kernel": plain} if isinstance(plain, str) else plain)
        else:
            items.append(item)


def _refusal(missing: Sequence[Missing]) -> ConfigError:
    """Return the error for a form of a table that tomlkit cannot extend; it says what to write by hand."""
    lists = (f"{each.source}: instantiate = [{', '.join(fold(each.instantiations))}]" for each in missing)
    where, remedy = missing[0].module.where, f"write by hand: {'; '.join(lists)}"
    return ConfigError("cannot be extended in this form", where=where, remedy=remedy)


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
