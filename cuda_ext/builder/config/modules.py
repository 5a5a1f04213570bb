"""Read ``[tool.cuda_ext]``: the settings of each module, with the key path of every value."""

from __future__ import annotations

import difflib
import keyword
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from cuda_ext.builder.config.keys import (
    BUILD_KEYS,
    KEYS,
    OVERRIDABLE,
    TABLE,
    BuildSettings,
    Key,
    Settings,
)
from cuda_ext.builder.config.kinds import expect, key_path
from cuda_ext.errors import ConfigError

__all__ = ["ModuleConfig", "Override", "parse_module", "parse_settings", "parse_table"]


@dataclass(frozen=True)
class Override:
    """Settings of single sources. ``where`` is the key path; ``settings`` holds only what was written.

    ``instantiate`` adds to what a source has already; all other settings replace.
    """

    where: str
    sources: tuple[str, ...]
    settings: Mapping[str, Any]

    def applies_to(self, source: str) -> bool:
        return any(_matches(source, pattern) for pattern in self.sources)

    def unmatched(self, sources: Iterable[str]) -> list[str]:
        """The patterns that match none of `sources`."""
        names = list(sources)
        return [p for p in self.sources if not any(_matches(name, p) for name in names)]


@dataclass(frozen=True)
class ModuleConfig:
    """One module: its import name, the key path of its table, and its settings.

    ``written`` has the key paths of the settings that the author wrote, in the module's own table or as a
    default for all modules.
    """

    name: str
    where: str
    settings: Settings = field(default_factory=Settings)
    overrides: tuple[Override, ...] = ()
    written: Mapping[str, str] = field(default_factory=dict)

    def for_source(self, source: str) -> Settings:
        """The settings of one source; later overrides win."""
        settings = self.settings
        for override in self.overrides:
            if override.applies_to(source):
                settings = replace(settings, **override.settings)
        return settings

    def key_path(self, setting: str, source: str = "") -> str:
        """The key path at which `setting` was written for `source`, or could be."""
        key = setting.replace("_", "-")
        for override in reversed(self.overrides):
            if setting in override.settings and override.applies_to(source):
                return key_path(override.where, key)
        return self.written.get(setting, key_path(self.where, key))


def parse_table(table: object, default_name: str | None) -> tuple[ModuleConfig, ...]:
    """Read the modules in the value of ``[tool.cuda_ext]``.

    `default_name` names the module of a table without ``modules``, if it is known. Raises
    :class:`ConfigError`.
    """
    defaults = expect(table, dict, TABLE, "a table")
    example = f'[{TABLE}.modules."{default_name or "your_package.kernels"}"]'
    modules = expect(
        defaults.get("modules", {}), dict, f"{TABLE}.modules", f"a table for each module, such as {example}"
    )
    common = _add_keys(ModuleConfig("", TABLE), defaults, also=("modules", *BUILD_KEYS))
    if not modules:
        if default_name is None:
            raise ConfigError(
                "cannot tell which package the module belongs to", where=TABLE, remedy=f"name it: {example}"
            )
        modules = {default_name: {}}
    parsed = tuple(
        parse_module(name, table, key_path(f"{TABLE}.modules", name), common)
        for name, table in modules.items()
    )
    _check_apart(parsed)
    return parsed


def parse_settings(table: Mapping[str, object]) -> BuildSettings:
    """Read the keys of ``[tool.cuda_ext]`` that are about the build. Raises :class:`ConfigError`."""
    return BuildSettings(**_check_values(table, BUILD_KEYS, TABLE))


def parse_module(
    name: str, value: object, where: str, common: ModuleConfig = ModuleConfig("", "")
) -> ModuleConfig:
    """Read the table of a single module at the key path `where`; `common` has the defaults for it.

    Raises :class:`ConfigError`.
    """
    table = expect(value, dict, where, "a table")
    _check_name(name, table, where)
    module = _add_keys(replace(common, name=name, where=where), table)
    if module.settings.emit == "ltoir" and module.settings.link:
        raise ConfigError(
            '"ltoir" leaves the linking to others',
            where=module.key_path("emit"),
            remedy="with link = true choose another",
        )
    if "launcher" in table and module.settings.compiler == "nvrtc":
        raise ConfigError(
            "runs nvcc, and this module is compiled by NVRTC",
            where=module.key_path("launcher"),
            remedy='remove it, or choose compiler = "nvcc"',
        )
    return module


def _check_name(name: str, table: Mapping[str, object], where: str) -> None:
    """`name` is the import name of a module in a package."""
    if "." not in name and (dotted := _unquoted(name, table)):
        raise ConfigError(
            "a name with dots needs quotes", where=where, remedy=f'write [{TABLE}.modules."{dotted}"]'
        )
    if not _importable(name):
        close = re.sub(r"[^\w.]+", "_", re.sub(r"[/\\:]+", ".", name))
        remedy = f"did you mean {close!r}?" if _importable(close) else "write it as in an import statement"
        raise ConfigError("not an import name", where=where, remedy=remedy)
    if "." not in name:
        raise ConfigError(
            "a module lives inside a package",
            where=where,
            remedy=f'name it with its package, such as "your_package.{name}"',
        )
    # Python imports the normal form, whatever the import statement has.
    if name != (normal := unicodedata.normalize("NFKC", name)):
        raise ConfigError(f"Python imports it as {normal!r}", where=where, remedy="write it so")


def _importable(name: str) -> bool:
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in name.split("."))


def _unquoted(name: str, table: Mapping[str, Any]) -> str | None:
    """The dotted name of a module whose table header lacks the quotes, which makes tables within tables."""
    path = [name]
    while table and all(isinstance(v, dict) and k not in KEYS for k, v in table.items()):
        key, table = next(iter(table.items()))
        path.append(key)
    return ".".join(path) if len(path) > 1 else None


def _check_apart(modules: Sequence[ModuleConfig]) -> None:
    """Each module has a directory of its own, also on file systems that ignore upper and lower case."""
    taken: dict[tuple[str, ...], ModuleConfig] = {}
    for module in sorted(modules, key=lambda m: m.name.count(".")):
        parts = tuple(module.name.casefold().split("."))
        for depth in range(1, len(parts) + 1):
            if other := taken.get(parts[:depth]):
                relation = (
                    "lies within" if depth < len(parts) else "differs only in upper and lower case from"
                )
                raise ConfigError(
                    f"{relation} the module {other.name!r}", where=module.where, remedy="rename one of them"
                )
        taken[parts] = module


def _add_keys(module: ModuleConfig, table: Mapping[str, object], also: Sequence[str] = ()) -> ModuleConfig:
    """Return `module` with the keys of its `table`, which may have keys of `also`, too."""
    where = module.where
    _check_keys(table, (*KEYS, "overrides", *also), where)
    overrides = table.get("overrides", [])
    if not isinstance(overrides, list):
        raise ConfigError(
            f"expected an array of tables, as in [[{where}.overrides]]", where=f"{where}.overrides"
        )
    settings = _check_values(table, KEYS, where)
    own = [_parse_override(each, f"{where}.overrides[{i}]") for i, each in enumerate(overrides)]
    return replace(
        module,
        settings=replace(module.settings, **settings),
        overrides=(*module.overrides, *own),
        written={**module.written, **{name: f"{where}.{name.replace('_', '-')}" for name in settings}},
    )


def _parse_override(value: object, where: str) -> Override:
    table = expect(value, dict, where, "a table")
    for key in table:
        if key in KEYS and key not in ("sources", *OVERRIDABLE):
            raise ConfigError(
                "holds for a whole module, not for single sources",
                where=f"{where}.{key}",
                remedy="move it into the module's table",
            )
    _check_keys(table, ("sources", *OVERRIDABLE), where)
    if "sources" not in table:
        raise ConfigError(
            "is missing", where=f"{where}.sources", remedy="name the sources that the override is for"
        )
    settings = _check_values(table, KEYS, where)
    return Override(where, settings.pop("sources"), settings)


def _check_values(table: Mapping[str, object], keys: Mapping[str, Key], where: str) -> dict[str, Any]:
    """The settings that `table` has for `keys`, by their attributes."""
    return {
        name.replace("-", "_"): keys[name].kind.check(value, f"{where}.{name}")
        for name, value in table.items()
        if name in keys
    }


def _check_keys(table: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key in known:
            continue
        if key in BUILD_KEYS:
            raise ConfigError(
                "holds for the build as a whole", where=f"{where}.{key}", remedy=f"move it to [{TABLE}]"
            )
        plain = key.replace("_", "-").lower()
        close = [k for k in known if k.startswith(plain)] or difflib.get_close_matches(plain, known)
        # What begins alike is more likely meant than what contains it.
        close.sort(key=lambda k: k[:3] != plain[:3])
        remedy = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(sorted(known))}"
        raise ConfigError("unknown key", where=key_path(where, key), remedy=remedy)


def _matches(source: str, pattern: str) -> bool:
    """Whether `pattern` is the path `source`, or a glob that finds it."""
    return source == pattern or _match_parts(PurePosixPath(source).parts, PurePosixPath(pattern).parts)


def _match_parts(path: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_match_parts(path[i:], pattern[1:]) for i in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _match_parts(path[1:], pattern[1:])
