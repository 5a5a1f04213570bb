"""The project in the current directory: which compiler a build of it would take."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from cuda_ext.builder.config.modules import ModuleConfig
from cuda_ext.builder.project import Project
from cuda_ext.cli.doctor.finding import Finding, ok, problem
from cuda_ext.errors import BuildError, ConfigError, ToolchainError
from cuda_ext.toolchain.bindings import binding
from cuda_ext.toolchain.nvcc import find_nvcc

__all__ = ["findings", "is_here"]


def is_here() -> bool:
    """Whether there is a project with our table, right or wrong, in the current directory."""
    try:
        return Project.load(Path.cwd()) is not None
    except ConfigError:
        return True
    except OSError:  # of a directory that is gone
        return False


def findings() -> Iterator[Finding]:
    """What a build here would take; nothing where there is no project."""
    try:
        project = Project.load(Path.cwd())
    except BuildError as error:
        yield problem("pyproject.toml", str(error), "correct it")
        return
    except OSError:
        return
    if project is None:
        return
    groups: dict[tuple[str, str | None, str | None], list[ModuleConfig]] = {}
    for module in project.modules:
        settings = module.settings
        groups.setdefault((settings.compiler, settings.nvcc, settings.launcher), []).append(module)
    for (compiler, nvcc, launcher), modules in groups.items():
        names = ", ".join(module.name for module in modules)
        configured = str(project.root / nvcc) if nvcc else None
        yield _compiled_by(names, compiler, configured, launcher)
    if project.settings.executor == "dask" and find_spec("distributed") is None:
        text = 'executor = "dask" takes Dask, which is not installed'
        yield problem(project.name, text, command='pip install "cuda-ext[dask]"')


def _compiled_by(names: str, compiler: str, nvcc: str | None, launcher: str | None) -> Finding:
    if launcher and shutil.which(launcher) is None:
        return problem(names, f"launcher: {launcher!r} is not on PATH", "install it, or remove the key")
    try:
        if compiler == "nvrtc":
            _, major, minor = binding("nvrtc").nvrtcVersion()
            return ok(names, f"a build takes NVRTC {major}.{minor}", facts={"compiler": "nvrtc"})
        found = find_nvcc(nvcc, os.environ, launcher)
    except ToolchainError as error:
        if compiler == "nvrtc":
            return problem(names, str(error), command='pip install "cuda-ext[cu13]"')
        return problem(names, str(error))
    through = f" through {launcher}" if launcher else ""
    return ok(
        names, f"a build takes nvcc {found.version}{through}, {found.executable}", facts={"compiler": "nvcc"}
    )
