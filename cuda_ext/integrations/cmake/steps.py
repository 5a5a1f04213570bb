"""The door for CMake: what ``cuda_ext_add_module`` runs when a project is configured, and when it is built.

``configure`` reads the arguments of the function and tells CMake which commands there will be. Each
``compile`` compiles one source into the cache, at the same time as the others and as the project's C++. Then
``generate`` puts the module together, for which nothing is left to compile.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import cuda_ext
from cuda_ext.builder.config.keys import BuildSettings
from cuda_ext.builder.config.modules import ModuleConfig, parse_module
from cuda_ext.builder.package.depfile import depfile as rule
from cuda_ext.builder.package.in_place import remove_others
from cuda_ext.builder.project import Project
from cuda_ext.builder.sources.globs import check_overrides, find_headers, include_directories
from cuda_ext.builder.sources.plan import Sources
from cuda_ext.compiler.architectures import GROUPS, from_cmake
from cuda_ext.errors import BuildError, ConfigError, ToolchainError
from cuda_ext.filesystem.atomic_directory import replace_file
from cuda_ext.formats.architecture import Architecture
from cuda_ext.integrations.cmake.arguments import in_cmake, parse_arguments

__all__ = ["main"]

_FROZEN = "module.json"
_CACHE = "cache"  # of this build alone, where the user has none
_SEPARATOR = "\x1f"  # before each argument


@dataclass(frozen=True)
class Module:
    """A module as it was when the project was configured.

    ``name`` is its import name, ``root`` the project's directory. Its keys are in ``table``, or with
    ``pyproject`` in pyproject.toml. ``architectures`` hold where the keys name none, and ``cudaarchs`` goes
    before them, as ``CUDAARCHS`` in the environment does. ``embed`` is how bytes come into C++. ``files``
    are what the patterns in the keys led to: another file makes another module.
    """

    target: str
    name: str | None
    root: str
    pyproject: bool
    table: Mapping[str, Any]
    architectures: Sequence[str]
    cudaarchs: str
    embed: Literal["incbin", "literal"]
    files: Sequence[str] = ()

    @property
    def where(self) -> str:
        return f"cuda_ext_add_module({self.target})"

    def project(self) -> Project:
        """The project with this module alone. Raises :class:`ConfigError`."""
        root = Path(self.root)
        if self.pyproject:
            found = Project.load(root)
            if found is None:
                raise ConfigError(
                    f"{self.where}: {root / 'pyproject.toml'} has no [tool.cuda_ext] table; add it, "
                    "or give the keys here in place of FROM_PYPROJECT"
                )
            module, settings = self._chosen(found.modules), found.settings
        else:
            if self.name is None:
                raise ConfigError(
                    f"{self.where}: has no NAME; say how Python imports it: NAME your_package.kernels"
                )
            module, settings = parse_module(self.name, self.table, self.where), BuildSettings()
        if self.architectures and "architectures" not in module.written:
            module = dataclasses.replace(
                module,
                settings=dataclasses.replace(module.settings, architectures=tuple(self.architectures)),
                written={**module.written, "architectures": "CMAKE_CUDA_ARCHITECTURES"},
            )
        return Project(root, (module,), settings, self.target)

    def environ(self) -> Mapping[str, str]:
        """The environment of a step."""
        return {**os.environ, "CUDAARCHS": self.cudaarchs}

    def _chosen(self, modules: Sequence[ModuleConfig]) -> ModuleConfig:
        names = [module.name for module in modules]
        if self.name is None and len(modules) > 1:
            raise ConfigError(
                f"{self.where}: [tool.cuda_ext] has several modules; choose one with NAME: {', '.join(names)}"
            )
        for module in modules:
            if self.name in (None, module.name):
                return module
        raise ConfigError(
            f"{self.where}: [tool.cuda_ext] has no module {self.name!r}; it has {', '.join(names)}"
        )


def main(arguments: Sequence[str]) -> int:
    """Do one step; its exit status. A mistake in the project is one message."""
    step, directory, *rest = arguments
    steps: Mapping[str, Callable[..., None]] = {"compile": _compile, "generate": _generate}
    try:
        pyproject = False
        if step == "configure":
            where = f"cuda_ext_add_module({rest[0]})"
            _configure(Path(directory), where, *rest)
        else:
            module = Module(**json.loads(Path(directory, _FROZEN).read_bytes()))
            where, pyproject = module.where, module.pyproject
            steps[step](Path(directory), module, *rest)
    except BuildError as error:
        _show(str(error) if pyproject else in_cmake(str(error), where))
        return 1
    except OSError as error:
        _show(f"{where}: {error.filename}: cannot be read or written: {error.strerror}")
        return 1
    return 0


def _configure(
    directory: Path,
    where: str,
    target: str,
    root: str,
    current: str,
    architectures: str,
    embed: str,
    exported: str,
) -> None:
    """Read ``arguments.txt`` in `directory`; write what the other steps and CMake need to know.

    Where `exported` is ``ON``, editors are told too; what keeps them from that does not keep anybody from
    building.
    """
    from cuda_ext.builder.cpp import generate_cpp

    words = (directory / "arguments.txt").read_text(encoding="utf-8").split(_SEPARATOR)[1:]
    real = Path(os.path.realpath(root))
    arguments = parse_arguments(words, where, Path(root), Path(current))
    module = Module(
        target,
        arguments.name,
        str(real),
        arguments.pyproject,
        arguments.table,
        # enable_language(CUDA) reads OFF as "whatever the compiler does".
        [] if architectures.upper() in ("OFF", "FALSE") else from_cmake(architectures),
        os.environ.get("CUDAARCHS", ""),
        "incbin" if embed == "incbin" else "literal",
    )
    (config,) = module.project().modules
    sources = Sources(config, real)
    # What can be known to be wrong without a compiler is said now.
    check_overrides([(config, sources.names)])
    include_directories(config, real)
    _check_spelling(config, sources.names)
    module = dataclasses.replace(module, files=(*sources.names, *find_headers(config, real)))
    patterns = [p for p in (*config.settings.sources, *config.settings.headers) if set("*?[") & set(p)]
    told = {
        "name": [config.name],
        "path": [config.name.replace(".", "/")],
        "sources": sources.names,
        "code": list(generate_cpp.source_names(config.name, config.settings.jit)),
        "globs": [str(real / pattern) for pattern in patterns if "**" not in pattern],
        "recursive_globs": [str(real / p.replace("**/", "")) for p in patterns if "**" in p],
        "pyproject": [str(real / "pyproject.toml")] if module.pyproject else [],
        "python_destination": [arguments.python_destination] if arguments.python_destination else [],
        "depends": arguments.depends,
    }
    if split := [value for values in told.values() for value in values if ";" in value]:
        raise ConfigError(
            f"{where}: {split[0]!r} has a semicolon, which CMake takes for two paths; rename it"
        )
    text = "".join(f"set(cuda_ext_{name} [==[{';'.join(values)}]==])\n" for name, values in told.items())
    replace_file(directory / "module.cmake", text.encode())
    replace_file(directory / _FROZEN, json.dumps(dataclasses.asdict(module), indent=1).encode())
    if exported == "ON":
        from cuda_ext.builder.sources import compilation_database as editors

        try:
            commands = editors.compile_commands(module.project(), module.environ())
        except ToolchainError as error:
            _show(f"{where}: {editors.FILE_NAME} is not written: {error}")
        else:
            editors.write(directory / editors.FILE_NAME, commands)


def _check_spelling(config: ModuleConfig, sources: Iterable[str]) -> None:
    """All architectures could be some. Raises :class:`ConfigError`."""
    for source in sources:
        for name in set(config.for_source(source).architectures).difference(GROUPS):
            try:
                Architecture.parse(name)
            except ValueError:
                where = config.key_path("architectures", source)
                raise ConfigError(
                    f"{where}: unknown architecture {name!r}; spell it as in sm_90, compute_90 or 90-real"
                ) from None


def _compile(directory: Path, module: Module, source: str, stamp: str, depfile: str) -> None:
    """Compile `source` into the cache."""
    from cuda_ext.builder.scheduler.progress import Quiet
    from cuda_ext.builder.session import compile_source

    # The build tool runs as many of these as it likes.
    environ = {**module.environ(), "MAX_JOBS": "1"}
    project = module.project()
    reads = compile_source(project, source, environ, Quiet(_show), directory / _CACHE)
    # CMake knows the source itself, whatever characters are in its name.
    _finish(stamp, depfile, reads - {str(project.root / source)})


def _generate(directory: Path, module: Module, stamp: str, depfile: str) -> None:
    """Make the importable package below ``python``, the C++ header below ``include``, and the source."""
    from cuda_ext.builder.cpp import generate_cpp
    from cuda_ext.builder.scheduler.progress import Quiet
    from cuda_ext.builder.session import build

    project = module.project()
    (package,) = build(project, module.environ(), Quiet(lambda _: None), directory / _CACHE)
    place = directory / "python" / Path(*package.name.split("."))
    remove_others(directory / "python", [place])
    package.write(place)
    made = generate_cpp.render(package, project.modules[0].settings.include_dirs, place, module.embed)
    for name, content in made.files.items():
        replace_file(directory / name, content)
    _remove_other_headers(directory / "include", directory / made.header)
    _finish(stamp, depfile, (str(project.root / name) for name in project.source_files()))


def _remove_other_headers(directory: Path, header: Path) -> None:
    """Remove what was generated when the module had another name, so that nobody includes it."""
    for other in directory.rglob("*.h"):
        if other != header:
            other.unlink()


def _finish(stamp: str, depfile: str, reads: Iterable[str]) -> None:
    """Say that `stamp` is up to date as long as what it `reads` is, and this package."""
    Path(stamp).parent.mkdir(exist_ok=True)
    Path(depfile).write_text(rule([stamp], sorted({*reads, cuda_ext.__file__})), encoding="utf-8")
    Path(stamp).touch()


def _show(text: str) -> None:
    print(text, file=sys.stderr)
