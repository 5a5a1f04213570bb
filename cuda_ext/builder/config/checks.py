"""The values of single keys: what each may be, and how to mend what is not."""

from __future__ import annotations

import difflib
import itertools
import json
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from cuda_ext.errors import ConfigError
from cuda_ext.formats.variant_conditions import ConditionError, parse
from cuda_ext.manifest import Candidate, Variants

__all__ = ["checked", "expect", "key_path"]


def key_path(where: str, key: str) -> str:
    """The path of `key` within `where`, with quotes where TOML wants them."""
    return f"{where}.{key if re.fullmatch(r'[A-Za-z0-9_-]+', key) else _show(key)}"


def expect(value: object, kind: type, where: str, what: str) -> Any:
    """`value`, if it is a `kind`. Raises :class:`ConfigError` that asks for `what`."""
    if not isinstance(value, kind):
        raise ConfigError(f"{where}: expected {what}, found {_show(value)}")
    return value


def checked(key: str, kind: Any, value: object, where: str) -> Any:
    """`value` as the setting `key` of type `kind` holds it. Raises :class:`ConfigError`."""
    match key:
        case "instantiate":
            return tuple(_instantiations(value, where))
        case "options":
            return _options(_strings(value, where), where)
        case "std":
            return _std(value, where)
        case "variants":
            return tuple(_variants(value, where))
        case "sources" | "architectures":
            example = "device/*.cu" if key == "sources" else "all-major"
            return _strings(value, where) or _empty(where, f'name at least one, such as "{example}"')
    if typing.get_origin(kind) is Literal:
        return _choice(value, typing.get_args(kind), where)
    if typing.get_origin(kind) is tuple:
        return _strings(value, where)
    if typing.get_origin(kind) is Mapping:
        return _macros(value, where)
    if kind is bool:
        return expect(value, bool, where, "true or false")
    return expect(value, str, where, "a string") or _empty(where, "give it a value or leave it out")


def _choice(value: object, choices: Sequence[str], where: str) -> str:
    if isinstance(value, str) and value in choices:
        return value
    close = difflib.get_close_matches(value.lower(), choices, n=1) if isinstance(value, str) else []
    raise ConfigError(
        f"{where}: expected {' or '.join(map(repr, choices))}, found {_show(value)}"
        + (f"; did you mean {close[0]!r}?" if close else "")
    )


def _strings(value: object, where: str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise ConfigError(f"{where}: expected an array of strings; write [{_show(value)}]")
    for i, item in enumerate(expect(value, list, where, "an array of strings")):
        expect(item, str, f"{where}[{i}]", "a string") or _empty(f"{where}[{i}]", "take it out")
        if "\0" in item:
            raise ConfigError(f"{where}[{i}]: {item!r} has a zero byte; take it out")
    return tuple(typing.cast("list[str]", value))


def _empty(where: str, remedy: str) -> typing.NoReturn:
    raise ConfigError(f"{where}: is empty; {remedy}")


def _std(value: object, where: str) -> str:
    text: str = expect(value, str, where, 'a string such as "c++17"')
    if not re.fullmatch(r"c\+\+\d[\da-z]", text):
        year = re.search(r"\d[\da-z]$", text)
        raise ConfigError(
            f"{where}: {text!r} is not a C++ standard; did you mean 'c++{year[0] if year else 17}'?"
        )
    return text


# Options that say what a key says already; the compiler would take one of the two without a word.
_KEY_OF_OPTION = {
    **dict.fromkeys(("-arch", "--gpu-architecture", "-gencode", "--generate-code", "-code"), "architectures"),
    **dict.fromkeys(("-std", "--std"), "std"),
    **dict.fromkeys(("-rdc", "--relocatable-device-code", "-dc", "--device-c", "-dlto"), "link"),
    **dict.fromkeys(("-fatbin", "--fatbin", "-cubin", "--cubin", "-ptx", "--ptx"), "emit"),
}
_INCLUDE = re.compile(r"(?:-I|--include-path|-isystem|--system-include)=?(.*)", re.DOTALL)


def _options(options: tuple[str, ...], where: str) -> tuple[str, ...]:
    for i, (option, following) in enumerate(itertools.pairwise((*options, ""))):
        if key := _KEY_OF_OPTION.get(option.partition("=")[0]):
            raise ConfigError(f"{where}[{i}]: {option!r} has a key of its own; set {key} instead")
        include = _INCLUDE.fullmatch(option)
        if include and not Path(include[1] or following).is_absolute():
            raise ConfigError(
                f"{where}[{i}]: {option!r} depends on where the build happens to run; "
                "name directories of the project in include-dirs"
            )
    return options


def _macros(value: object, where: str) -> dict[str, str]:
    macros = {}
    for name, text in expect(value, dict, where, "a table of macros and their values").items():
        here = key_path(where, name)
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ConfigError(
                f"{here}: not the name of a macro; define macros with parameters in a header and name it "
                "in pre-include"
                if "(" in name
                else f"{here}: not the name of a macro; names have letters, digits and underscores"
            )
        if isinstance(text, bool) or not isinstance(text, (str, int)):
            raise ConfigError(f'{here}: expected a string or an integer, such as "1", found {_show(text)}')
        macros[name] = str(text)
    return macros


_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")


def _instantiations(value: object, where: str) -> Iterator[str]:
    """Strings as they are; tables multiplied out over the values of their placeholders."""
    if isinstance(value, str):
        raise ConfigError(f"{where}: expected an array of name expressions; write [{_show(value)}]")
    for i, item in enumerate(expect(value, list, where, "an array of name expressions")):
        here = f"{where}[{i}]"
        if isinstance(item, str):
            yield _expression(item, here)
        else:
            what = 'a name expression such as "axpy<float>", or a table with kernel'
            yield from _products(expect(item, dict, here, what), here)


def _expression(text: str, where: str) -> str:
    if not text.strip():
        raise ConfigError(f"{where}: is empty; take it out")
    # No template argument of C++ is a list in braces by itself.
    if placeholder := re.search(r"[<,]\s*" + _PLACEHOLDER.pattern, text):
        name = placeholder[1]
        raise ConfigError(
            f'{where}: {{{name}}} has no values; write {{ kernel = {_show(text)}, {name} = ["..."] }}'
        )
    return text


def _products(table: Mapping[str, object], where: str) -> Iterator[str]:
    if "kernel" not in table and (close := difflib.get_close_matches("kernel", table, n=1)):
        raise ConfigError(f"{key_path(where, close[0])}: unknown key; did you mean 'kernel'?")
    pattern = expect(table.get("kernel"), str, f"{where}.kernel", 'a string such as "reduce<{T}>"')
    placeholders = dict.fromkeys(_PLACEHOLDER.findall(pattern))
    for name in table:
        if name != "kernel" and name not in placeholders:
            raise ConfigError(
                f"{key_path(where, name)}: the expression {pattern!r} has no {{{name}}}; put it there, or "
                "take the key out"
            )
    values = [_values(table, name, where) for name in placeholders]
    for combination in itertools.product(*values):
        chosen = dict(zip(placeholders, combination, strict=True))
        yield _PLACEHOLDER.sub(lambda match, chosen=chosen: chosen[match[1]], pattern)  # type: ignore[misc]


def _values(table: Mapping[str, object], name: str, where: str) -> list[str]:
    """The values of one placeholder."""
    if name not in table:
        raise ConfigError(f"{where}: {{{name}}} has no values; add {name} = [...]")
    here = f"{where}.{name}"
    values = table[name]
    if isinstance(values, str):
        raise ConfigError(f"{here}: expected an array of values; write [{_show(values)}]")
    for i, value in enumerate(expect(values, list, here, "an array of values") or _empty(here, "add values")):
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise ConfigError(f"{here}[{i}]: expected a string or an integer, found {_show(value)}")
    return list(map(str, typing.cast("list[object]", values)))


_CANDIDATE = 'a table such as { kernel = "gemm_large", when = "sm >= 80 and n >= 65536" }'


def _variants(value: object, where: str) -> Iterator[Variants]:
    example = 'a table such as { gemm = [{ kernel = "hopper", when = "sm_90a" }, { kernel = "simple" }] }'
    for name, items in expect(value, dict, where, example).items():
        here = key_path(where, name)
        if not re.fullmatch(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*", name):
            raise ConfigError(f"{here}: not a name that a kernel could have; write it as C++ does")
        candidates = [
            _candidate(item, f"{here}[{i}]")
            for i, item in enumerate(expect(items, list, here, f"an array of candidates, each {_CANDIDATE}"))
        ]
        for i, candidate in enumerate(candidates or _empty(here, "name the kernels, the default last")):
            is_last = i == len(candidates) - 1
            if candidate.when is None and not is_last:
                raise ConfigError(
                    f"{here}[{i}]: has no condition, so that what follows is never taken; "
                    "give it one with when, or move it to the end"
                )
            if candidate.when is not None and is_last:
                raise ConfigError(
                    f"{here}[{i}].when: the last candidate is the default, which is taken where no other is; "
                    "take the condition out, or add a candidate without one"
                )
        yield Variants(name, tuple(candidates))


def _candidate(value: object, where: str) -> Candidate:
    table = expect(value, dict, where, _CANDIDATE)
    for key in table:
        if key not in ("kernel", "when"):
            raise ConfigError(f"{key_path(where, key)}: unknown key; a candidate has kernel and when")
    if "kernel" not in table:
        raise ConfigError(f"{where}.kernel: is missing; name the kernel that is taken")
    kernel = expect(table["kernel"], str, f"{where}.kernel", 'a name expression such as "gemm<float>"')
    if "when" not in table:
        return Candidate(kernel)
    when = expect(table["when"], str, f"{where}.when", 'a condition such as "sm >= 80 and n >= 65536"')
    try:
        parse(when)
    except ConditionError as error:
        raise ConfigError(f"{where}.when: {_show(when)}: {error}") from None
    return Candidate(kernel, when)


def _show(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False)
        case dict():
            return "a table"
        case list():
            return "an array"
        case None:
            return "nothing"
        case _:
            return str(value)
