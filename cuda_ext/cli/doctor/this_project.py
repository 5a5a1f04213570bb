"""The project in the current directory, as doctor examines it: its compilers, its build and its tree."""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from cuda_ext.builder.package.in_place import stale_packages
from cuda_ext.builder.project import Project
from cuda_ext.builder.requirement import find_flaw
from cuda_ext.builder.sources.plan import compiler_choice
from cuda_ext.cli.doctor.build_system import BuildSystem
from cuda_ext.cli.doctor.findings import Finding
from cuda_ext.cli.doctor.tool_chain import first_line
from cuda_ext.errors import ToolchainError
from cuda_ext.toolchain.compilers import CompilerChoice, open_compiler
from cuda_ext.toolchain.nvcc import Nvcc

_OLDEST_CMAKE = (3, 24)  # that CudaExt.cmake works with


def examine_project() -> Iterator[Finding]:
    """Report the tools of a build in the current directory, and problems of the project there.

    Raises :class:`~cuda_ext.errors.ConfigError`.
    """
    build_system = BuildSystem.read(Path())
    yield from map(_examine_program, build_system.programs)
    project = Project.load(Path())
    if project is None:
        return
    for choice, names in compiler_choices(project).items():
        yield _examine_choice(choice, ", ".join(names))
    for flaw in build_system.flaws(project.source_files() if build_system.backend else ()):
        yield Finding(flaw.level, flaw.subject, flaw.text, flaw.remedy)
    if unmet := find_flaw(project.requirements):
        yield Finding("warning", str(unmet.where), unmet.problem, unmet.remedy)
    for place in stale_packages(project, project.source_directories()):
        name = os.path.relpath(place, project.root)
        text = "was built in place, and is no module of the project any more"
        yield Finding("warning", name, text, "the next build in place removes it", "cuda-ext build")


def _examine_program(program: str) -> Finding:
    """Examine a program that builds the kernels. If it is missing, isolated builds install it."""
    found = shutil.which(program)
    if found is None:
        text = "not on PATH"
        return Finding("note", program, text, "nothing to do where isolated builds of a package install it")
    version = first_line(Path(found)).removeprefix("cmake version ")
    number = re.search(r"(\d+)\.(\d+)", version)
    if program == "cmake" and number and tuple(map(int, number.groups())) < _OLDEST_CMAKE:
        text = f"{version}, {found}: CudaExt needs 3.24"
        return Finding(
            "warning", program, text, "where builds use it, upgrade it", "pip install --upgrade cmake"
        )
    return Finding("ok", program, f"{version}, {found}", facts={"path": found})


def compiler_choices(project: Project) -> dict[CompilerChoice, list[str]]:
    """Return the compilers of a build of `project`, each with the names of the modules that it compiles."""
    choices: dict[CompilerChoice, list[str]] = defaultdict(list)
    for module in project.modules:
        choices[compiler_choice(module.settings, project.root)].append(module.name)
    return choices


def _examine_choice(choice: CompilerChoice, names: str) -> Finding:
    """Check that the modules of these names can be compiled."""
    if choice.launcher and shutil.which(choice.launcher) is None:
        text = f"launcher: {choice.launcher!r} is not on PATH"
        return Finding("problem", names, text, "install it, or remove the key")
    try:
        compiler = open_compiler(choice, os.environ)
        version = compiler.version
    except ToolchainError as error:
        install = 'pip install "cuda-ext[cu13]"' if choice.name == "nvrtc" else ""
        return Finding("problem", names, error.statement, error.remedy, install)
    text = f"a build uses NVRTC {version}"
    if isinstance(compiler, Nvcc):
        through = f" through {choice.launcher}" if choice.launcher else ""
        text = f"a build uses nvcc {version}{through}, {compiler.executable}"
    return Finding("ok", names, text, facts={"compiler": choice.name})
