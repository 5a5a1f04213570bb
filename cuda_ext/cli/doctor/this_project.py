"""Checks of the project in the current directory: a build can begin, and wheels have the kernels."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from cuda_ext.builder.project import Project
from cuda_ext.builder.requirement import find_flaw
from cuda_ext.builder.session import plan
from cuda_ext.cli.doctor.findings import Finding
from cuda_ext.errors import ConfigError
from cuda_ext.formats.quantities import format_count

# How a backend is told to build the kernels: the files, a pattern in one of them, and what to write.
_CALLS = {
    "hatchling": (
        ("pyproject.toml", "hatch.toml"),
        r"hooks[\]\s.\"']+cuda-ext",
        "add the table [tool.hatch.build.hooks.cuda-ext]",
    ),
    "scikit_build_core": (
        ("CMakeLists.txt", "*.cmake"),
        "cuda_ext_add_module",
        "call cuda_ext_add_module in CMakeLists.txt, as cuda-ext init does",
    ),
    "mesonpy": (
        ("meson.build",),
        r"cuda_ext\W+build",
        "call cuda_ext build in meson.build, as cuda-ext init does",
    ),
}


def check_project() -> Iterator[Finding]:
    """Plan a build, which compiles nothing, and check the project's requirements.

    Raises :class:`~cuda_ext.errors.BuildError`.
    """
    project = Project.load(Path())
    if project is None:
        return
    yield from check_backend(project.root)
    if flaw := find_flaw(project.requirements):
        yield Finding("warning", str(flaw.where), flaw.problem, flaw.remedy)
    for module in project.modules if project.requirements is not None else ():
        try:
            project.source_directory(module.name)
        except ConfigError as error:  # the build tool may know another directory
            yield Finding("warning", error.where, error.problem, error.remedy)
    # Without a cache, nothing is written.
    for planned in plan(project, {**os.environ, "CUDA_EXT_CACHE_SIZE": "0"}):
        units = format_count(len(planned.libraries), "unit")
        yield Finding("ok", planned.name, f"a build can begin, and compiles {units}")


def check_backend(root: Path) -> Iterator[Finding]:
    """Check that the build backend of the project in `root` builds the kernels, which none says."""
    with suppress(OSError, ValueError):
        document = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        system = document.get("build-system", {})
        names_backend = isinstance(system, dict) and "build-backend" in system
        is_package = names_backend or "project" in document or (root / "setup.py").is_file()
        if is_package and isinstance(system, dict) and "backend-path" not in system:
            backend = re.split(r"[.:]", str(system.get("build-backend", "setuptools")))[0]
            yield from _check_call(root, backend)
            requires = system.get("requires")
            names = map(str, requires if isinstance(requires, list) else ())
            if not any(re.match(r"\s*cuda[-_.]ext\s*([^-_.\w]|$)", name, re.IGNORECASE) for name in names):
                text = "lacks cuda-ext, so that wheels lack the kernels"
                yield Finding("problem", "[build-system] requires", text, 'add "cuda-ext[cu13]"')


def _check_call(root: Path, backend: str) -> Iterator[Finding]:
    if backend in _CALLS:
        names, call, remedy = _CALLS[backend]
        files = chain.from_iterable((*root.glob(name), *root.glob(f"*/{name}")) for name in names)
        if not any(re.search(call, file.read_text(encoding="utf-8", errors="replace")) for file in files):
            text = f"{backend} does not build the kernels: wheels lack them"
            yield Finding("problem", "[build-system]", text, remedy)
    elif backend != "setuptools":
        text = f"{backend} builds no kernels: wheels have those that cuda-ext build put there"
        remedy = "to have them built, use setuptools, hatchling, scikit-build-core or meson-python"
        yield Finding("warning", "[build-system]", text, remedy)
