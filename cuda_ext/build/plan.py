"""From configuration to translation units: files found, headers gathered, instantiations assigned.

Reading is all that happens here; no compiler is needed until architectures are asked for.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from cuda_ext.build.config import ModuleConfig, Settings
from cuda_ext.compiler import architectures, headers
from cuda_ext.compiler.architectures import Architecture
from cuda_ext.compiler.module import ModulePlan, UnitPlan
from cuda_ext.compiler.names import normalise, split_template
from cuda_ext.compiler.translation_unit import Compiler, Options, SourceKind, TranslationUnit
from cuda_ext.errors import BuildError, ConfigError

__all__ = ["find_sources", "gather_unit", "plan_module"]

_KINDS: dict[str, SourceKind] = {
    ".cu": "cu",
    ".ptx": "ptx",
    ".cubin": "cubin",
    ".fatbin": "fatbin",
    ".ltoir": "ltoir",
}


def find_sources(module: ModuleConfig, root: Path) -> list[Path]:
    """The module's sources as absolute paths, in the order of their names within the project."""
    where = f"{module.where}.sources"
    found: set[Path] = set()
    for pattern in module.settings.sources:
        _check_inside(pattern, where)
        matches = [p for p in root.glob(pattern) if p.is_file()]
        if not matches:
            raise ConfigError(f"{where}: {_nothing_matches(pattern, root)}")
        for match in matches:
            _check_real(match, root, where)
            if match.suffix not in _KINDS:
                raise ConfigError(
                    f"{where}: {match.relative_to(root).as_posix()}: expected one of {', '.join(_KINDS)}"
                )
        found.update(matches)
    by_stem: dict[str, Path] = {}
    for path in sorted(found, key=lambda p: p.relative_to(root).as_posix()):
        other = by_stem.setdefault(path.stem, path)
        if other is not path:
            raise ConfigError(
                f"{where}: {other.relative_to(root).as_posix()} and {path.relative_to(root).as_posix()} have "
                "one basename, and fatbins are named after it; rename one of them"
            )
    for override in module.overrides:
        if override.where.startswith(module.where) and not any(
            override.applies_to(p.relative_to(root).as_posix()) for p in by_stem.values()
        ):
            raise ConfigError(f"{override.where}.sources: matches none of the module's sources")
    return list(by_stem.values())


def gather_unit(module: ModuleConfig, source: Path, root: Path) -> TranslationUnit:
    """Read one source and its headers. Instantiations are the override's own; see :func:`plan_module`."""
    name = source.relative_to(root).as_posix()
    settings = module.for_source(name)
    kind = _KINDS[source.suffix]
    if kind != "cu":
        return TranslationUnit(name, _read(source, name), kind)
    include_dirs = _include_dirs(settings, root, module.where)
    text, found = headers.gather(source, root, include_dirs, settings.pre_include)
    options = Options(
        std=settings.std,
        define=settings.define,
        raw=settings.options,
        pre_include=tuple(headers.resolve(h, root, include_dirs) for h in settings.pre_include),
        fast_math=settings.fast_math,
        relaxed_constexpr=settings.relaxed_constexpr,
        relocatable=settings.link,
    )
    return TranslationUnit(name, text, kind, found, options)


def plan_module(
    module: ModuleConfig, root: Path, compiler: Compiler, native: Sequence[int] = ()
) -> ModulePlan:
    """Everything that decides the module's bytes. Raises :class:`BuildError` for what cannot work."""
    units = [gather_unit(module, source, root) for source in find_sources(module, root)]
    assigned = _assign_instantiations(module, units)
    plans = []
    for unit in units:
        targets = _architectures(module, unit.name, compiler, native)
        plans.append(UnitPlan(_with_instantiations(unit, assigned[unit.name]), targets))
    settings = module.settings
    return ModulePlan(
        name=module.name,
        units=tuple(plans),
        compress=settings.compress,
        emit=settings.emit,
        link=settings.link,
        embed=settings.jit,
    )


def _with_instantiations(unit: TranslationUnit, instantiate: Sequence[str]) -> TranslationUnit:
    unique = {normalise(expression): expression for expression in instantiate}
    return TranslationUnit(
        unit.name, unit.source, unit.kind, unit.headers, unit.options, tuple(unique.values())
    )


def _architectures(
    module: ModuleConfig, source: str, compiler: Compiler, native: Sequence[int]
) -> tuple[Architecture, ...]:
    names: Sequence[str] = module.for_source(source).architectures
    where = f"{module.where}.architectures"
    for override in module.overrides:
        if override.applies_to(source) and "architectures" in override.settings:
            where = f"{override.where}.architectures"
    if where == f"{module.where}.architectures" and (archs := os.environ.get("CUDAARCHS")):
        names, where = _from_cmake(archs), "CUDAARCHS"
    if not names:
        raise ConfigError(f'{where}: is empty; name at least one, such as "all-major"')
    found = architectures.expand(
        names,
        compiler.capabilities(),
        compiler=f"{compiler.name} {compiler.version}",
        where=where,
        native=native,
    )
    for architecture in found:
        if not compiler.supports(architecture):
            raise BuildError(
                f"{where}: {compiler.name} {compiler.version} cannot compile for '{architecture}'; "
                f"did you mean '{Architecture(architecture.kind, architecture.number)}'?"
            )
    match module.settings.emit:
        case "ptx":
            return tuple(sorted({a.as_kind("ptx") for a in found}))
        case "ltoir":
            return tuple(sorted({a.as_kind("ltoir") for a in found}))
        case "cubin":
            found = tuple(a for a in found if a.kind == "cubin")
            if not found:
                raise ConfigError(f'{where}: emit = "cubin" needs a real architecture, such as "sm_90"')
    return found


def _from_cmake(text: str) -> list[str]:
    """``CUDAARCHS`` in CMake's spelling: ``90`` is both, ``90-real`` the cubin, ``90-virtual`` the PTX."""
    names: list[str] = []
    for item in filter(None, re.split(r"[;,\s]+", text)):
        number, _, kind = item.partition("-")
        if not re.fullmatch(r"\d+[af]?", number) or kind not in ("", "real", "virtual"):
            names.append(item)
            continue
        names += [f"sm_{number}"] if kind != "virtual" else []
        names += [f"compute_{number}"] if kind != "real" else []
    return names


def _assign_instantiations(module: ModuleConfig, units: Sequence[TranslationUnit]) -> dict[str, list[str]]:
    """Give each instantiation of the module to the unit that defines its kernel."""
    assigned: dict[str, list[str]] = {u.name: [] for u in units}
    for unit in units:
        for override in module.overrides:
            if override.applies_to(unit.name):
                assigned[unit.name] += override.settings.get("instantiate", ())
    sources = [u for u in units if u.kind == "cu"]
    where = f"{module.where}.instantiate"
    for expression in module.settings.instantiate:
        kernel = split_template(normalise(expression))[0].rpartition("::")[2]
        owners = _defining(kernel, sources)
        if len(owners) > 1:
            raise ConfigError(
                f"{where}: {expression!r}: {' and '.join(u.name for u in owners)} each define {kernel!r}; "
                f"give the instantiation to one of them in [[{module.where}.overrides]]"
            )
        if not owners:
            known = sorted({name for u in sources for name in _kernel_names(u.source)})
            close = difflib.get_close_matches(kernel, known, n=1)
            hint = f"; did you mean {expression.replace(kernel, close[0])!r}?" if close else ""
            raise ConfigError(f"{where}: {expression!r}: no source defines a kernel {kernel!r}{hint}")
        assigned[owners[0].name].append(expression)
    return assigned


_KERNEL = re.compile(rb"__global__[^;{}]*?\b(\w+)\s*\(", re.DOTALL)
_LAUNCH_BOUNDS = re.compile(
    rb"__(?:launch_bounds|cluster_dims|block_size|maxnreg)__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)"
)
_COMMENT = re.compile(rb'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.DOTALL)


def _kernel_names(text: bytes) -> set[str]:
    plain = _LAUNCH_BOUNDS.sub(b"", _COMMENT.sub(rb"\1", text))
    return {name.decode() for name in _KERNEL.findall(plain)}


def _defining(kernel: str, units: Sequence[TranslationUnit]) -> list[TranslationUnit]:
    """The units that define `kernel`: in their own text, else in a header, else through a macro."""
    if len(units) == 1:
        return list(units)
    word = re.compile(rb"\b" + re.escape(kernel.encode()) + rb"\b")
    return (
        [u for u in units if kernel in _kernel_names(u.source)]
        or [u for u in units if any(kernel in _kernel_names(h) for h in u.headers.values())]
        or [u for u in units if word.search(u.source)]
    )


def _include_dirs(settings: Settings, root: Path, where: str) -> list[Path]:
    directories = []
    for name in settings.include_dirs:
        _check_inside(name, f"{where}.include-dirs")
        directory = root / name
        if not directory.is_dir():
            raise ConfigError(f"{where}.include-dirs: {name!r} is not a directory of the project")
        directories.append(Path(os.path.realpath(directory)))
    return directories


def _check_inside(path: str, where: str) -> None:
    pure = PurePosixPath(path)
    if pure.is_absolute() or Path(path).is_absolute() or ".." in pure.parts:
        raise ConfigError(f"{where}: {path!r} is outside the project; paths are relative and stay inside it")


def _check_real(path: Path, root: Path, where: str) -> None:
    if not Path(os.path.realpath(path)).is_relative_to(root):
        raise ConfigError(
            f"{where}: {path.relative_to(root).as_posix()} is a link that leads outside the project"
        )


def _read(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BuildError(f"{name}: cannot be read: {error.strerror}") from None


def _fixed_part(pattern: str) -> str:
    """The directories of a glob before its first wildcard."""
    parts = PurePosixPath(pattern).parts[:-1]
    wild = next((i for i, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts))
    return "/".join(parts[:wild])


def _nothing_matches(pattern: str, root: Path) -> str:
    fixed = _fixed_part(pattern)
    place = f"{fixed}/" if fixed else "the project's root"
    if not (root / fixed).is_dir():
        return f"nothing matches {pattern!r}: {place} does not exist"
    names = sorted(p.name for p in (root / fixed).iterdir() if p.suffix in _KINDS)
    return f"nothing matches {pattern!r}: {place} has {', '.join(names) if names else 'no device sources'}"
