"""Read ``[tool.cuda_ext]``: the settings of each module, with the key path of every value."""

from __future__ import annotations

import itertools
import keyword
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple

from cuda_ext.builder.config.keys import (
    BUILD_KEYS,
    KEYS,
    OVERRIDABLE,
    OVERRIDE_KEYS,
    TABLE,
    TABLES,
    BuildSettings,
    Settings,
)
from cuda_ext.builder.config.kinds import (
    NAME,
    Kind,
    Schema,
    check_values,
    expect,
    key_path,
    map_schema,
    table,
)
from cuda_ext.compiler.compile_options import nvcc_only
from cuda_ext.compiler.front_ends.kernel_description import KernelDescription
from cuda_ext.compiler.spelled_settings import spell_setting
from cuda_ext.errors import ConfigError, shorten


@dataclass(frozen=True)
class Override:
    """Settings of single sources. ``where`` is the key path, and ``settings`` has the keys that are set here.

    Its ``instantiate`` adds to the instantiations of a source. Other settings replace those of the module.
    ``kernels`` describes the kernels of the sources. ``tuning`` is a file with measured configurations of the
    instantiations of this override.
    """

    where: str
    sources: tuple[str, ...]
    settings: Mapping[str, Any]
    kernels: tuple[KernelDescription, ...] = ()
    tuning: str | None = None

    def applies_to(self, source: str) -> bool:
        return any(_matches(source, pattern) for pattern in self.sources)

    def unmatched(self, sources: Sequence[str]) -> list[str]:
        """List the patterns that match none of `sources`."""
        return [p for p in self.sources if not any(_matches(name, p) for name in sources)]


@dataclass(frozen=True)
class ModuleConfig:
    """One module: its import name, the key path of its table, and its settings.

    ``written`` maps each setting in pyproject.toml to its key path, in the module's own table or in
    ``[tool.cuda_ext]``.
    """

    name: str
    where: str
    settings: Settings = field(default_factory=Settings)
    overrides: tuple[Override, ...] = ()
    written: Mapping[str, str] = field(default_factory=dict)

    def for_source(self, source: str) -> Settings:
        """Return the settings of one source; later overrides win."""
        settings = self.settings
        for override in self.overrides:
            if override.applies_to(source):
                settings = replace(settings, **override.settings)
        return settings

    def kernels(self, source: str) -> tuple[KernelDescription, ...]:
        """Return the descriptions of the kernels of one source."""
        return tuple(
            k for override in self.overrides if override.applies_to(source) for k in override.kernels
        )

    def is_written(self, setting: str, source: str) -> bool:
        """Return True if pyproject.toml has `setting` for `source`, and False if the default holds."""
        overrides = (each for each in self.overrides if each.applies_to(source))
        return setting in self.written or any(setting in each.settings for each in overrides)

    def key_path(self, setting: str, source: str = "") -> str:
        """Return the key path of `setting` for `source`; if it has the default, where it would be written."""
        key = setting.replace("_", "-")
        for override in reversed(self.overrides):
            if setting in override.settings and override.applies_to(source):
                return key_path(override.where, key)
        return self.written.get(setting, key_path(self.where, key))


def parse_table(table: object, default_name: str | None) -> tuple[tuple[ModuleConfig, ...], BuildSettings]:
    """Read the value of ``[tool.cuda_ext]``: the modules, and the settings of the build.

    `default_name` is the name of the only module if the table has no ``modules``.
    Raises :class:`ConfigError`.
    """
    check_values(table, TABLE)
    values = PROJECT_TABLE.check(table, TABLE)
    example = f'[{TABLE}.modules."{default_name or "your_package.kernels"}"]'
    what = f"a table for each module, such as {example}"
    modules = expect(values.get("modules", {}), dict, f"{TABLE}.modules", what)
    if not modules:
        if default_name is None:
            raise ConfigError(
                "cannot tell which package the module belongs to", where=TABLE, remedy=f"name it: {example}"
            )
        modules = {default_name: {}}
    common = _extend(ModuleConfig("", TABLE), values)
    parsed = tuple(
        parse_module(name, module, key_path(f"{TABLE}.modules", name), common)
        for name, module in modules.items()
    )
    check_apart(parsed)
    _refuse_unused(common, values, parsed)
    settings = {key: values[key] for key in BUILD_KEYS if key in values}
    return parsed, BuildSettings(**_by_attribute(settings))


def parse_module(
    name: str, table: object, where: str, common: ModuleConfig = ModuleConfig("", "")
) -> ModuleConfig:
    """Read the table of one module at the key path `where`. `common` has its defaults.

    Raises :class:`ConfigError`.
    """
    check_values(name, where)
    check_values(table, where)
    check_name(name, where, expect(table, dict, where, "a table"))
    values = _MODULE.check(table, where)
    module = _extend(replace(common, name=name, where=where), values)
    if module.settings.emit == "ltoir" and module.settings.link:
        raise ConfigError(
            f'"ltoir" is for another linker, but {spell_setting("link", True)} links the module',
            where=module.key_path("emit"),
            remedy="change one of the two",
        )
    _refuse_unused(module, values, [module])
    if module.settings.compiler == "nvrtc":
        _check_nvrtc(module)
    return module


def _check_nvrtc(module: ModuleConfig) -> None:
    """Refuse options of nvcc in a `module` for NVRTC."""
    given = [(module.key_path("options"), module.settings.options)]
    given += ((f"{each.where}.options", each.settings.get("options", ())) for each in module.overrides)
    for where, options in given:
        if found := nvcc_only(options):
            index, remedy = found
            raise ConfigError(
                f"{shorten(options[index])!r} is an option of nvcc that NVRTC does not have",
                where=f"{where}[{index}]",
                remedy=f"{remedy}; or choose {spell_setting('compiler', 'nvcc')}",
            )


class _Use(NamedTuple):
    """A key that takes effect only with a ``value`` of another ``key``; ``purpose`` is its effect."""

    purpose: str
    key: str
    value: Any


_USES = {
    "launcher": _Use("runs nvcc", "compiler", "nvcc"),
    "nvcc": _Use("is the path of nvcc", "compiler", "nvcc"),
    "compress": _Use("compresses fatbins", "emit", "fatbin"),
    "split-instantiations": _Use("divides a source into libraries", "link", False),
    "tune": _Use("builds candidates", "link", False),
}


def _refuse_unused(module: ModuleConfig, values: Mapping[str, Any], used_by: Sequence[ModuleConfig]) -> None:
    """Refuse keys in the `values` of `module` that have no effect in any module of `used_by`."""
    for key, use in _USES.items():
        if values.get(key) and all(getattr(each.settings, use.key) != use.value for each in used_by):
            present = spell_setting(use.key, getattr(used_by[0].settings, use.key))
            raise ConfigError(
                f"{use.purpose}, and has no effect with {present}",
                where=module.key_path(key),
                remedy=f"remove it, or choose {spell_setting(use.key, use.value)}",
            )


def _extend(module: ModuleConfig, values: Mapping[str, Any]) -> ModuleConfig:
    """Return `module` with the `values` of its table."""
    own = {key: value for key, value in values.items() if key in KEYS}
    paths = {key: f"{module.where}.{key}" for key in own}
    return replace(
        module,
        settings=replace(module.settings, **_by_attribute(own)),
        overrides=(*module.overrides, *values.get("overrides", ())),
        written={**module.written, **_by_attribute(paths)},
    )


def _by_attribute(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in values.items()}


def _check_overrides(value: object, where: str) -> tuple[Override, ...]:
    if not isinstance(value, list):
        raise ConfigError(f"expected an array of tables, as in [[{where}]]", where=where)
    return tuple(_check_override(each, f"{where}[{i}]") for i, each in enumerate(value))


def _check_override(value: object, where: str) -> Override:
    settings = _by_attribute(_OVERRIDE.check(value, where))
    kernels, tuning = settings.pop("kernels", ()), settings.pop("tuning", None)
    if tuning and not settings.get("instantiate"):
        raise ConfigError(
            "lists configurations, but this override instantiates nothing",
            where=f"{where}.tuning",
            remedy=f"add {spell_setting('instantiate')}",
        )
    return Override(where, settings.pop("sources"), settings, kernels, tuning)


# The definitions in the JSON schema, by name.
DEFINITIONS: dict[str, Schema] = {}


def _define(name: str, kind: Kind) -> Kind:
    """Add the schema of `kind` to the definitions, and return the kind with a reference to it."""
    DEFINITIONS[name] = kind.schema
    return Kind(kind.check, {"$ref": f"#/definitions/{name}"})


_KEYS = {name: _define(name, key.kind) for name, key in KEYS.items()}
_KEYS_OF_MODULE = dict.fromkeys(
    KEYS, ("holds for a whole module, not for single sources", "move it to the module")
)
_KEYS_OF_BUILD = dict.fromkeys(BUILD_KEYS, ("holds for the build as a whole", f"move it to [{TABLE}]"))
_KEYWORD = rf"(?:{'|'.join(keyword.kwlist)})"
_NAMES = rf"^(?!(?:.*\.)?{_KEYWORD}(?:\.|$)){NAME}(?:\.{NAME})+$"

_OVERRIDE = table(
    {
        **{name: _KEYS[name] for name in ("sources", *OVERRIDABLE)},
        **{name: _define(name, kind) for name, kind in OVERRIDE_KEYS.items()},
    },
    required={"sources": "name the sources that the override is for"},
    elsewhere={**_KEYS_OF_MODULE, **_KEYS_OF_BUILD},
)
_OVERRIDES: Schema = {"type": "array", "items": _OVERRIDE.schema, "description": TABLES["overrides"]}
_MODULE_KEYS = {**_KEYS, "overrides": _define("overrides", Kind(_check_overrides, _OVERRIDES))}
_MODULE = _define("module", table(_MODULE_KEYS, elsewhere=_KEYS_OF_BUILD))
# parse_table checks the modules, since their errors depend on the project.
_MODULES = Kind(
    lambda value, _: value, {**map_schema(_NAMES, _MODULE.schema), "description": TABLES["modules"]}
)
PROJECT_TABLE = table(
    {**_MODULE_KEYS, **{name: key.kind for name, key in BUILD_KEYS.items()}, "modules": _MODULES}
)


def check_name(name: str, where: str, table: Mapping[str, object] = MappingProxyType({})) -> None:
    """Check that `name` is the import name of a module inside a package. `table` is the module's table."""
    dotted = _unquoted(name, table)
    separator = r"[/\\:]+" if re.search(r"[./\\:]", name) else r"\s+"
    close = re.sub(r"[^\w.]+", "_", re.sub(separator, ".", name))
    spelling = (
        f"did you mean {shorten(close)!r}?" if _importable(close) else "write it as in an import statement"
    )
    package = f'name it with its package, such as "your_package.{name}"'
    normal = unicodedata.normalize("NFKC", name)  # Python normalizes names in import statements
    for is_wrong, problem, remedy in (
        (dotted, "a name with dots needs quotes", f'write [{TABLE}.modules."{dotted}"]'),
        (not _importable(name), "not an import name", spelling),
        ("." not in name, "a module lives inside a package", package),
        (name != normal, f"Python imports it as {shorten(normal)!r}", "write that name"),
    ):
        if is_wrong:
            raise ConfigError(problem, where=where, remedy=remedy)


def _importable(name: str) -> bool:
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in name.split("."))


def _unquoted(name: str, table: Mapping[str, Any]) -> str:
    """Return the dotted name of a module, if its table header lacks quotes and so made nested tables."""
    path = [name]
    while table and all(isinstance(v, dict) and k not in KEYS for k, v in table.items()):
        key, table = next(iter(table.items()))
        path.append(key)
    return ".".join(path) if len(path) > 1 and "." not in name else ""


def check_apart(modules: Iterable[ModuleConfig]) -> None:
    """Check that each module has its own directory, also on file systems that ignore case."""
    for other, module in itertools.permutations(modules, 2):
        outer, name = other.name.casefold(), module.name.casefold()
        if name == outer or name.startswith(f"{outer}."):
            relation = "differs only in upper and lower case from" if name == outer else "lies within"
            problem = f"{relation} the module {shorten(other.name)!r}"
            raise ConfigError(problem, where=module.where, remedy="rename one of them")


def _matches(source: str, pattern: str) -> bool:
    """Return True if `pattern` is the path `source`, or a glob that finds it."""
    return source == pattern or _match_parts(PurePosixPath(source).parts, PurePosixPath(pattern).parts)


def _match_parts(path: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_match_parts(path[i:], pattern[1:]) for i in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _match_parts(path[1:], pattern[1:])
