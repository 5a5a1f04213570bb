"""Find the files that the patterns and directories of the configuration name.

Paths stay within the project, and its files are named by their path within it, with forward slashes.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path, PurePosixPath

from cuda_ext.builder.config.modules import ModuleConfig, Override
from cuda_ext.compiler.file_tree import FileTree
from cuda_ext.compiler.headers import NOT_PLAIN, is_plain
from cuda_ext.compiler.module_plan import file_stems
from cuda_ext.compiler.translation_unit import SourceKind
from cuda_ext.errors import ConfigError, did_you_mean, shorten
from cuda_ext.facts.manifest import FILE_NAME

_KINDS: dict[str, SourceKind] = {
    ".cu": "cu",
    ".ptx": "ptx",
    ".cubin": "cubin",
    ".fatbin": "fatbin",
    ".ltoir": "ltoir",
    ".py": "triton",
}


def kind_of(name: str) -> SourceKind:
    """Return the kind of a source by its suffix; the text of a Python file determines its kind."""
    return _KINDS[_suffix(name)]


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1]


def fixed_directory(pattern: str) -> str:
    """Return the directory before the first wildcard of `pattern`."""
    parents = PurePosixPath(pattern).parts[:-1]
    return "/".join(takewhile(lambda part: not glob.has_magic(part), parents))


def check_overrides(sources_of: Iterable[tuple[ModuleConfig, Sequence[str]]]) -> None:
    """Check that every pattern of every override matches a source. Raises :class:`ConfigError`."""
    names: dict[str, list[str]] = {}
    overrides = {}
    for module, sources in sources_of:
        for override in module.overrides:
            overrides[override.where] = override
            names.setdefault(override.where, []).extend(sources)
    for where, override in overrides.items():
        key = _Key(f"{where}.sources", FileTree(Path()))
        for pattern in override.unmatched(names[where]):
            key.check_inside(pattern)
            raise key.error(
                f"{shorten(pattern)!r} matches none of the sources", _nearest(pattern, names[where])
            )


def find_sources(module: ModuleConfig, tree: FileTree) -> list[str]:
    """Find the module's sources; return their sorted names within the project."""
    key = _Key(module.key_path("sources"), tree)
    names = key.find(module.settings.sources)
    for name in names:
        if _suffix(name) not in _KINDS:
            raise key.error(
                f"{shorten(name)!r} is not a device source",
                f"sources end in {', '.join(_KINDS)}, and the build finds headers itself",
            )
    by_stem: dict[str, str] = {}
    for name, stem in file_stems(names).items():
        # On some file systems a.fatbin and A.fatbin are one file.
        if (other := by_stem.setdefault(stem.casefold(), name)) != name:
            raise key.error(
                f"{other} and {name} would both be compiled to {stem}.fatbin", "rename one of them"
            )
    return names


def find_headers(module: ModuleConfig, tree: FileTree) -> list[str]:
    """Find the headers of the key ``headers``; return their sorted names within the project."""
    return _Key(module.key_path("headers"), tree).find(module.settings.headers)


def find_tuning(override: Override, tree: FileTree) -> str:
    """Find the file of the key ``tuning``, which `override` has; return its name within the project."""
    (name,) = _Key(f"{override.where}.tuning", tree).find([glob.escape(override.tuning or "")])
    return name


def find_include_directories(module: ModuleConfig, tree: FileTree) -> list[Path]:
    """Return the module's include directories as absolute, real paths."""
    key = _Key(module.key_path("include_dirs"), tree)
    for name in module.settings.include_dirs:
        key.check_inside(name)
        directory = Path(tree.path(name))
        if not directory.is_dir():
            siblings = directory.parent.iterdir() if directory.parent.is_dir() else []
            near = [tree.name(str(p)) or "" for p in siblings if p.is_dir() and p.name[0] != "."]
            raise key.error(
                f"{shorten(name)!r} is not a directory of the project", _nearest(name, near) or "make it"
            )
        key.check_target(name)
    return [Path(os.path.realpath(tree.path(name))) for name in module.settings.include_dirs]


def find_output(where: str, root: Path, name: str) -> Path:
    """Return the project's file that a build writes, named at the key path `where`."""
    key = _Key(where, FileTree(root))
    key.check_inside(name)
    key.check_target(name)
    return root / name


@dataclass(frozen=True)
class _Key:
    """A key that names files of the project in ``tree``; ``where`` is its key path."""

    where: str
    tree: FileTree

    def error(self, problem: str, remedy: str) -> ConfigError:
        return ConfigError(problem, where=self.where, remedy=remedy)

    def find(self, patterns: Iterable[str]) -> list[str]:
        """Return the sorted names of the files that `patterns` match."""
        names = sorted({name for pattern in patterns for name in self._glob(pattern)})
        for name in names:
            if not is_plain(name):
                raise self.error(f"{shorten(name)!r} {NOT_PLAIN}", "rename it")
            path = self.tree.path(name)
            directory = os.path.dirname(path)
            if name in self.tree.generated:
                continue
            if stat.S_ISLNK(os.lstat(path).st_mode) or _real(directory) != directory:
                self.check_target(name)
                if not os.path.exists(path):
                    raise self.error(f"{shorten(name)!r} is a dangling link", "correct or remove it")
        return names

    def check_inside(self, path: str) -> None:
        """Check that `path` is within the project."""
        pure = PurePosixPath(path)
        if pure.is_absolute() or Path(path).anchor or ".." in pure.parts:
            raise self.error(
                f"{shorten(path)!r} leads out of the project",
                "copy the files into it and name them by their path within the project",
            )
        if "\\" in path:
            raise self.error(
                f"{shorten(path)!r} has backslashes", f"did you mean {path.replace(chr(92), '/')!r}?"
            )

    def check_target(self, name: str) -> None:
        """Check that no link on the way to `name` leads out of the project."""
        real = os.path.realpath(self.tree.path(name))
        if self.tree.name(f"{real}{os.sep}") is None:
            raise self.error(
                f"{shorten(name)!r} is a link that leads out of the project",
                "copy its target into the project",
            )

    def _glob(self, pattern: str) -> list[str]:
        """Expand `pattern` to names of files; as in a shell, wildcards do not match hidden files."""
        self.check_inside(pattern)
        literal = self.tree.path(pattern)
        exists = os.path.lexists(literal) and not os.path.isdir(literal)
        if exists or pattern in self.tree.generated:
            return [PurePosixPath(pattern).as_posix()]
        parts = PurePosixPath(pattern).parts
        if any("**" in part and part != "**" for part in parts):
            raise self.error(
                f"{shorten(pattern)!r}: ** stands between slashes", "write it as in device/**/*.cu"
            )
        paths = self._expand(pattern) if parts else []
        # Files only; dangling links count as files.
        names = [os.path.normpath(path).replace(os.sep, "/") for path in paths]
        names = [name for name in names if not os.path.isdir(self.tree.path(name))]
        matches = [name for name in names if not self._is_embedded(name)]
        if not matches:
            raise self._no_match(pattern)
        return matches

    def _expand(self, pattern: str) -> list[str]:
        first, _, rest = pattern.partition("/")
        if first not in self.tree.outside:
            return glob.glob(pattern, root_dir=self.tree.root, recursive=True)
        paths = glob.glob(rest, root_dir=self.tree.outside[first], recursive=True)
        return [f"{first}/{path}" for path in paths]

    def _is_embedded(self, name: str) -> bool:
        """Return True if the file lies in a generated package, where an earlier build put it."""
        return "/sources/" in f"/{name}" and any(
            parent.name == "sources" and Path(self.tree.path(str(parent.parent)), FILE_NAME).is_file()
            for parent in PurePosixPath(name).parents
        )

    def _no_match(self, pattern: str) -> ConfigError:
        """Return the error for a pattern that matches no file."""
        if os.path.isdir(self.tree.path(pattern)):
            return self.error(
                f"{shorten(pattern)!r} is a directory", f"did you mean '{PurePosixPath(pattern, '*.cu')}'?"
            )
        fixed = fixed_directory(pattern)
        directory = Path(self.tree.path(fixed))
        if not directory.is_dir():
            return self.error(
                f"nothing matches {shorten(pattern)!r}: there is no directory {shorten(fixed)!r}",
                "make it, or correct the path",
            )
        files = [p for p in directory.iterdir() if p.is_file() and p.name[0] != "."]
        is_source = self.where.endswith("sources")
        near = [self.tree.name(str(p)) or "" for p in files if (p.suffix in _KINDS) == is_source]
        what = "device sources" if is_source else "such files"
        return self.error(
            f"nothing matches {shorten(pattern)!r}", _nearest(pattern, near) or f"there are no {what}"
        )


_real = lru_cache(maxsize=1000)(os.path.realpath)


def _nearest(name: str, names: Sequence[str]) -> str:
    """Suggest the nearest of `names`, or list some of them; empty if there are none."""
    if suggestion := did_you_mean(name, names):
        return suggestion
    shown = [*sorted(names)[:8], *(["..."] if len(names) > 8 else [])]
    return f"there is {', '.join(shown)}" if names else ""
