"""Read a call of ``cuda_ext_add_module`` as the table that pyproject.toml would have.

The keys are those of ``[tool.cuda_ext]`` in CMake's spelling, such as ``SPLIT_INSTANTIATIONS``. Values that
are tables in TOML are written in TOML. Errors are spelled in CMake's words, too.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from cuda_ext.builder.config.keys import KEYS
from cuda_ext.compiler.architectures import from_cmake
from cuda_ext.compiler.spelled_settings import cmake_keyword
from cuda_ext.errors import BuildError, ConfigError, closest_name
from cuda_ext.integrations.cmake.module_call import Call, call_of

_KEY_OF = {cmake_keyword(key): key for key in KEYS}
# Arguments that are not keys of a module's table, and their fields of a call.
_FIELDS = {
    "NAME": "name",
    "FROM_PYPROJECT": "pyproject",
    "JIT": "jit",
    "C_INTERFACE": "c_interface",
    "PYTHON_ONLY": "python_only",
    "CXX_NAMESPACE": "cxx_namespace",
    "EMBED": "embed",
}
# Arguments that CMake reads itself.
_DESTINATION, _DEPENDS = "PYTHON_DESTINATION", "DEPENDS"
_OVERRIDE = "OVERRIDE"
_KNOWN = (*dict.fromkeys((*_KEY_OF, *_FIELDS, _DESTINATION, _DEPENDS, _OVERRIDE)),)
# Arguments of similar functions and properties of CMake, and of pyproject.toml.
_MISNOMERS = {
    "INCLUDE_DIRS": "INCLUDE_DIRECTORIES",
    "INCLUDES": "INCLUDE_DIRECTORIES",
    "SOURCE": "SOURCES",
    "HEADERS": "EMBED_SOURCES",
    "ARCHS": "ARCHITECTURES",
    "CUDA_ARCHITECTURES": "ARCHITECTURES",
    "DEFINITIONS": "DEFINE",
    "COMPILE_DEFINITIONS": "DEFINE",
    "COMPILE_OPTIONS": "OPTIONS",
    "FLAGS": "OPTIONS",
    "CUDA_STANDARD": "STD",
    "CXX_STANDARD": "STD",
    "CUDA_SEPARABLE_COMPILATION": "LINK",
    "PRECOMPILE_HEADERS": "PRE_INCLUDE",
    "DEPENDENCIES": "DEPENDS",
    "DESTINATION": "PYTHON_DESTINATION",
    "NAMESPACE": "CXX_NAMESPACE",
    "MODULE": "NAME",
}
_BOOLEANS = dict.fromkeys(("1", "ON", "YES", "TRUE", "Y"), True) | dict.fromkeys(
    ("0", "OFF", "NO", "FALSE", "N"), False
)


def parse_call(
    words: Sequence[str],
    target: str,
    root: Path,
    current: Path,
    binary: Path | None = None,
    generated: Collection[str] = (),
) -> Call:
    """Read the arguments `words` after `target`; paths are relative to `current`, and lie in `root`.

    Files in the `binary` directory have names that do not depend on its place, and so have the paths
    `generated`, which the build makes anywhere. Raises :class:`ConfigError` with a key path that begins with
    the call.
    """
    where = call_of(target)
    paths = _Paths(root, current, binary, generated)
    main, *overrides = _groups(words, where, paths)
    fields = {
        field: _value(field, main.pop(keyword), f"{where}.{keyword}", paths)
        for keyword, field in _FIELDS.items()
        if keyword in main
    }
    main.pop(_DEPENDS, None)
    if (values := main.pop(_DESTINATION, None)) is not None:
        _single(values, f"{where}.{_DESTINATION}")
    table = _table(main, where, paths)
    if overrides:
        table["overrides"] = [
            _table(group, f"{where}.overrides[{i}]", paths) for i, group in enumerate(overrides)
        ]
    if fields.get("pyproject") and table:
        given = ", ".join(map(cmake_keyword, table))
        raise ConfigError(
            "FROM_PYPROJECT takes all keys from [tool.cuda_ext]",
            where=where,
            remedy=f"leave out {given}, or it",
        )
    outside, made = paths.outside, tuple(sorted(paths.generated_names))
    return Call(target, os.path.realpath(root), table=table, outside=outside, generated=made, **fields)


def _split(values: Sequence[str]) -> list[str]:
    """Return the items of `values`, which are lists of CMake."""
    return [item for value in values for item in value.split(";") if item]


def spell_error(error: BuildError, call: str) -> str:
    """Spell key paths below `call`, with which lines of `error` begin, in CMake's words: ``call: STD``."""
    path = rf"(?m)^{re.escape(call)}\.(.+?)(?=: )"
    return re.sub(path, lambda match: f"{call}: {_spell_path(match[1])}", str(error))


def _spell_path(path: str) -> str:
    """Return the key path `path` in CMake's words; what follows the key is a path within its value."""
    head, _, rest = path.partition(".")
    key, bracket, index = head.partition("[")
    rest = _spell_path(rest) if key == "overrides" and rest else rest.replace(".", " ")
    return f"{cmake_keyword(key)}{bracket}{index} {rest}".rstrip()


def _groups(words: Sequence[str], where: str, paths: _Paths) -> list[dict[str, list[str]]]:
    """Return the values of each keyword: those of the module, then those of each OVERRIDE."""
    groups: list[dict[str, list[str]]] = [{}]
    values: list[str] | None = None
    keyword = ""
    for word in words:
        if "$<" in word:
            raise ConfigError(
                f"{word!r}: the arguments are read when the project is configured, before generator "
                "expressions have a value",
                where=where,
                remedy="use if()",
            )
        if word == _OVERRIDE:
            groups.append({})
            values = None
        elif word in _KNOWN:
            keyword = word
            if keyword in groups[-1]:
                raise ConfigError(f"{keyword} is given twice", where=where, remedy="merge the two")
            values = groups[-1][keyword] = []
        elif values is None or _is_misspelled(word, keyword, values, paths):
            close = _MISNOMERS.get(word.upper()) or closest_name(word.upper(), _KNOWN)
            remedy = f"did you mean {close}?" if close else f"keywords are {', '.join(sorted(_KNOWN))}"
            raise ConfigError(f"unknown keyword {word!r}", where=where, remedy=remedy)
        else:
            values.append(word)
    return groups


# Keywords whose values, or whose only value, may be any words.
_FREE, _FREE_ALONE = ("DEFINE", "OPTIONS", _DEPENDS), ("COMPILER", "LAUNCHER", "CXX_NAMESPACE", _DESTINATION)


def _is_misspelled(word: str, keyword: str, values: Sequence[str], paths: _Paths) -> bool:
    """Return True if `word`, after the `values` of `keyword`, looks like a keyword itself.

    One in lower case does, unless a file or directory has that name.
    """
    if word.upper() in _KNOWN:
        is_value = keyword in _FREE or (keyword in _FREE_ALONE and not values)
        return not is_value and not Path(paths.absolute(word)).exists()
    return (
        re.fullmatch("[A-Z][A-Z_]{3,}", word) is not None
        and keyword not in ("DEFINE", "OPTIONS")
        and (word in _MISNOMERS or bool(closest_name(word, _KNOWN, 0.8)))
    )


def _table(group: Mapping[str, Sequence[str]], where: str, paths: _Paths) -> dict[str, Any]:
    """Return the table that `group` would be in pyproject.toml."""
    table: dict[str, Any] = {}
    for keyword, values in group.items():
        if keyword not in _KEY_OF:
            raise ConfigError(f"{keyword} belongs before {_OVERRIDE}", where=where, remedy="move it there")
        key = _KEY_OF[keyword]
        table[key] = _value(key, values, f"{where}.{key}", paths)
    return table


def _value(key: str, values: Sequence[str], where: str, paths: _Paths) -> Any:
    """Return the value of a key or a field of the call."""
    match key:
        case "sources" | "headers" | "include-dirs":
            return [paths.within_project(path, where) for path in _split(values)]
        case "nvcc":
            return paths.absolute(_single(values, where))
        case "architectures":
            return from_cmake(" ".join(values))
        case "define":
            return dict(value.partition("=")[::2] for value in values)
        case "instantiate" | "tune":
            return [_toml(v, where, "table = ")["table"] if v.startswith("{") else v for v in values]
        case "variants":
            return {name: value for v in values for name, value in _toml(v, where).items()}
        case "split-instantiations":
            return _parts(values, where)
    default = KEYS[key].default if key in KEYS else None
    if key in ("pyproject", "python_only", "c_interface") or isinstance(default, bool):
        return _boolean(values, where)
    if key == "cxx_namespace":
        return _namespace(_single(values, where), where)
    return list(values) if isinstance(default, tuple) else _single(values, where)


def _single(values: Sequence[str], where: str) -> str:
    if len(values) != 1:
        given = " and ".join(map(repr, values)) or "none"
        raise ConfigError(f"expected one value, found {given}", where=where)
    return values[0]


def _boolean(values: Sequence[str], where: str, expected: str = "ON or OFF") -> bool:
    """Return a truth value; a keyword without a value is true."""
    value = _single(values, where) if values else "ON"
    if value.upper() not in _BOOLEANS:
        raise ConfigError(f"expected {expected}, found {value!r}", where=where)
    return _BOOLEANS[value.upper()]


def _parts(values: Sequence[str], where: str) -> bool | int:
    """Return a number of parts or a truth value, which 0 and 1 are, as always in CMake."""
    if len(values) == 1 and re.fullmatch("[2-9]|[1-9][0-9]{1,8}", values[0]):
        return int(values[0])
    return _boolean(values, where, "ON, OFF or a number of parts")


def _namespace(value: str, where: str) -> str:
    """Return the namespace `value`, which can be declared: ``my::gpu``."""
    from cuda_ext.builder.cpp.device_types import identifier

    parts = value.split("::")
    is_usable = all(
        re.fullmatch(r"[A-Za-z]\w*", part, re.ASCII) and identifier(part) == part for part in parts
    )
    if not is_usable or "__" in value:
        raise ConfigError(f"{value!r} is not a namespace", where=where, remedy="write it as in C++: my::gpu")
    return value


def _toml(text: str, where: str, before: str = "") -> dict[str, Any]:
    try:
        return tomllib.loads(before + text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{text!r} is not valid TOML: {error}", where=where, remedy="correct it") from None


# The first parts of the names of files outside of the project.
_BINARY, _GENERATED = "BINARY_DIR", "GENERATED_DIR"


class _Paths:
    """The paths of a CMakeLists.txt in `current`, in the project at `root`, as names of its files.

    ``outside`` and ``generated_names`` are those of the names that were asked for.
    """

    def __init__(self, root: Path, current: Path, binary: Path | None, generated: Collection[str]) -> None:
        self._root = root
        self._current = current
        self._generated = generated
        self.outside: dict[str, str] = {}
        self.generated_names: set[str] = set()
        real = Path(os.path.realpath(root))
        self._places = [(root, ""), (real, "")]
        if binary and not real.is_relative_to(
            os.path.realpath(binary)
        ):  # in an in-source build, it is the project
            self._places[:0] = [(binary, _BINARY), (Path(os.path.realpath(binary)), _BINARY)]

    def absolute(self, path: str) -> str:
        return os.path.normpath(self._current / path)

    def within_project(self, path: str, where: str) -> str:
        """Return the name of the file or the pattern `path`. Raises :class:`ConfigError`."""
        absolute = Path(self.absolute(path))
        is_generated = str(absolute) in self._generated
        name = self._name(absolute, is_generated)
        if name is None:
            raise ConfigError(
                f"{path!r} is outside of {self._root}, the directory of project()",
                where=where,
                remedy="copy the files into it, or into PROJECT_BINARY_DIR with configure_file(); for "
                "headers of other projects, which are not embedded, use OPTIONS -I<directory>",
            )
        if is_generated:
            self.generated_names.add(name)
        return name

    def _name(self, absolute: Path, is_generated: bool) -> str | None:
        # A project may be reached through a link, and named either way.
        for directory, first in self._places:
            if absolute.is_relative_to(directory):
                if first:
                    self.outside[first] = os.path.realpath(directory)
                return (Path(first) / absolute.relative_to(directory)).as_posix()
        if not is_generated:
            return None
        real = os.path.realpath(absolute.parent)
        known = [first for first, directory in self.outside.items() if directory == real]
        number = sum(first.startswith(_GENERATED) for first in self.outside) + 1
        first = known[0] if known else f"{_GENERATED}_{number}"
        self.outside[first] = real
        return f"{first}/{absolute.name}"
