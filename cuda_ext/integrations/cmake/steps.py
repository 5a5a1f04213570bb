"""The steps that ``cuda_ext_add_module`` runs when CMake configures and builds a project.

``configure`` reads the arguments of the function and writes what CMake needs for its rules. Each ``compile``
compiles one source into the cache, in parallel with other sources and the project's C++. Then ``generate``
assembles the module from the cache.
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
from cuda_ext.builder.sources.globs import find_headers
from cuda_ext.builder.sources.plan import check_module
from cuda_ext.compiler.architectures import from_cmake
from cuda_ext.errors import BuildError, ConfigError, ToolchainError
from cuda_ext.filesystem.atomic_directory import replace_file
from cuda_ext.integrations.cmake.parse_call import parse_call, spell_error

__all__ = ["main"]

_FROZEN = "module.json"
_CACHE = "cache"  # of this build tree alone, if the user has no cache
_SEPARATOR = "\x1f"  # before each argument


@dataclass(frozen=True)
class Module:
    """A module as configured.

    ``name`` is its import name, ``root`` the project's directory. Its keys are in ``table``, or with
    ``pyproject`` in pyproject.toml. ``architectures`` are the default, and ``cudaarchs`` is ``CUDAARCHS`` in
    the environment, which overrides them. ``embed`` is the form of images in C++. ``files`` are those that
    the globs match; the module changes with them.
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
            whole = Project.load(root)
            if whole is None:
                raise ConfigError(
                    f"{root / 'pyproject.toml'} has no [tool.cuda_ext] table",
                    where=self.where,
                    remedy="add it, or give the keys here in place of FROM_PYPROJECT",
                )
            module, settings = self._choose(whole.modules), whole.settings
        else:
            if self.name is None:
                raise ConfigError(
                    "has no NAME",
                    where=self.where,
                    remedy="add the name by which Python imports it: NAME your_package.kernels",
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

    def _choose(self, modules: Sequence[ModuleConfig]) -> ModuleConfig:
        names = [module.name for module in modules]
        if self.name is None and len(modules) > 1:
            raise ConfigError(
                "[tool.cuda_ext] has several modules",
                where=self.where,
                remedy=f"choose one with NAME: {', '.join(names)}",
            )
        for module in modules:
            if self.name in (None, module.name):
                return module
        raise ConfigError(
            f"[tool.cuda_ext] has no module {self.name!r}",
            where=self.where,
            remedy=f"it has {', '.join(names)}",
        )


def main(arguments: Sequence[str]) -> int:
    """Run one step and return its exit status. A mistake in the project is one message."""
    step, directory, target, *rest = arguments
    call = f"cuda_ext_add_module({target})"
    steps: Mapping[str, Callable[..., None]] = {
        "configure": _configure,
        "compile": _compile,
        "generate": _generate,
    }
    try:
        steps[step](Path(directory), target, *rest)
    except BuildError as error:
        _show(spell_error(error, call))
        return 1
    except OSError as error:
        _show(f"{call}: {error.filename}: cannot be read or written: {error.strerror}")
        return 1
    return 0


def _configure(
    directory: Path, target: str, root: str, current: str, architectures: str, embed: str, exported: str
) -> None:
    """Read ``arguments.txt`` in `directory`; write ``module.json`` for the other steps and ``module.cmake``.

    If `exported` is ``ON``, also write the compilation database; a failure of that is a warning.
    """
    from cuda_ext.builder.cpp import generate_cpp

    words = (directory / "arguments.txt").read_text(encoding="utf-8").split(_SEPARATOR)[1:]
    real = Path(os.path.realpath(root))
    call = parse_call(words, f"cuda_ext_add_module({target})", Path(root), Path(current))
    module = Module(
        target,
        call.name,
        str(real),
        call.pyproject,
        call.table,
        # enable_language(CUDA) takes OFF for the compiler's default.
        [] if architectures.upper() in ("OFF", "FALSE") else from_cmake(architectures),
        os.environ.get("CUDAARCHS", ""),
        "incbin" if embed == "incbin" else "literal",
    )
    (config,) = module.project().modules
    sources = check_module(config, real)
    module = dataclasses.replace(module, files=(*sources, *find_headers(config, real)))
    patterns = [p for p in (*config.settings.sources, *config.settings.headers) if set("*?[") & set(p)]
    variables = {
        "name": [config.name],
        "path": [config.name.replace(".", "/")],
        "sources": sources,
        "code": list(generate_cpp.source_names(config.name, config.settings.jit)),
        "globs": [str(real / pattern) for pattern in patterns if "**" not in pattern],
        "recursive_globs": [str(real / p.replace("**/", "")) for p in patterns if "**" in p],
        "pyproject": [str(real / "pyproject.toml")] if module.pyproject else [],
        "python_destination": [call.python_destination] if call.python_destination else [],
        "depends": call.depends,
    }
    if split := [value for values in variables.values() for value in values if ";" in value]:
        raise ConfigError(
            f"{split[0]!r} has a semicolon, which separates paths in CMake",
            where=module.where,
            remedy="rename it",
        )
    text = "".join(f"set(cuda_ext_{name} [==[{';'.join(values)}]==])\n" for name, values in variables.items())
    replace_file(directory / "module.cmake", text.encode())
    replace_file(directory / _FROZEN, json.dumps(dataclasses.asdict(module), indent=1).encode())
    if exported == "ON":
        from cuda_ext.builder.sources import compilation_database as editors

        try:
            commands = editors.compile_commands(module.project(), module.environ())
        except ToolchainError as error:
            _show(f"{module.where}: {editors.FILE_NAME} is not written: {error}")
        else:
            editors.write(directory / editors.FILE_NAME, commands)


def _read_module(directory: Path, target: str) -> Module:
    try:
        return Module(**json.loads((directory / _FROZEN).read_bytes()))
    except (TypeError, ValueError):
        raise ConfigError(
            f"{directory / _FROZEN} is damaged",
            where=f"cuda_ext_add_module({target})",
            remedy="configure the project again",
        ) from None


def _compile(directory: Path, target: str, source: str, stamp: str, depfile: str) -> None:
    """Compile `source` into the cache."""
    from cuda_ext.builder.scheduler.progress import Quiet
    from cuda_ext.builder.session import compile_source

    module = _read_module(directory, target)
    # The build tool runs these steps in parallel.
    environ = {**module.environ(), "MAX_JOBS": "1"}
    project = module.project()
    reads = compile_source(project, source, environ, Quiet(_show), directory / _CACHE)
    # CMake's own rule names the source, whose name a depfile may not be able to express.
    _finish(stamp, depfile, reads - {str(project.root / source)})


def _generate(directory: Path, target: str, stamp: str, depfile: str) -> None:
    """Write the package below ``python``, the C++ header below ``include``, and the C++ sources."""
    from cuda_ext.builder.cpp import generate_cpp
    from cuda_ext.builder.scheduler.progress import Quiet
    from cuda_ext.builder.session import build

    module = _read_module(directory, target)
    project = module.project()
    (package,) = build(project, module.environ(), Quiet(lambda _: None), directory / _CACHE)
    place = directory / "python" / Path(*package.name.split("."))
    remove_others(directory / "python", [place])
    package.write(place)
    cpp = generate_cpp.render(package, project.modules[0].settings.include_dirs, place, module.embed)
    for name, content in cpp.files.items():
        replace_file(directory / name, content)
    _remove_other_headers(directory / "include", directory / cpp.header)
    _finish(stamp, depfile, (str(project.root / name) for name in project.source_files()))


def _remove_other_headers(directory: Path, header: Path) -> None:
    """Remove the header of a module that was renamed, so that it cannot be included by mistake."""
    for other in directory.rglob("*.h"):
        if other != header:
            other.unlink()


def _finish(stamp: str, depfile: str, reads: Iterable[str]) -> None:
    """Touch `stamp` and write its depfile: the files that it `reads`, and this package."""
    Path(stamp).parent.mkdir(exist_ok=True)
    Path(depfile).write_text(rule([stamp], sorted({*reads, cuda_ext.__file__})), encoding="utf-8")
    Path(stamp).touch()


def _show(text: str) -> None:
    print(text, file=sys.stderr)
