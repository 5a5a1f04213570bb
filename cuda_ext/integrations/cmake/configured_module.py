"""A module as ``cuda_ext_add_module`` configured it, in ``module.json`` for the steps of the build."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cuda_ext.builder.config.keys import BuildSettings
from cuda_ext.builder.config.modules import ModuleConfig, parse_module
from cuda_ext.builder.project import Project
from cuda_ext.errors import ConfigError
from cuda_ext.filesystem.atomic_directory import replace_file

__all__ = ["ConfiguredModule", "call_of"]

_FILE_NAME = "module.json"


def call_of(target: str) -> str:
    """The call for `target`, as messages name it."""
    return f"cuda_ext_add_module({target})"


@dataclass(frozen=True)
class ConfiguredModule:
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

    @classmethod
    def read(cls, directory: Path, target: str) -> ConfiguredModule:
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

    @property
    def where(self) -> str:
        return call_of(self.target)

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
