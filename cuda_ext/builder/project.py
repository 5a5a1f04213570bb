"""A project with a ``[tool.cuda_ext]`` table, which every build tool reads first."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext.builder.requirement import read_requirements
from cuda_ext.compiler.file_tree import FileTree
from cuda_ext.errors import ConfigError
from cuda_ext.filesystem.regular_file import read_file

if TYPE_CHECKING:
    from cuda_ext.builder.config.keys import BuildSettings
    from cuda_ext.builder.config.modules import ModuleConfig


@dataclass(frozen=True)
class Project:
    """The modules that a project's configuration describes.

    ``table`` is the configuration as written, and ``package_dir`` setuptools' mapping of packages to
    directories. ``requirements`` are the project's dependencies, ``None`` if they are not known. ``version``
    is ``0`` if the file does not have it. ``outside``
    and ``generated`` are those of its :attr:`tree`.
    """

    root: Path
    modules: tuple[ModuleConfig, ...]
    settings: BuildSettings
    name: str
    table: Mapping[str, object] = field(default_factory=dict)
    package_dir: Mapping[str, str] = field(default_factory=dict)
    requirements: tuple[str, ...] | None = None
    version: str = "0"
    outside: Mapping[str, Path] = field(default_factory=dict)
    generated: frozenset[str] = frozenset()

    @classmethod
    def load(cls, root: Path, packages: Sequence[str] = ()) -> Project | None:
        """Read ``pyproject.toml`` in `root`; ``None`` if it has no ``[tool.cuda_ext]``.

        `packages` are the import packages that the build tool knows of; they name the module if the
        configuration does not. Raises :class:`ConfigError`.
        """
        try:
            text = read_file(f"{root}/pyproject.toml")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(
                f"cannot be read: {error.strerror}",
                where="pyproject.toml",
                remedy="make it a file that you can read",
            ) from None
        if b"cuda_ext" not in text and b"cuda-ext" not in text:
            return None
        document = _parse(text)
        tools, project = (document.get(k) for k in ("tool", "project"))
        if not isinstance(tools, dict) or tools.keys().isdisjoint({"cuda_ext", "cuda-ext"}):
            return None
        if "cuda_ext" not in tools:
            raise ConfigError("unknown table", where="tool.cuda-ext", remedy="did you mean [tool.cuda_ext]?")
        from cuda_ext.builder.config.modules import parse_table

        real = Path(os.path.realpath(root))
        name = project.get("name") if isinstance(project, dict) else None
        name = name if isinstance(name, str) else None
        default = default_module_name(real, name, packages)
        table = tools["cuda_ext"]
        modules, settings = parse_table(table, default)
        package_dir, requirements = _package_dir(tools), read_requirements(project)
        version = project.get("version") if isinstance(project, dict) else None
        return cls(
            *(real, modules, settings, name or real.name, table, package_dir, requirements),
            version=version if isinstance(version, str) else "0",
        )

    @classmethod
    def required(cls, root: Path, packages: Sequence[str] = ()) -> Project:
        """Do as :meth:`load`; a missing table is also an error. Raises :class:`ConfigError`."""
        project = cls.load(root, packages)
        if project is None:
            with suppress(FileNotFoundError):
                # In another encoding, or after a mistake, the table only seems to be missing.
                _parse((root / "pyproject.toml").read_bytes())
            raise ConfigError(
                "has no [tool.cuda_ext] table",
                where=root / "pyproject.toml",
                remedy="add it, an empty one compiles device/*.cu",
            )
        return project

    @property
    def tree(self) -> FileTree:
        """The files of the project."""
        return FileTree(self.root, self.outside, self.generated)

    def package_places(self, package: str) -> Iterator[Path]:
        """Yield the directories of the source tree where `package` may lie, likeliest first."""
        return _package_places(self.root, package, self.package_dir)

    def source_directory(self, name: str) -> Path:
        """Return the directory of the generated package `name` in the source tree, in its parent package.

        Raises :class:`ConfigError` if there is none.
        """
        places = list(self.package_places(name))
        parents = [place.parent for place in places]
        for is_package in (_has_init, Path.is_dir):
            for place in places:
                if is_package(place.parent):
                    return place
        where = next(module.where for module in self.modules if module.name == name)
        searched = ", ".join(os.path.relpath(parent, self.root) for parent in parents)
        package = name.rpartition(".")[0]
        raise ConfigError(
            f"there is no package {package!r} to put it into; looked for the directories {searched}",
            where=where,
            remedy=self.advise_package(name),
        )

    def advise_package(self, name: str) -> str:
        """Say how to create the package that contains the generated package `name`."""
        tops = map(Path.is_dir, self.package_places(name.partition(".")[0]))
        places = sorted(zip(tops, self.package_places(name), strict=True), key=lambda place: not place[0])
        file = places[0][1].parent / "__init__.py"
        return f"create {os.path.relpath(file, self.root)}, which may be empty"

    def source_directories(self) -> Iterator[Path]:
        """Yield the directories of generated packages in the source tree whose parent packages exist."""
        for module in self.modules:
            with suppress(ConfigError):
                yield self.source_directory(module.name)

    def source_files(self) -> list[Path]:
        """List every device source and header, relative to the root: an sdist must contain them.

        No compiler is needed. Raises :class:`BuildError` for files that cannot be found or read.
        """
        from cuda_ext.builder.sources.globs import check_overrides
        from cuda_ext.builder.sources.module_sources import Sources

        sources = [Sources(module, self.tree) for module in self.modules]
        check_overrides((m, own.names) for m, own in zip(self.modules, sources, strict=True))
        return sorted({Path(name) for own in sources for name in own.files()})


# The usual directories of packages, the likeliest first; the empty one is the root.
_BASES = ("src", "", "python", "lib")


def _package_places(root: Path, package: str, package_dir: Mapping[str, str]) -> Iterator[Path]:
    """Yield the places where `package` may lie, likeliest first. `package_dir` is setuptools' mapping."""
    known, inner = package, ""
    while known and known not in package_dir:
        known, _, last = known.rpartition(".")
        inner = f"{last}/{inner}"
    bases = [package_dir[known]] if known in package_dir else _BASES
    yield from (root / base / inner for base in bases)


def default_module_name(root: Path, project_name: str | None, packages: Sequence[str]) -> str | None:
    """Return ``<the package>.kernels``, if the project has exactly one possible package."""
    if len({p.partition(".")[0] for p in packages}) == 1:
        # A namespace package has no __init__.py, and belongs to other projects as well.
        regular = [p for p in packages if _is_regular(p, root)]
        return f"{min(regular or packages, key=lambda p: p.count('.'))}.kernels"
    name = re.sub(r"[-.\s]+", "_", project_name or "")
    names = (n for n in (name, name.lower()) if n and _is_regular(n, root))
    return next((f"{package}.kernels" for package in names), None)


def _is_regular(package: str, root: Path) -> bool:
    return any(map(_has_init, _package_places(root, package, {})))


def _has_init(directory: Path) -> bool:
    return (directory / "__init__.py").is_file()


def _package_dir(tools: Mapping[str, object]) -> dict[str, str]:
    """Read ``[tool.setuptools]``, which setuptools itself checks."""
    match tools:
        case {"setuptools": {"package-dir": dict(found)}}:
            return {str(package): str(directory) for package, directory in found.items()}
    return {}


def _decode(text: bytes) -> str:
    """Decode `text`, which must be UTF-8. Raises :class:`ConfigError`."""
    decoded = text.decode(errors="surrogateescape")
    # A byte order mark, a zero byte of UTF-16, or a byte that is invalid in UTF-8.
    if wrong := re.search("^\ufeff|[\0\udc80-\udcff]", decoded):
        line = decoded.count("\n", 0, wrong.start()) + 1
        raise ConfigError(
            "is not UTF-8, or begins with a byte order mark",
            where=f"pyproject.toml:{line}",
            remedy="save the file as UTF-8 without one",
        )
    return decoded


def _parse(text: bytes) -> dict[str, object]:
    try:
        return tomllib.loads(_decode(text))
    except tomllib.TOMLDecodeError as error:
        problem, _, place = str(error).removesuffix(")").partition(" (at ")
        found = re.match(r"line (\d+)", place)
        line = int(found[1]) if found else len(text.splitlines())
        remedy = "merge the two or rename one of them" if problem.endswith("twice") else ""
        raise ConfigError(problem, where=f"pyproject.toml:{line}", remedy=remedy) from None
    except RecursionError:
        raise ConfigError("is nested too deep", where="pyproject.toml", remedy="write it flatter") from None
    except ValueError as error:  # an integer of thousands of digits
        raise ConfigError(str(error).partition(";")[0], where="pyproject.toml") from None
