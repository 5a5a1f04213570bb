"""Little projects for tests of the build: written, loaded and built with the real compiler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cuda_ext.build.generate import Package
from cuda_ext.build.project import Project
from cuda_ext.errors import BuildError

FILL = 'extern "C" __global__ void fill(float* x, float value) { x[threadIdx.x] = value; }\n'
SCALE = "template <class T> __global__ void scale(T* x, T by) { x[threadIdx.x] *= by; }\n"

# One small image, so that tests are quick.
SM_90 = '[tool.cuda_ext]\narchitectures = ["sm_90"]\n'
KERNELS = f'{SM_90}[tool.cuda_ext.modules."p.kernels"]\n'


def write_project(root: Path, table: str = KERNELS, files: Mapping[str, str | bytes] | None = None) -> Path:
    """Make a project in `root` with that pyproject.toml and those files; one kernel where none are given."""
    for name, content in {"pyproject.toml": table, **(files or {"device/fill.cu": FILL})}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def load(root: Path) -> Project:
    project = Project.load(root)
    assert project is not None
    return project


def build(root: Path, log: list[str] | None = None) -> dict[str, Package]:
    """The packages that the project in `root` makes, by name; what is reported goes into `log`."""
    report = log.append if log is not None else lambda _: None
    return {package.name: package for package in load(root).build(report)}


def refusal(root: Path) -> str:
    """The message with which loading or building the project in `root` ends."""
    with pytest.raises(BuildError) as caught:
        build(root)
    return str(caught.value)
