"""Write ``reference/configuration.md`` from the keys' schema: ``python docs/make_configuration.py``.

Needs nothing but Python 3.11.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from cuda_ext.builder.config.keys import BUILD_KEYS, KEYS, OVERRIDABLE, TABLE  # noqa: E402
from cuda_ext.builder.config.schema import Schema, schema  # noqa: E402

_INTRODUCTION = f"""\
# Configuration

<!-- Made by docs/make_configuration.py from cuda_ext/builder/config/keys.py. -->

The table `[{TABLE}]` of `pyproject.toml` says what is built, and how. Paths and globs are relative to the
project's root, and stay within it.

## Keys of modules

They stand in a module's own table, or in `[{TABLE}]` as defaults for all modules.
"""
_OF_BUILD = f"""\
## Keys of the build

They stand in `[{TABLE}]` alone.
"""


def reference() -> str:
    """Return the page: a section for each key, in the order of their definition."""
    document = schema()
    definitions, properties = document["definitions"], document["properties"]
    sections = [
        _INTRODUCTION,
        *(_section(key, definitions[key]) for key in (*KEYS, "overrides")),
        _OF_BUILD,
        *(_section(key, properties[key]) for key in (*BUILD_KEYS, "modules")),
    ]
    return "\n".join(sections)


def _section(key: str, value: Schema) -> str:
    facts = [_describe(value).capitalize()]
    if "default" in value:
        # TOML spells strings, booleans and what is empty as JSON does.
        facts.append(f"default `{json.dumps(value['default'])}`")
    if key in OVERRIDABLE:
        facts.append("also in overrides")
    return f"### `{key}`\n\n{'; '.join(facts)}.\n\n{value['description']}\n"


def _describe(value: Schema, plural: str = "") -> str:
    """Describe the type in the words of TOML."""
    if choices := value.get("enum"):
        return _join(f"`{json.dumps(choice)}`" for choice in choices)
    if alternatives := value.get("anyOf"):
        return _join(_describe(alternative, plural) for alternative in alternatives)
    match value["type"]:
        case list(kinds):
            return _join(kind + plural for kind in kinds)
        case "array":
            return f"array{plural} of {_describe(value['items'], 's')}"
        case "object":
            return f"table{plural}"
        case kind:
            return f"{kind}{plural}"


def _join(words: Iterable[str]) -> str:
    return " or ".join(words)


if __name__ == "__main__":
    (HERE / "reference" / "configuration.md").write_text(reference(), encoding="utf-8", newline="\n")
