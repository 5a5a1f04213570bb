"""``[tool.cuda_ext]`` as a JSON schema: what editors complete, and what validate-pyproject checks.

Made from the dataclasses that describe the table. The schema takes whatever the checker of the build takes,
but for spellings of architectures that the compiler would refuse later. It cannot tell:

* what keys say together: ``launcher`` and ``compiler``, ``link`` and ``emit``, an option and the next one;
* whether the placeholders of an instantiation are those that its table has;
* whether modules lie within each other, and whether a name is in the form that Python imports;
* whether the parentheses of a condition match, and whether the default of variants is the last candidate;
* that ``1.0`` is no integer.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from cuda_ext.builder.config import schema_patterns
from cuda_ext.builder.config.keys import OVERRIDABLE, TABLE, TABLES, BuildSettings, Settings, key_of

__all__ = ["Schema", "as_json", "schema"]

Schema: TypeAlias = dict[str, Any]

# A name by which validators tell schemas apart; there is nothing at that address.
_ID = "https://cuda-ext.invalid/schema.json"


def schema() -> Schema:
    """The schema, in draft 7 of the standard. It is the same on every machine."""
    keys = _keys(Settings)
    of_module = {key: _reference(key) for key in (*keys, "overrides")}
    override = _table({key: _reference(key) for key in ("sources", *map(key_of, OVERRIDABLE))})
    overrides = {**_array({**override, "required": ["sources"]}), "description": TABLES["overrides"]}
    modules = {**_map(schema_patterns.MODULE, _reference("module")), "description": TABLES["modules"]}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": _ID,
        "title": f"[{TABLE}]",
        "description": "CUDA kernels of the project. Keys of modules are defaults for all of them here.",
        **_table({**of_module, **_keys(BuildSettings), "modules": modules}),
        "definitions": {**keys, "overrides": overrides, "module": _table(of_module)},
    }


def as_json() -> str:
    """The text of the file that is shipped."""
    return json.dumps(schema(), indent=2) + "\n"


def _keys(table: type[Settings | BuildSettings]) -> Schema:
    """The schema of each key of `table`."""
    types, defaults = typing.get_type_hints(table), table()
    found = {}
    for field in dataclasses.fields(table):
        key = key_of(field.name)
        found[key] = {**_value(key, types[field.name]), "description": field.metadata["doc"]}
        if (default := getattr(defaults, field.name)) is not None:
            found[key]["default"] = _as_toml(default, found[key]["type"])
    return found


def _as_toml(default: Any, kind: str) -> Any:
    """A default as the table would have it."""
    match kind:
        case "array":
            return list(default)
        case "object":
            return dict(default)
        case _:
            return default


def _value(key: str, kind: Any) -> Schema:
    """What `key` of type `kind` may be; as :func:`cuda_ext.builder.config.checks.checked` has it."""
    match key:
        case "sources":
            return {**_array(_TEXT), "minItems": 1}
        case "architectures":
            return {**_array(_string(schema_patterns.ARCHITECTURE)), "minItems": 1}
        case "std":
            return _string(schema_patterns.STANDARD)
        case "options":
            refused = [
                {"pattern": p} for p in (schema_patterns.OPTION_WITH_KEY, schema_patterns.RELATIVE_INCLUDE)
            ]
            return _array({**_TEXT, "not": {"anyOf": refused}})
        case "instantiate":
            return _array({"anyOf": [_EXPRESSION, _PRODUCT]})
        case "variants":
            return _map(schema_patterns.SCOPED_NAME, _CANDIDATES)
    if typing.get_origin(kind) is Literal:
        return {"type": "string", "enum": list(typing.get_args(kind))}
    if typing.get_origin(kind) is tuple:
        return _array(_TEXT)
    if typing.get_origin(kind) is Mapping:
        return _map(schema_patterns.C_NAME, _STRING_OR_INTEGER)
    if kind is bool:
        return {"type": "boolean"}
    return {"type": "string", "minLength": 1}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}


def _string(pattern: str) -> Schema:
    return {"type": "string", "pattern": pattern}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _table(properties: Schema) -> Schema:
    """A table with these keys and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _map(names: str, values: Schema) -> Schema:
    """A table with keys of the author's own."""
    return {"type": "object", "propertyNames": {"pattern": names}, "additionalProperties": values}


_TEXT = _string(schema_patterns.TEXT)
_STRING_OR_INTEGER: Schema = {"type": ["string", "integer"]}

_EXPRESSION: Schema = {
    "type": "string",
    "description": "A C++ name expression.",
    "not": {"anyOf": [{"pattern": schema_patterns.BLANK}, {"pattern": schema_patterns.ABSENT_PLACEHOLDER}]},
}
_PRODUCT: Schema = {
    **_map(schema_patterns.C_NAME, {**_array(_STRING_OR_INTEGER), "minItems": 1}),
    "properties": {
        "kernel": {
            "type": "string",
            "description": "A C++ name expression with placeholders, such as `reduce<{T}>`.",
        }
    },
    "required": ["kernel"],
}
_CANDIDATES: Schema = {
    **_array(
        {
            **_table(
                {
                    "kernel": {"type": "string", "description": "The kernel, as a C++ name expression."},
                    "when": {
                        **_string(schema_patterns.CONDITION),
                        "description": "When to take it, such as `sm_90a` or `sm >= 80 and n >= 65536`.",
                    },
                }
            ),
            "required": ["kernel"],
        }
    ),
    # The default, which has to be there. It also makes the array not empty.
    "contains": {"not": {"required": ["when"]}},
}
