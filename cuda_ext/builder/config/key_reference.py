"""The reference of all keys of ``[tool.cuda_ext]`` as Markdown, rendered from their schema."""

from __future__ import annotations

import json
from collections.abc import Iterable

from cuda_ext.builder.config.keys import TABLE
from cuda_ext.builder.config.schema import Schema, schema

__all__ = ["as_markdown"]

_INTRODUCTION = f"""\
# Configuration

<!-- Made by scripts/document_configuration.py from the dataclasses in cuda_ext/builder/config/keys.py. -->

The table `[{TABLE}]` of `pyproject.toml` says what is built, and how. Paths and globs are relative to the
project's root, and stay within it.

## Keys of modules

They stand in a module's own table, or in `[{TABLE}]` as defaults for all modules.
"""
_OF_BUILD = f"""\
## Keys of the build

They stand in `[{TABLE}]` alone.
"""


def as_markdown() -> str:
    """The reference: a section for each key, in the order of the dataclasses."""
    document = schema()
    definitions = document["definitions"]
    of_module = {key: definitions[key] for key in definitions["module"]["properties"]}
    of_build = {key: value for key, value in document["properties"].items() if key not in of_module}
    overridable = definitions["overrides"]["items"]["properties"].keys() - {"sources"}
    sections = [
        _INTRODUCTION,
        *(_section(key, value, key in overridable) for key, value in of_module.items()),
        _OF_BUILD,
        *(_section(key, value, False) for key, value in of_build.items()),
    ]
    return "\n".join(sections)


def _section(key: str, value: Schema, overridable: bool) -> str:
    facts = [_type(value).capitalize()]
    if "default" in value:
        # TOML spells strings, booleans and what is empty as JSON does.
        facts.append(f"default `{json.dumps(value['default'])}`")
    if overridable:
        facts.append("also in overrides")
    return f"### `{key}`\n\n{'; '.join(facts)}.\n\n{value['description']}\n"


def _type(value: Schema, plural: str = "") -> str:
    """What `value` describes, in the words of TOML."""
    if choices := value.get("enum"):
        return _either(f"`{json.dumps(choice)}`" for choice in choices)
    if alternatives := value.get("anyOf"):
        return _either(_type(alternative, plural) for alternative in alternatives)
    match value["type"]:
        case list(kinds):
            return _either(kind + plural for kind in kinds)
        case "array":
            return f"array{plural} of {_type(value['items'], 's')}"
        case "object":
            return f"table{plural}"
        case kind:
            return f"{kind}{plural}"


def _either(words: Iterable[str]) -> str:
    return " or ".join(words)
