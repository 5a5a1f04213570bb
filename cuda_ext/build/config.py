"""``[tool.cuda_ext]``: what an author may write, checked.

:class:`Settings` is the one description of the table: its fields are the keys (with dashes), its types
decide what a value may be, its docs are the reference. Every message begins with the key's whole path.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from cuda_ext.compiler.fatbin import Compression
from cuda_ext.compiler.module import Emit
from cuda_ext.errors import ConfigError

__all__ = ["ModuleConfig", "Override", "Settings", "parse_table"]

TABLE = "tool.cuda_ext"


def _key(default: Any, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True)
class Settings:
    """The keys of a module's table. In ``[tool.cuda_ext]`` itself they are defaults for all modules."""

    sources: tuple[str, ...] = _key(("device/*.cu",), "Device sources: paths or globs within the project.")
    architectures: tuple[str, ...] = _key(
        ("all-major",), "Targets as nvcc spells them (sm_90a, compute_90), or all, all-major, native."
    )
    include_dirs: tuple[str, ...] = _key((), "Directories of the project that includes are looked up in.")
    compiler: Literal["nvrtc", "nvcc"] = _key("nvrtc", "Which compiler; nvcc needs a host compiler too.")
    nvcc: str | None = _key(None, "Path of the nvcc to use, before all others.")
    std: str = _key("c++17", "The C++ standard.")
    define: Mapping[str, str] = field(default_factory=dict, metadata={"doc": "Macros and their values."})
    options: tuple[str, ...] = _key((), "Further options, passed to the compiler as they are.")
    pre_include: tuple[str, ...] = _key((), "Headers that are included before the first line.")
    fast_math: bool = _key(False, "Faster, less exact floating-point functions.")
    relaxed_constexpr: bool = _key(False, "Lets device code call constexpr functions without __device__.")
    instantiate: tuple[str, ...] = _key((), "Template instantiations to build, as C++ name expressions.")
    compress: Compression = _key("size", "Compression of the fatbins; balance and size need driver 12.4.")
    emit: Emit = _key("fatbin", "How far to compile.")
    jit: bool = _key(True, "Embed sources and headers, for compilation on demand.")
    link: bool = _key(False, "Compile as relocatable device code and link all units into one library.")


# What an override may change: what belongs to a single translation unit.
OVERRIDABLE = (
    "architectures",
    "define",
    "options",
    "std",
    "pre_include",
    "fast_math",
    "relaxed_constexpr",
    "instantiate",
)


@dataclass(frozen=True)
class Override:
    """Settings of single sources. ``where`` is the key path; ``settings`` holds only what was written."""

    where: str
    sources: tuple[str, ...]
    settings: Mapping[str, Any]

    def applies_to(self, source: str) -> bool:
        path = PurePosixPath("/", source)
        return any(path.match("/" + pattern.removeprefix("./")) for pattern in self.sources)


@dataclass(frozen=True)
class ModuleConfig:
    """One module: its import name, the key path of its table, and its settings."""

    name: str
    where: str
    settings: Settings
    overrides: tuple[Override, ...]

    def for_source(self, source: str) -> Settings:
        """The settings that hold for one source; later overrides win."""
        settings = self.settings
        for override in self.overrides:
            if override.applies_to(source):
                settings = dataclasses.replace(settings, **override.settings)
        return settings


def parse_table(table: object, default_name: str | None) -> tuple[ModuleConfig, ...]:
    """Read the value of ``[tool.cuda_ext]``.

    `default_name` names the module of a table without ``modules``; ``None`` if nobody knows. Raises
    :class:`ConfigError`.
    """
    defaults = _expect(table, dict, TABLE, "a table")
    modules = _expect(defaults.get("modules", {}), dict, f"{TABLE}.modules", "a table of modules")
    default_settings, default_overrides = _settings(defaults, TABLE, also=("modules",))
    if not modules:
        if default_name is None:
            raise ConfigError(
                f"{TABLE}: cannot tell which package the module belongs to; name it: "
                f'[{TABLE}.modules."your_package.kernels"]'
            )
        modules = {default_name: {}}
    return tuple(_module(name, value, default_settings, default_overrides) for name, value in modules.items())


def _module(
    name: str, value: object, defaults: Mapping[str, Any], default_overrides: tuple[Override, ...]
) -> ModuleConfig:
    where = f'{TABLE}.modules."{name}"' if "." in name else f"{TABLE}.modules.{name}"
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        raise ConfigError(f"{where}: not an import name; write it as in an import statement")
    if len(parts) < 2:
        raise ConfigError(
            f"{where}: a module lives inside a package; name it with its package, such as "
            f'"your_package.{name}"'
        )
    table = _expect(value, dict, where, "a table")
    settings, overrides = _settings(table, where)
    merged = Settings(**{**defaults, **settings})
    if merged.emit == "ltoir" and merged.link:
        raise ConfigError(f'{where}.emit: "ltoir" is what is linked elsewhere; it excludes link = true')
    if not merged.sources:
        raise ConfigError(f"{where}.sources: is empty; name at least one source")
    return ModuleConfig(name, where, merged, (*default_overrides, *overrides))


def _settings(
    table: Mapping[str, object], where: str, also: tuple[str, ...] = ()
) -> tuple[dict[str, Any], tuple[Override, ...]]:
    keys = [f.name.replace("_", "-") for f in dataclasses.fields(Settings)]
    _check_keys(table, (*keys, "overrides", *also), where)
    overrides = table.get("overrides", [])
    if not isinstance(overrides, list):
        raise ConfigError(f"{where}.overrides: expected an array of tables, as in [[{where}.overrides]]")
    return (
        {k.replace("-", "_"): _value(k, v, f"{where}.{k}") for k, v in table.items() if k in keys},
        tuple(_override(o, f"{where}.overrides[{i}]") for i, o in enumerate(overrides)),
    )


def _override(value: object, where: str) -> Override:
    table = _expect(value, dict, where, "a table")
    keys = [name.replace("_", "-") for name in OVERRIDABLE]
    _check_keys(table, ("sources", *keys), where)
    if "sources" not in table:
        raise ConfigError(f"{where}.sources: is missing; name the sources that the override is for")
    sources = _value("sources", table["sources"], f"{where}.sources")
    settings = {k.replace("-", "_"): _value(k, v, f"{where}.{k}") for k, v in table.items() if k in keys}
    return Override(where, sources, settings)


def _check_keys(table: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(key.replace("_", "-").lower(), known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(sorted(known))}"
            raise ConfigError(f"{where}.{key}: unknown key; {hint}")


_HINTS = typing.get_type_hints(Settings)


def _value(key: str, value: object, where: str) -> Any:
    if key == "instantiate":
        return tuple(_instantiations(value, where))
    kind = _HINTS[key.replace("-", "_")]
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        if value not in choices:
            close = difflib.get_close_matches(str(value), choices, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ConfigError(
                f"{where}: expected {' or '.join(map(repr, choices))}, found {_show(value)}{hint}"
            )
        return value
    if typing.get_origin(kind) is tuple:
        return _strings(value, where)
    if kind is bool:
        return _expect(value, bool, where, "true or false")
    if typing.get_origin(kind) is Mapping:
        return _macros(value, where)
    return _expect(value, str, where, "a string")


def _expect(value: object, kind: type, where: str, what: str) -> Any:
    if not isinstance(value, kind):
        raise ConfigError(f"{where}: expected {what}, found {_show(value)}")
    return value


def _strings(value: object, where: str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise ConfigError(f'{where}: expected an array of strings; write ["{value}"]')
    for i, item in enumerate(_expect(value, list, where, "an array of strings")):
        _expect(item, str, f"{where}[{i}]", "a string")
    return tuple(typing.cast("list[str]", value))


def _macros(value: object, where: str) -> dict[str, str]:
    macros = {}
    for name, text in _expect(value, dict, where, "a table of macros and their values").items():
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ConfigError(f"{where}.{name}: not the name of a macro")
        if isinstance(text, bool) or not isinstance(text, (str, int)):
            raise ConfigError(
                f'{where}.{name}: expected a string or an integer, such as "1", found {_show(text)}'
            )
        macros[name] = str(text)
    return macros


_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def _instantiations(value: object, where: str) -> Iterator[str]:
    """Strings as they are; tables multiplied out over the values of their placeholders."""
    for i, item in enumerate(_expect(value, list, where, "an array of name expressions")):
        here = f"{where}[{i}]"
        if isinstance(item, str):
            if not item.strip():
                raise ConfigError(f"{here}: is empty")
            yield item
            continue
        table = _expect(item, dict, here, 'a name expression such as "axpy<float>", or a table with kernel')
        pattern = _expect(table.get("kernel"), str, f"{here}.kernel", 'a string such as "reduce<{T}>"')
        wanted = list(dict.fromkeys(_PLACEHOLDER.findall(pattern)))
        given = {k: v for k, v in table.items() if k != "kernel"}
        for name in given.keys() - set(wanted):
            raise ConfigError(f"{here}.{name}: the expression {pattern!r} has no {{{name}}}")
        for name in wanted:
            if name not in given:
                raise ConfigError(f"{here}: {{{name}}} has no values; add {name} = [...]")
            values = _expect(given[name], list, f"{here}.{name}", "an array of values")
            if not values:
                raise ConfigError(f"{here}.{name}: is empty")
            for j, v in enumerate(values):
                if isinstance(v, bool) or not isinstance(v, (str, int)):
                    raise ConfigError(
                        f"{here}.{name}[{j}]: expected a string or an integer, found {_show(v)}"
                    )
        for combination in itertools.product(*(given[name] for name in wanted)):
            chosen = dict(zip(wanted, map(str, combination), strict=True))
            yield _PLACEHOLDER.sub(lambda m, chosen=chosen: chosen[m[1]], pattern)  # type: ignore[misc]


def _show(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case dict():
            return "a table"
        case list():
            return "an array"
        case None:
            return "nothing"
        case _:
            return str(value)


def default_module_name(root: Path, project_name: str | None, packages: tuple[str, ...]) -> str | None:
    """``<the package>.kernels``, where the project has exactly one package that could be meant."""
    candidates = [p for p in packages if "." not in p]
    if len(candidates) != 1 and project_name:
        normalised = re.sub(r"[-.\s]+", "_", project_name)
        candidates = [
            d.name
            for base in (root / "src", root)
            for d in (base / normalised, base / normalised.lower())
            if (d / "__init__.py").is_file()
        ][:1]
    return f"{candidates[0]}.kernels" if candidates else None
