"""A call of ``cuda_ext_add_module``, which the steps of the build read from ``module.json``."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from cuda_ext.builder.config.keys import BuildSettings
from cuda_ext.builder.config.modules import ModuleConfig, check_apart, check_name, parse_module
from cuda_ext.builder.cpp.object_file import MACHINES
from cuda_ext.builder.project import Project
from cuda_ext.errors import ConfigError
from cuda_ext.filesystem.atomic_directory import replace_file

Embed = Literal["incbin", "literal", "object", "none"]
_FILE_NAME = "module.json"


def call_of(target: str) -> str:
    """Return the call for `target`, as messages name it."""
    return f"cuda_ext_add_module({target})"


@dataclass(frozen=True)
class Call:
    """A call for the project in ``root``.

    ``name`` is the import name. The keys of the module are in ``table``, as in pyproject.toml with paths
    relative to the project, or with ``pyproject`` in that file. ``jit`` says whether kernels are compiled
    on demand, in C++ too; without it, the Python package does that if the keys say so. ``architectures``
    are the default, and ``cudaarchs`` is ``CUDAARCHS`` in the environment, which overrides them. ``embed``
    is the form of images in C++, ``none`` for a module without C++, and ``machine`` that of objects;
    ``python_only`` is what the call says about that. With ``restores_byproducts`` the build tool generates
    deleted byproducts again. ``files`` are those that the globs match; the module changes with them.
    ``outside`` and ``generated`` are those of
    a :class:`FileTree`.
    """

    target: str
    root: str
    name: str | None = None
    pyproject: bool = False
    python_only: bool | None = None
    cxx_namespace: str | None = None
    c_interface: bool | None = None
    jit: bool | None = None
    table: Mapping[str, Any] = field(default_factory=dict)
    architectures: Sequence[str] = ()
    cudaarchs: str = ""
    embed: Embed | None = None
    machine: str = ""
    restores_byproducts: bool = True
    files: Sequence[str] = ()
    outside: Mapping[str, str] = field(default_factory=dict)
    generated: Sequence[str] = ()

    @classmethod
    def read(cls, directory: Path, target: str) -> Call:
        """Read what :meth:`write` wrote to `directory`. Raises :class:`ConfigError`."""
        file = directory / _FILE_NAME
        try:
            return cls(**json.loads(file.read_bytes()))
        except (TypeError, ValueError):
            raise ConfigError(
                f"{file} is damaged", where=call_of(target), remedy="configure the project again"
            ) from None

    def write(self, directory: Path) -> None:
        """Write ``module.json``, which is left untouched if it would stay the same."""
        text = json.dumps(dataclasses.asdict(self), indent=1)
        replace_file(directory / _FILE_NAME, text.encode())

    def project(self) -> Project:
        """Return the project with this module alone. Raises :class:`ConfigError`."""
        root = Path(self.root)
        module, settings = self._module_of_pyproject(root) if self.pyproject else self._module()
        added: dict[str, tuple[Any, str]] = {}  # each with the place where it is written
        if self.architectures and "architectures" not in module.written:
            added["architectures"] = tuple(self.architectures), "CMAKE_CUDA_ARCHITECTURES"
        if self.jit is not None:
            added["jit"] = self.jit, f"{call_of(self.target)}.jit"
        module = dataclasses.replace(
            module,
            settings=dataclasses.replace(
                module.settings, **{key: value for key, (value, _) in added.items()}
            ),
            written={**module.written, **{key: place for key, (_, place) in added.items()}},
        )
        outside = {first: Path(directory) for first, directory in self.outside.items()}
        return Project(root, (module,), settings, self.target, outside=outside)

    def project_before_the_build(self) -> Project:
        """Return the project as far as it is known before the build has generated sources.

        These are empty, and sources may lack the kernels to instantiate.
        """
        project = self.project()
        if not self.generated:
            return project
        (module,) = project.modules
        settings = dataclasses.replace(module.settings, instantiate=(), constants=())
        overrides = tuple(
            dataclasses.replace(
                each, settings={key: value for key, value in each.settings.items() if key != "instantiate"}
            )
            for each in module.overrides
        )
        module = dataclasses.replace(module, settings=settings, overrides=overrides)
        return dataclasses.replace(project, modules=(module,), generated=frozenset(self.generated))

    def choose_embed(self, available: str, machine: str) -> Embed:
        """Return the form of images in C++, of which `available` is ``none`` if CXX is not enabled.

        Objects are for `machine`.

        Raises :class:`ConfigError` if the call then has arguments for C++.
        """
        of_cpp = "CXX_NAMESPACE" if self.cxx_namespace else "C_INTERFACE" if self.c_interface else ""
        if self.python_only and of_cpp:
            raise self._error(f"{of_cpp} is for C++, and PYTHON_ONLY excludes it", "leave out one of them")
        if available == "none" and (of_cpp or self.python_only is False):
            given = of_cpp or "PYTHON_ONLY OFF"
            raise self._error(
                f"{given} is for C++, and the language CXX is not enabled",
                "add CXX to the LANGUAGES of project()",
            )
        where = f"{call_of(self.target)}.EMBED"
        if self.embed not in (None, "literal", "incbin", "object"):
            raise ConfigError(f"expected literal, incbin or object, found {self.embed!r}", where=where)
        if self.embed == "object" and machine not in MACHINES:
            problem = f"objects are ELF for x86-64 or AArch64, and not for {machine or 'this system'}"
            raise ConfigError(problem, where=where, remedy="leave out EMBED, or write EMBED literal")
        return "none" if self.python_only or available == "none" else self.embed or cast("Embed", available)

    @property
    def namespace(self) -> str:
        """The namespace of the kernels in C++."""
        return self.cxx_namespace or str(self.name).replace(".", "::")

    def environ(self) -> Mapping[str, str]:
        """Return the environment of a step."""
        return {**os.environ, "CUDAARCHS": self.cudaarchs}

    def with_paths(self, text: str) -> str:
        """Return the `text` of the compiler with full paths, by which editors find its lines."""

        def full_path(match: re.Match[str]) -> str:
            first, _, rest = match[0].partition("/")
            path = Path(self.outside[first], rest) if first in self.outside else Path(self.root, match[0])
            return str(path) if path.is_file() else match[0]

        return re.sub(r"(?m)^[^\s(:][^(:\n]*(?=\(\d+\): |:\d+: )", full_path, text)

    def _module(self) -> tuple[ModuleConfig, BuildSettings]:
        if self.name is None:
            raise self._error(
                "has no NAME", "add the name by which Python imports it: NAME your_package.kernels"
            )
        check_name(self.name, f"{call_of(self.target)}.name")
        module = parse_module(self.name, self.table, call_of(self.target))
        if "headers" in self.table and "sources" not in self.table:  # texts alone
            module = dataclasses.replace(module, settings=dataclasses.replace(module.settings, sources=()))
        return module, BuildSettings()

    def _module_of_pyproject(self, root: Path) -> tuple[ModuleConfig, BuildSettings]:
        project = Project.load(root)
        if project is None:
            raise self._error(
                f"{root / 'pyproject.toml'} has no [tool.cuda_ext] table",
                "add it, or give the keys here in place of FROM_PYPROJECT",
            )
        modules = {module.name: module for module in project.modules}
        names = ", ".join(modules)
        if self.name is None and len(modules) > 1:
            raise self._error("[tool.cuda_ext] has several modules", f"choose one with NAME: {names}")
        if self.name is not None and self.name not in modules:
            raise self._error(f"[tool.cuda_ext] has no module {self.name!r}", f"it has {names}")
        return modules[next(iter(modules)) if self.name is None else self.name], project.settings

    def _error(self, problem: str, remedy: str) -> ConfigError:
        return ConfigError(problem, where=call_of(self.target), remedy=remedy)


def check_calls_apart(calls: Sequence[Call]) -> None:
    """Check that no two of `calls`, which have names, collide. Raises :class:`ConfigError`."""
    names: dict[str, Call] = {}
    namespaces: dict[str, Call] = {}
    for call in calls:
        where, first = call_of(call.target), call.namespace.partition("::")[0]
        if call.embed != "none" and first in ("std", "cuda_ext"):
            problem, remedy = f"the C++ namespace {first} is not yours", "choose another with CXX_NAMESPACE"
        elif (other := names.setdefault(str(call.name), call)) is not call:
            problem, remedy = f"{other.target} is the module {call.name} already", "choose another NAME"
        elif (other := namespaces.setdefault(call.namespace, call)) is not call:
            problem = f"{other.target} has the C++ namespace {call.namespace} already"
            remedy = "choose another CXX_NAMESPACE"
        else:
            continue
        raise ConfigError(problem, where=where, remedy=remedy)
    check_apart(ModuleConfig(name, call_of(call.target)) for name, call in names.items())
