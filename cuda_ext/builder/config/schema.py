"""``[tool.cuda_ext]`` as a JSON schema: what editors complete, and what validate-pyproject checks.

It is derived from :mod:`~cuda_ext.builder.config.keys`, and accepts what the checks of the build accept, but
for spellings of architectures that the compiler would refuse later. It cannot tell:

* what keys say together: ``launcher`` and ``compiler``, ``link`` and ``emit``, an option and the next one;
* whether the placeholders of an instantiation are those that its table has;
* whether modules lie within each other, and whether a name is in the form that Python imports;
* whether the parentheses of a condition match, and whether the default of variants is the last candidate;
* that ``1.0`` is no integer.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping

from cuda_ext.builder.config.keys import BUILD_KEYS, KEYS, TABLE, TABLES, Key
from cuda_ext.builder.config.kinds import NAME, Schema, array_schema, map_schema, table_schema
from cuda_ext.builder.config.modules import MODULE, OVERRIDE

__all__ = ["schema", "tool_schema"]

# A name by which validators tell schemas apart; there is nothing at that address.
_ID = "https://cuda-ext.invalid/schema.json"
_KEYWORD = rf"(?:{'|'.join(keyword.kwlist)})"
_MODULE_NAME = rf"^(?!(?:.*\.)?{_KEYWORD}(?:\.|$)){NAME}(?:\.{NAME})+$"


def tool_schema(_: str) -> Schema:
    """CUDA kernels in a Python package."""
    return schema()


def schema() -> Schema:
    """Return the schema, in draft 7 of the standard. It is the same on every machine."""
    module = {"$ref": "#/definitions/module"}
    modules = {**map_schema(_MODULE_NAME, module), "description": TABLES["modules"]}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": _ID,
        "title": f"[{TABLE}]",
        "description": "CUDA kernels of the project. Keys of modules are defaults for all of them here.",
        **table_schema({**MODULE.schema["properties"], **_describe(BUILD_KEYS), "modules": modules}),
        "definitions": {
            **_describe(KEYS),
            "overrides": array_schema(OVERRIDE.schema, description=TABLES["overrides"]),
            "module": MODULE.schema,
        },
    }


def _describe(keys: Mapping[str, Key]) -> Schema:
    """The schema of each of `keys`."""
    described = {}
    for name, (kind, default, doc) in keys.items():
        described[name] = {**kind.schema, "description": doc}
        if default is not None:
            described[name]["default"] = list(default) if isinstance(default, tuple) else default
    return described
