"""Find the files that the patterns and directories of the configuration name.

Paths stay within the project, and its files are named by their path within it, with forward slashes.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath

from cuda_ext.builder.config.modules import ModuleConfig
from cuda_ext.compiler.architectures import GROUPS
from cuda_ext.compiler.translation_unit import SourceKind
from cuda_ext.errors import ConfigError, did_you_mean
from cuda_ext.formats.architecture import Architecture
from cuda_ext.manifest import FILE_NAME

__all__ = [
    "check_module",
    "check_overrides",
    "find_headers",
    "find_sources",
    "include_directories",
    "kind_of",
]

KINDS: dict[str, SourceKind] = {
    ".cu": "cu",
    ".ptx": "ptx",
    ".cubin": "cubin",
    ".fatbin": "fatbin",
    ".ltoir": "ltoir",
}


def check_module(module: ModuleConfig, root: Path) -> list[str]:
    """Check what needs no compiler; return the names of the sources. Raises :class:`ConfigError`."""
    names = find_sources(module, root)
    check_overrides([(module, names)])
    include_directories(module, root)
    for source in names:
        for name in set(module.for_source(source).architectures).difference(GROUPS):
            try:
                Architecture.parse(name)
            except ValueError:
                raise ConfigError(
                    f"unknown architecture {name!r}",
                    where=module.key_path("architectures", source),
                    remedy="spell it as in sm_90, compute_90 or 90-real",
                ) from None
    return names


def find_sources(module: ModuleConfig, root: Path) -> list[str]:
    """Find the module's sources; return their sorted names within the project."""
    where = module.key_path("sources")
    found: set[str] = set()
    for pattern in module.settings.sources:
        for name in _glob(pattern, root, where):
            _check_source(name, root, where)
            found.add(name)
    names = sorted(found)
    by_stem: dict[str, str] = {}
    for name in names:
        # On some file systems a.fatbin and A.fatbin are one file.
        other = by_stem.setdefault(_stem(name).casefold(), name)
        if other != name:
            raise ConfigError(
                f"{other} and {name} have one basename, and fatbins are named after it",
                where=where,
                remedy="rename one of them",
            )
    return names


def find_headers(module: ModuleConfig, root: Path) -> list[str]:
    """Find the headers of the key ``headers``; return their sorted names within the project."""
    where = module.key_path("headers")
    found: set[str] = set()
    for pattern in module.settings.headers:
        for name in _glob(pattern, root, where):
            _check_link(name, root, where)
            found.add(name)
    return sorted(found)


_real = lru_cache(maxsize=1000)(os.path.realpath)


def _stem(name: str) -> str:
    return os.path.splitext(os.path.basename(name))[0]


def kind_of(name: str) -> SourceKind:
    """Return the kind of a source, by its suffix."""
    return KINDS[_suffix(name)]


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1]


def check_overrides(sources_of: Iterable[tuple[ModuleConfig, Sequence[str]]]) -> None:
    """Check that every pattern of every override matches a source. Raises :class:`ConfigError`."""
    names: dict[str, list[str]] = {}
    overrides = {}
    for module, sources in sources_of:
        for override in module.overrides:
            overrides[override.where] = override
            names.setdefault(override.where, []).extend(sources)
    for where, override in overrides.items():
        for pattern in override.unmatched(names[where]):
            _check_inside(pattern, f"{where}.sources")
            raise ConfigError(
                f"{pattern!r} matches none of the sources",
                where=f"{where}.sources",
                remedy=_nearest(pattern, names[where]),
            )


def include_directories(module: ModuleConfig, root: Path) -> list[Path]:
    """Return the module's include directories as absolute, real paths."""
    where = module.key_path("include_dirs")
    directories = []
    for name in module.settings.include_dirs:
        _check_inside(name, where)
        directory = root / name
        if not directory.is_dir():
            siblings = directory.parent.iterdir() if directory.parent.is_dir() else []
            near = [p.relative_to(root).as_posix() for p in siblings if p.is_dir() and p.name[0] != "."]
            raise ConfigError(
                f"{name!r} is not a directory of the project",
                where=where,
                remedy=_nearest(name, near) or "make it",
            )
        _check_real(name, directory, root, where)
        directories.append(Path(os.path.realpath(directory)))
    return directories


def _glob(pattern: str, root: Path, where: str) -> list[str]:
    """Expand `pattern` to names of files; as in a shell, wildcards do not match hidden files."""
    _check_inside(pattern, where)
    if os.path.lexists(literal := root / pattern) and not literal.is_dir():
        return [PurePosixPath(pattern).as_posix()]
    parts = PurePosixPath(pattern).parts
    if any("**" in part and part != "**" for part in parts):
        raise ConfigError(
            f"{pattern!r}: ** stands between slashes", where=where, remedy="write it as in device/**/*.cu"
        )
    # Files only; dangling links count as files.
    found = glob.glob(pattern, root_dir=root, recursive=True) if parts else []
    names = [
        os.path.normpath(n).replace(os.sep, "/") for n in found if not os.path.isdir(f"{root}{os.sep}{n}")
    ]
    matches = [name for name in names if not _is_embedded(name, root)]
    if not matches:
        problem, remedy = _explain_no_match(pattern, root)
        raise ConfigError(problem, where=where, remedy=remedy)
    return matches


def _is_embedded(name: str, root: Path) -> bool:
    """Whether the file lies in a generated package, where an earlier build put it."""
    within = f"/{name}"
    return "/sources/" in within and any(
        parent.name == "sources" and (root / parent.parent / FILE_NAME).is_file()
        for parent in PurePosixPath(name).parents
    )


def _check_inside(path: str, where: str) -> None:
    pure = PurePosixPath(path)
    if pure.is_absolute() or Path(path).anchor or ".." in pure.parts:
        raise ConfigError(
            f"{path!r} leads out of the project",
            where=where,
            remedy="copy the files into it and name them by their path within the project",
        )
    if "\\" in path:
        raise ConfigError(
            f"{path!r} has backslashes", where=where, remedy=f"did you mean {path.replace(chr(92), '/')!r}?"
        )


def _check_real(name: str, path: Path, root: Path, where: str) -> None:
    if not Path(os.path.realpath(path)).is_relative_to(root):
        raise ConfigError(
            f"{name!r} is a link that leads out of the project",
            where=where,
            remedy="copy its target into the project",
        )


def _check_link(name: str, root: Path, where: str) -> None:
    path = f"{root}{os.sep}{name}"
    directory = os.path.dirname(path)
    if stat.S_ISLNK(os.lstat(path).st_mode) or _real(directory) != directory:
        _check_real(name, Path(path), root, where)
        if not os.path.exists(path):
            raise ConfigError(f"{name!r} is a dangling link", where=where, remedy="correct or remove it")


def _check_source(name: str, root: Path, where: str) -> None:
    _check_link(name, root, where)
    if _suffix(name) not in KINDS:
        raise ConfigError(
            f"{name!r} is not a device source",
            where=where,
            remedy=f"sources end in {', '.join(KINDS)}, and headers are found by themselves",
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{name!r} has a name that is not UTF-8", where=where, remedy="rename it") from None


def _explain_no_match(pattern: str, root: Path) -> tuple[str, str]:
    """Why `pattern` matches no file, and what to do."""
    if (root / pattern).is_dir():
        return f"{pattern!r} is a directory", f"did you mean '{PurePosixPath(pattern, '*.cu')}'?"
    parts = PurePosixPath(pattern).parts[:-1]
    wild = next((i for i, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts))
    fixed = "/".join(parts[:wild])
    if not (root / fixed).is_dir():
        return f"nothing matches {pattern!r}: there is no directory {fixed!r}", "make it, or correct the path"
    files = [p for p in (root / fixed).iterdir() if p.is_file() and p.name[0] != "."]
    wanted = PurePosixPath(pattern).suffix
    near = [p.relative_to(root).as_posix() for p in files if p.suffix in (wanted, *KINDS)]
    what = "device sources" if wanted in KINDS else "such files"
    return f"nothing matches {pattern!r}", _nearest(pattern, near) or f"there are no {what}"


def _nearest(name: str, names: Sequence[str]) -> str:
    """Suggest the nearest of `names`, or list some of them; empty if there are none."""
    if suggestion := did_you_mean(name, names):
        return suggestion
    shown = [*sorted(names)[:8], *(["..."] if len(names) > 8 else [])]
    return f"there is {', '.join(shown)}" if names else ""
