"""The arguments of ``cuda_ext_add_module``, read as the table that pyproject.toml would have.

The keys are those of ``[tool.cuda_ext]`` in CMake's spelling, such as ``SPLIT_INSTANTIATIONS``. What is a
table in TOML is written as TOML writes it.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_ext.builder.config.keys import Settings
from cuda_ext.compiler.architectures import from_cmake
from cuda_ext.errors import ConfigError

__all__ = ["Arguments", "in_cmake", "parse_arguments"]

_TYPES = {name.replace("_", "-"): kind for name, kind in typing.get_type_hints(Settings).items()}
_KEYWORDS = {key: key.upper().replace("-", "_") for key in _TYPES} | {"include-dirs": "INCLUDE_DIRECTORIES"}
_KEYS = {keyword: key for key, keyword in _KEYWORDS.items()}
# What is no key of a module's table.
_NAME, _PYPROJECT, _DESTINATION = "NAME", "FROM_PYPROJECT", "PYTHON_DESTINATION"
_DEPENDS, _OVERRIDE = "DEPENDS", "OVERRIDE"
_OWN = (_NAME, _PYPROJECT, _DESTINATION, _DEPENDS)
_KNOWN = (*_KEYS, *_OWN, _OVERRIDE)
_BOOLEANS = dict.fromkeys(("1", "ON", "YES", "TRUE", "Y"), True) | dict.fromkeys(
    ("0", "OFF", "NO", "FALSE", "N"), False
)


@dataclass(frozen=True, slots=True)
class Arguments:
    """What one call says. ``table`` is as one of ``[tool.cuda_ext.modules]``, paths within the project.

    ``depends`` are targets and files that have to be made before the sources can be compiled.
    """

    name: str | None
    pyproject: bool
    python_destination: str | None
    depends: tuple[str, ...]
    table: Mapping[str, Any]


def parse_arguments(words: Sequence[str], where: str, root: Path, current: Path) -> Arguments:
    """Read the arguments after the target. Paths among them are relative to `current`, and lie in `root`.

    Raises :class:`ConfigError` with a key path that begins with `where`.
    """
    main, *overrides = _groups(words, where)
    own = {keyword: main.pop(keyword) for keyword in _OWN if keyword in main}
    paths = _Paths(root, current)
    table = _table(main, where, paths)
    if overrides:
        table["overrides"] = [
            _table(group, f"{where}.overrides[{i}]", paths) for i, group in enumerate(overrides)
        ]
    pyproject = _PYPROJECT in own and _boolean(own[_PYPROJECT], f"{where}.{_PYPROJECT}")
    if pyproject and table:
        given = ", ".join(_KEYWORDS.get(key, _OVERRIDE) for key in table)
        raise ConfigError(
            f"{where}: FROM_PYPROJECT takes all keys from [tool.cuda_ext]; leave out {given}, or it"
        )
    return Arguments(
        _single(own[_NAME], f"{where}.{_NAME}") if _NAME in own else None,
        pyproject,
        _single(own[_DESTINATION], f"{where}.{_DESTINATION}") if _DESTINATION in own else None,
        tuple(name for value in own.get(_DEPENDS, ()) for name in value.split(";") if name),
        table,
    )


def in_cmake(text: str, where: str) -> str:
    """`text` with its keys, in paths that begin with `where` and elsewhere, as CMake spells them."""

    def spelled(path: re.Match[str]) -> str:
        parts = re.findall(r"([\w-]+)((?:\[\d+\])*)", path[1])
        words = [f"{_KEYWORDS.get(key, key)}{index}" for key, index in parts]
        return f"{where}: {' '.join(words)}".replace("overrides[", f"{_OVERRIDE}[")

    def setting(match: re.Match[str]) -> str:
        key, value = match.groups()
        return match[0] if key not in _KEYWORDS else f"{_KEYWORDS[key]} {value}"

    text = re.sub(re.escape(where) + r"((?:\.[\w-]+(?:\[\d+\])*)+)", spelled, text)
    text = re.sub(r"\b([a-z-]+) = \"?(true|[\w-]+)\b\"?", setting, text)
    return text.replace("include-dirs", _KEYWORDS["include-dirs"])


def _groups(words: Sequence[str], where: str) -> list[dict[str, list[str]]]:
    """The values of each keyword: those of the module, then those of each OVERRIDE."""
    groups: list[dict[str, list[str]]] = [{}]
    values: list[str] | None = None
    keyword = ""
    for word in words:
        if "$<" in word:
            raise ConfigError(
                f"{where}: {word!r}: the arguments are read when the project is configured, before generator "
                "expressions have a value; use if()"
            )
        if word == _OVERRIDE:
            groups.append({})
            values = None
        elif word in _KNOWN:
            keyword = word
            if keyword in groups[-1]:
                raise ConfigError(f"{where}: {keyword} is there twice; merge the two")
            values = groups[-1][keyword] = []
        elif values is None or _is_misspelled(word, keyword):
            close = difflib.get_close_matches(word.upper(), _KNOWN, n=1)
            hint = f"did you mean {close[0]}?" if close else f"keywords are {', '.join(sorted(_KNOWN))}"
            raise ConfigError(f"{where}: unknown keyword {word!r}; {hint}")
        else:
            values.append(word)
    return groups


def _is_misspelled(word: str, keyword: str) -> bool:
    """Whether `word`, among the values of `keyword`, looks like a keyword itself."""
    return (
        re.fullmatch("[A-Z][A-Z_]{3,}", word) is not None
        and keyword not in ("DEFINE", "OPTIONS")
        and bool(difflib.get_close_matches(word, _KNOWN, n=1, cutoff=0.8))
    )


def _table(group: Mapping[str, Sequence[str]], where: str, paths: _Paths) -> dict[str, Any]:
    """What `group` would be in pyproject.toml."""
    table: dict[str, Any] = {}
    for keyword, values in group.items():
        if keyword not in _KEYS:
            raise ConfigError(f"{where}: {keyword} belongs before {_OVERRIDE}; move it there")
        key = _KEYS[keyword]
        table[key] = _value(key, values, f"{where}.{key}", paths)
    return table


def _value(key: str, values: Sequence[str], where: str, paths: _Paths) -> Any:
    match key:
        case "sources" | "headers" | "include-dirs":
            return [
                paths.within_project(path, where) for value in values for path in value.split(";") if path
            ]
        case "nvcc":
            return paths.absolute(_single(values, where))
        case "architectures":
            return from_cmake(" ".join(values))
        case "define":
            return dict(value.partition("=")[::2] for value in values)
        case "instantiate":
            return [_toml(v, where, "table = ")["table"] if v.startswith("{") else v for v in values]
        case "variants":
            return {name: value for v in values for name, value in _toml(v, where).items()}
    if _TYPES[key] is bool:
        return _boolean(values, where)
    if typing.get_origin(_TYPES[key]) is tuple:
        return list(values)
    return _single(values, where)


def _single(values: Sequence[str], where: str) -> str:
    if len(values) != 1:
        found = " and ".join(map(repr, values)) or "none"
        raise ConfigError(f"{where}: expected one value, found {found}")
    return values[0]


def _boolean(values: Sequence[str], where: str) -> bool:
    """A keyword alone says yes."""
    value = _single(values, where) if values else "ON"
    if value.upper() not in _BOOLEANS:
        raise ConfigError(f"{where}: expected ON or OFF, found {value!r}")
    return _BOOLEANS[value.upper()]


def _toml(text: str, where: str, before: str = "") -> dict[str, Any]:
    try:
        return tomllib.loads(before + text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: {text!r} is not written as in TOML: {error}; correct that") from None


@dataclass(frozen=True, slots=True)
class _Paths:
    """What the paths of a CMakeLists.txt in `current` are in the project at `root`."""

    root: Path
    current: Path

    def absolute(self, path: str) -> str:
        return os.path.normpath(self.current / path)

    def within_project(self, path: str, where: str) -> str:
        found = Path(self.absolute(path))
        # A project may be reached through a link, and named either way.
        roots = [
            root for root in (self.root, Path(os.path.realpath(self.root))) if found.is_relative_to(root)
        ]
        if not roots:
            raise ConfigError(
                f"{where}: {path!r} is outside of {self.root}, the directory of project(); copy the files "
                "into it; for headers of others, which are not embedded, say OPTIONS -I<directory>"
            )
        return found.relative_to(roots[0]).as_posix()
