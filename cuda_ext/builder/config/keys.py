"""``[tool.cuda_ext]``: what an author may write, checked.

:class:`Settings` is the one description of the table: its fields are the keys (with dashes), its types
decide what a value may be, its docs are the reference. Every message begins with the key's whole path.
"""

from __future__ import annotations

import dataclasses
import difflib
import keyword
import re
import typing
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from cuda_ext.builder.config.checks import checked, expect, key_path
from cuda_ext.builder.sources.layout import package_places
from cuda_ext.errors import ConfigError
from cuda_ext.manifest import Compression, Variants
from cuda_ext.toolchain.fatbin_packing import Emit

__all__ = [
    "OVERRIDABLE",
    "TABLE",
    "TABLES",
    "BuildSettings",
    "ModuleConfig",
    "Override",
    "Settings",
    "default_module_name",
    "key_of",
    "parse_module",
    "parse_settings",
    "parse_table",
]

TABLE = "tool.cuda_ext"


def _key(default: Any, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, eq=False)
class Settings:
    """The keys of a module's table. In ``[tool.cuda_ext]`` itself they are defaults for all modules."""

    sources: tuple[str, ...] = _key(
        ("device/*.cu",),
        "Device sources, as paths or globs within the project: `.cu`, and `.ptx`, `.cubin`, `.fatbin` and "
        "`.ltoir` that others have made.",
    )
    architectures: tuple[str, ...] = _key(
        ("all-major",),
        "Targets as nvcc spells them: `sm_90a` for machine code, `compute_90` for PTX, or `all`, "
        "`all-major`, `native`. `CUDAARCHS` in the environment replaces them, but not those of an override.",
    )
    include_dirs: tuple[str, ...] = _key((), "Directories of the project that includes are looked up in.")
    compiler: Literal["nvrtc", "nvcc"] = _key(
        "nvrtc",
        "Which compiler: NVRTC needs neither a CUDA toolkit nor a host compiler; `nvcc` takes code that "
        "includes headers of the host.",
    )
    nvcc: str | None = _key(
        None,
        "Path of the only nvcc to use. Without it the first that works is taken: that of `CUDA_PATH`, "
        "of `CUDA_HOME`, of an installed package, or on `PATH`.",
    )
    launcher: str | None = _key(
        None, 'A program that runs nvcc, such as `sccache` or `ccache`. Needs `compiler = "nvcc"`.'
    )
    std: str = _key("c++17", "The C++ standard, such as `c++20`.")
    define: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "doc": 'Macros and their values, such as `{ WIDTH = 4, INLINE = "" }`. '
            "Those with parameters belong into a header of `pre-include`."
        },
    )
    options: tuple[str, ...] = _key(
        (),
        "Further options, passed to the compiler as they are. Those that say what a key says already are "
        "refused.",
    )
    pre_include: tuple[str, ...] = _key((), "Headers that are included before the first line of each source.")
    fast_math: bool = _key(False, "Faster, less exact floating-point functions.")
    relaxed_constexpr: bool = _key(False, "Lets device code call `constexpr` functions without `__device__`.")
    instantiate: tuple[str, ...] = _key(
        (),
        'Template instantiations to build, as C++ name expressions such as `"axpy<float>"`. A table stands '
        'for all combinations: `{ kernel = "reduce<{T}, {B}>", T = ["float", "double"], B = [128, 256] }`.',
    )
    split_instantiations: bool = _key(
        False,
        "Compile each instantiation by itself, at the same time as the others, into its own fatbin. "
        "Not for sources with `__device__` or `__constant__` variables.",
    )
    variants: tuple[Variants, ...] = _key(
        (),
        "Names that stand for the first of several kernels whose condition holds. The last one has no "
        'condition: `gemm = [{ kernel = "hopper", when = "sm_90a" }, { kernel = "simple" }]`.',
    )
    compress: Compression = _key(
        "size", "Compression of the fatbins. `balance` and `size` need a driver of CUDA 12.4 or newer."
    )
    emit: Emit = _key(
        "fatbin",
        "How far to compile: to one fatbin for each source, or to its single images as cubins, PTX or "
        "LTO-IR, which others link.",
    )
    jit: bool = _key(
        True,
        "Embed the sources and headers in the package, so that what was not built ahead is compiled "
        "on demand.",
    )
    headers: tuple[str, ...] = _key(
        (), "Headers to embed besides those that the sources include: paths or globs within the project."
    )
    link: bool = _key(
        False, "Compile as relocatable device code, and link all sources of the module into one library."
    )


@dataclass(frozen=True)
class BuildSettings:
    """The keys of ``[tool.cuda_ext]`` that hold for the build as a whole."""

    executor: Literal["local", "dask"] = _key(
        "local", "Where compilations run: on this machine, or on the cluster of `CUDA_EXT_DASK_SCHEDULER`."
    )
    report: str | None = _key(
        None,
        "Where to write an HTML page about each build, within the project. `CUDA_EXT_REPORT` in the "
        "environment replaces it.",
    )
    trace: str | None = _key(
        None,
        "Where to write a trace of each build for Chrome or Perfetto, within the project. "
        "`CUDA_EXT_TRACE` in the environment replaces it.",
    )
    editable_rebuild: bool = _key(
        False,
        "Let the modules of an editable install compile what has changed when they are imported, with the "
        "compiler of the environment that imports, such as `cuda-ext[cu13]` brings. Where that fails, so "
        "does the import; where nothing has changed, no compiler is needed. setuptools and hatchling heed "
        "it; scikit-build-core, meson-python and CMake do not, of which the first two have rebuilding of "
        "their own. Where files cannot be locked, as on Windows, what has changed is not compiled but told: "
        "the import fails until `cuda-ext build` was run.",
    )


# The keys that hold tables of keys, and their docs.
TABLES = {
    "modules": "A table for each module, under its import name in quotes. Without any, there is one "
    "module with the defaults, `kernels` in the project's package.",
    "overrides": "Settings of single sources, as an array of tables; later ones win. `instantiate` adds to "
    "what a source has already, all other keys replace.",
}

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
    "split_instantiations",
)


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
        """The patterns that are for none of `sources`."""
        names = list(sources)
        return [p for p in self.sources if not any(_matches(name, p) for name in names)]


@dataclass(frozen=True)
class ModuleConfig:
    """One module: its import name, the key path of its table, and its settings.

    ``written`` has the key paths of the settings that somebody wrote, be it in the module's own table or as
    a default for all modules.
    """

    name: str
    where: str
    settings: Settings
    overrides: tuple[Override, ...]
    written: Mapping[str, str]

    def for_source(self, source: str) -> Settings:
        """The settings that hold for one source; later overrides win."""
        settings = self.settings
        for override in self.overrides:
            if override.applies_to(source):
                settings = dataclasses.replace(settings, **override.settings)
        return settings

    def key_path(self, setting: str, source: str = "") -> str:
        """Where the value that `setting` has for `source` was written, or could be."""
        for override in reversed(self.overrides):
            if setting in override.settings and override.applies_to(source):
                return key_path(override.where, key_of(setting))
        return self.written.get(setting, key_path(self.where, key_of(setting)))


def parse_table(table: object, default_name: str | None) -> tuple[ModuleConfig, ...]:
    """Read the value of ``[tool.cuda_ext]``.

    `default_name` names the module of a table without ``modules``; ``None`` if nobody knows. Raises
    :class:`ConfigError`.
    """
    defaults = expect(table, dict, TABLE, "a table")
    example = f'[{TABLE}.modules."{default_name or "your_package.kernels"}"]'
    modules = expect(
        defaults.get("modules", {}), dict, f"{TABLE}.modules", f"a table for each module, such as {example}"
    )
    common = _table(defaults, TABLE, also=("modules", *_BUILD_KEYS))
    if not modules:
        if default_name is None:
            raise ConfigError(f"{TABLE}: cannot tell which package the module belongs to; name it: {example}")
        modules = {default_name: {}}
    parsed = tuple(
        _module(name, value, common, key_path(f"{TABLE}.modules", name)) for name, value in modules.items()
    )
    _check_apart(parsed)
    return parsed


def parse_module(name: str, table: Mapping[str, object], where: str) -> ModuleConfig:
    """Read the keys of a single module, which stand at `where`. Raises :class:`ConfigError`."""
    return _module(name, table, _Table({}, {}, ()), where)


def parse_settings(table: Mapping[str, object]) -> BuildSettings:
    """Read the keys of ``[tool.cuda_ext]`` that are about the build. Raises :class:`ConfigError`."""
    return BuildSettings(
        **{
            name: checked(name, _TYPES[name], table[key], f"{TABLE}.{key}")
            for key, name in _BUILD_KEYS.items()
            if key in table
        }
    )


@dataclass(frozen=True)
class _Table:
    """What one table says: settings, the key path of each, and overrides."""

    settings: Mapping[str, Any]
    written: Mapping[str, str]
    overrides: tuple[Override, ...]


def _module(name: str, value: object, common: _Table, where: str) -> ModuleConfig:
    table = expect(value, dict, where, "a table")
    if "." not in name and (dotted := _unquoted(name, table)):
        raise ConfigError(f'{where}: a name with dots needs quotes; write [{TABLE}.modules."{dotted}"]')
    if problem := _problem_of_name(name):
        raise ConfigError(f"{where}: {problem}")
    own = _table(table, where)
    settings = Settings(**{**common.settings, **own.settings})
    module = ModuleConfig(
        name, where, settings, (*common.overrides, *own.overrides), {**common.written, **own.written}
    )
    if settings.emit == "ltoir" and settings.link:
        raise ConfigError(
            f'{module.key_path("emit")}: "ltoir" leaves the linking to others; with link = true '
            "choose another"
        )
    if "launcher" in own.settings and settings.compiler == "nvrtc":
        raise ConfigError(
            f"{module.key_path('launcher')}: runs nvcc, and this module is compiled by NVRTC; "
            'remove it, or choose compiler = "nvcc"'
        )
    return module


def _problem_of_name(name: str) -> str | None:
    """What keeps `name` from being the import name of a module in a package."""
    if not _importable(name):
        close = re.sub(r"[^\w.]+", "_", re.sub(r"[/\\:]+", ".", name))
        hint = f"did you mean {close!r}?" if _importable(close) else "write it as in an import statement"
        return f"not an import name; {hint}"
    if "." not in name:
        return f'a module lives inside a package; name it with its package, such as "your_package.{name}"'
    # Python imports the normal form, whatever the import statement has.
    if name != (normal := unicodedata.normalize("NFKC", name)):
        return f"Python imports it as {normal!r}; write it so"
    return None


def _importable(name: str) -> bool:
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in name.split("."))


def _unquoted(name: str, table: Mapping[str, object]) -> str | None:
    """The dotted name of a module whose table header lacks the quotes, which makes tables within tables."""
    path = [name]
    while table and all(isinstance(v, dict) and k not in _KEYS for k, v in table.items()):
        key, table = typing.cast("tuple[str, dict[str, object]]", next(iter(table.items())))
        path.append(key)
    return ".".join(path) if len(path) > 1 else None


def _check_apart(modules: Sequence[ModuleConfig]) -> None:
    """Each module has a directory of its own, on file systems that ignore upper and lower case too."""
    taken: dict[tuple[str, ...], ModuleConfig] = {}
    for module in sorted(modules, key=lambda m: m.name.count(".")):
        parts = tuple(module.name.casefold().split("."))
        for depth in range(1, len(parts) + 1):
            if other := taken.get(parts[:depth]):
                relation = (
                    "lies within" if depth < len(parts) else "differs only in upper and lower case from"
                )
                raise ConfigError(f"{module.where}: {relation} the module {other.name!r}; rename one of them")
        taken[parts] = module


def _table(table: Mapping[str, object], where: str, also: tuple[str, ...] = ()) -> _Table:
    _check_keys(table, (*_KEYS, "overrides", *also), where)
    overrides = table.get("overrides", [])
    if not isinstance(overrides, list):
        raise ConfigError(f"{where}.overrides: expected an array of tables, as in [[{where}.overrides]]")
    written = [key for key in table if key in _KEYS]
    return _Table(
        {_KEYS[key]: _value(key, table[key], where) for key in written},
        {_KEYS[key]: f"{where}.{key}" for key in written},
        tuple(_override(o, f"{where}.overrides[{i}]") for i, o in enumerate(overrides)),
    )


def _override(value: object, where: str) -> Override:
    table = expect(value, dict, where, "a table")
    for key in table:
        if key in _KEYS and key != "sources" and _KEYS[key] not in OVERRIDABLE:
            raise ConfigError(
                f"{where}.{key}: holds for a whole module, not for single sources; "
                "move it into the module's table"
            )
    _check_keys(table, ("sources", *map(key_of, OVERRIDABLE)), where)
    if "sources" not in table:
        raise ConfigError(f"{where}.sources: is missing; name the sources that the override is for")
    values = {_KEYS[key]: _value(key, value, where) for key, value in table.items()}
    return Override(where, values.pop("sources"), values)


def _check_keys(table: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key in known:
            continue
        if key in _BUILD_KEYS:
            raise ConfigError(f"{where}.{key}: holds for the build as a whole; move it to [{TABLE}]")
        plain = key.replace("_", "-").lower()
        close = [k for k in known if k.startswith(plain)] or difflib.get_close_matches(plain, known)
        # What begins alike is meant sooner than what contains it.
        close.sort(key=lambda k: k[:3] != plain[:3])
        hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(sorted(known))}"
        raise ConfigError(f"{key_path(where, key)}: unknown key; {hint}")


def _value(key: str, value: object, where: str) -> Any:
    return checked(key, _TYPES[_KEYS[key]], value, f"{where}.{key}")


def key_of(setting: str) -> str:
    """A setting's key: Python's underscores are dashes in TOML."""
    return setting.replace("_", "-")


_KEYS = {key_of(f.name): f.name for f in dataclasses.fields(Settings)}
_BUILD_KEYS = {key_of(f.name): f.name for f in dataclasses.fields(BuildSettings)}
_TYPES = typing.get_type_hints(Settings) | typing.get_type_hints(BuildSettings)


def _matches(source: str, pattern: str) -> bool:
    """Whether `pattern` names `source`, or would find it as a glob."""
    return source == pattern or _match_parts(PurePosixPath(source).parts, PurePosixPath(pattern).parts)


def _match_parts(path: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_match_parts(path[i:], pattern[1:]) for i in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _match_parts(path[1:], pattern[1:])


def default_module_name(root: Path, project_name: str | None, packages: tuple[str, ...]) -> str | None:
    """``<the package>.kernels``, where the project has exactly one package that could be meant."""
    if len({p.partition(".")[0] for p in packages}) == 1:
        # A namespace package has no __init__.py, and belongs to other projects as well.
        regular = [p for p in packages if _is_regular(p, root)]
        return f"{min(regular or packages, key=lambda p: p.count('.'))}.kernels"
    name = re.sub(r"[-.\s]+", "_", project_name or "")
    found = (n for n in (name, name.lower()) if n and _is_regular(n, root))
    return next((f"{package}.kernels" for package in found), None)


def _is_regular(package: str, root: Path) -> bool:
    return any((place / "__init__.py").is_file() for place in package_places(root, package, {}))
