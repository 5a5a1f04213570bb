"""Add instantiations to pyproject.toml, with its comments and formatting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cuda_ext.builder.config.modules import parse_table
from cuda_ext.builder.project import Project
from cuda_ext.errors import ConfigError, ToolchainError
from cuda_ext.filesystem.regular_file import read_file
from cuda_ext.recording.built_launches import Missing, compare
from cuda_ext.recording.folding import fold


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
    document: Any = tomlkit.parse(read_file(str(project.root / "pyproject.toml")).decode())
    for each in missing:
        if each.instantiations:
            _add(document["tool"]["cuda_ext"], each)
    modules, _ = parse_table(document.unwrap()["tool"]["cuda_ext"], project.modules[0].name)
    complete = [launch for each in missing if not each.notes for launch in each.launches]
    for left in compare(replace(project, modules=modules), complete)[0]:
        where, remedy = left.module.where, f"add {left.instantiations}"
        raise ConfigError("cannot be extended", where=where, remedy=remedy)
    return tomlkit.dumps(document).encode()


def _add(common: Any, missing: Missing) -> None:
    """Add what is `missing` to the table of all modules: to an override of the source, or to the module."""
    from tomlkit import aot, array, inline_table, table, value
    from tomlkit.items import Array

    is_python, name = missing.source.endswith(".py"), missing.module.name
    own = common.get("modules", {}).get(name, {})
    overrides = [*common.get("overrides", ()), *own.get("overrides", ())]
    places = [o for o in overrides if o["sources"] == [missing.source] and "tuning" not in o]
    if not places and (is_python or "instantiate" in own or "instantiate" not in common):
        modules = common.setdefault("modules", table(is_super_table=True))
        own = modules.setdefault(name, table(is_super_table=False))
        places = [own]
        if is_python:
            before = (own["overrides"][-1] if "overrides" in own else own).as_string()
            overrides = own.setdefault("overrides", aot())
            override: Any = inline_table() if isinstance(overrides, Array) else table()
            overrides.append(override.append("sources", [missing.source]))
            places = [overrides[-1]]
            if not isinstance(overrides, Array):
                places[0].trivia.indent = "" if before.endswith("\n\n") else "\n"
    items = next(iter(places), common).setdefault("instantiate", array().multiline(True))
    for item in map(value, fold(missing.instantiations)):
        is_string = isinstance(item, str) and not isinstance(items, Array)
        items.append({"kernel": item} if is_string else item)
