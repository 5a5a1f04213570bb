"""What is built: projects with a ``[tool.cuda_ext]`` table, written below a directory or copied there."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench._cub_kernels import cub_kernels
from bench._small_kernels import COMMON_HEADER, Source, small_kernels
from cuda_ext.builder import session
from cuda_ext.builder.project import Project

__all__ = ["Unit", "Workload", "copy_tree", "cub", "example", "one", "small", "tiny"]

SIX = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_120")
FOUR = ("sm_80", "sm_90", "sm_120", "compute_120")
TWO = ("sm_80", "sm_90")


@dataclass(frozen=True, slots=True)
class Unit:
    """A CUDA source as somebody without cuda_ext would build it. ``kernels`` is ``None`` if not counted."""

    source: Path  # relative to the project
    architectures: tuple[str, ...]
    std: str
    relocatable: bool
    instantiate: tuple[str, ...]
    kernels: int | None


@dataclass(frozen=True, slots=True)
class Workload:
    """A project at ``root``, the architectures of the modules that come out of it, and its CUDA sources.

    ``share`` is how much of the project ``units`` are.
    """

    key: str
    title: str
    root: Path
    modules: dict[str, tuple[tuple[str, ...], ...]]
    kernels: int | None
    units: tuple[Unit, ...]
    share: float = 1.0

    def sample(self, part: int) -> Workload:
        """With the first of every `part` units only. Generated families of sources come in turns."""
        count = -(-len(self.units) // part)
        return replace(self, units=self.units[:count], share=count / len(self.units))

    @property
    def images(self) -> int:
        """How many (unit x architecture) the project has."""
        return sum(len(architectures) for units in self.modules.values() for architectures in units)


def example(directory: Path, repository: Path) -> Workload:
    """The example project, as it is."""
    root = copy_tree(repository / "example_project", directory)
    return _workload("a", "example_project", root, {})


def small(directory: Path, count: int) -> Workload:
    """A library of `count` small kernels for six architectures."""
    sources = list(small_kernels(count))
    root = _project(directory, "small_kernels", sources, SIX)
    (root / "device" / "common.cuh").write_text(COMMON_HEADER, encoding="utf-8")
    title = f"{count} small sources x {len(SIX)} architectures"
    return _workload("b", title, root, {s.name: s.kernels for s in sources})


def cub(directory: Path, count: int) -> Workload:
    """`count` sources that are heavy with CUB, for four architectures."""
    sources = list(cub_kernels(count))
    root = _project(directory, "cub_kernels", sources, FOUR)
    title = f"{count} CUB-heavy sources x {len(FOUR)} architectures"
    return _workload("c", title, root, {s.name: s.kernels for s in sources})


def one(directory: Path) -> Workload:
    """One small kernel for two architectures."""
    (source,) = small_kernels(1)
    root = _project(directory, "one_kernel", [source], TWO)
    return _workload("one", "one small source x 2 architectures", root, {source.name: source.kernels})


def tiny(directory: Path, count: int) -> Path:
    """A project of `count` sources of three lines, for one architecture: what is not compiling shows."""
    sources = (
        Source(
            f"scale_{i:05}.cu",
            f'extern "C" __global__ void scale_{i:05}(int n, float* x) {{\n'
            f"  if (threadIdx.x < n) x[threadIdx.x] *= {i}.0f;\n}}\n",
            1,
        )
        for i in range(count)
    )
    return _project(directory, "tiny_kernels", sources, ("sm_90",))


def copy_tree(source: Path, target: Path) -> Path:
    """A clone of the project in `source`: without what builds leave there."""
    leftovers = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    return Path(shutil.copytree(source, target, ignore=leftovers))


def _project(root: Path, package: str, sources: Iterable[Source], architectures: Sequence[str]) -> Path:
    (root / "device").mkdir(parents=True)
    for source in sources:
        (root / "device" / source.name).write_text(source.text, encoding="utf-8")
    (root / "src" / package).mkdir(parents=True)
    (root / "src" / package / "__init__.py").touch()
    listed = ", ".join(f'"{a}"' for a in architectures)
    (root / "pyproject.toml").write_text(
        f"""\
[build-system]
requires = ["setuptools>=77", "cuda-ext[cu13]"]
build-backend = "setuptools.build_meta"

[project]
name = "{package.replace("_", "-")}"
version = "0.1.0"

[tool.cuda_ext]
architectures = [{listed}]

[tool.cuda_ext.modules."{package}.kernels"]
""",
        encoding="utf-8",
    )
    return root


def _workload(key: str, title: str, root: Path, kernels: dict[str, int]) -> Workload:
    """The workload of the project in `root`, as cuda_ext plans it."""
    project = Project.load(root)
    assert project is not None
    modules: dict[str, tuple[tuple[str, ...], ...]] = {}
    units: list[Unit] = []
    for module in session.plan(project):
        targets = [tuple(map(str, planned.architectures)) for planned in module.units]
        # A linked module is one library.
        modules[module.name] = tuple(targets[:1] if module.link else targets)
        units += (
            Unit(
                Path(planned.unit.name),
                architectures,
                planned.unit.options.std,
                planned.unit.options.relocatable,
                planned.unit.instantiate,
                kernels.get(Path(planned.unit.name).name),
            )
            for planned, architectures in zip(module.units, targets, strict=True)
            if planned.unit.kind == "cu"
        )
    # As generated, with the families in turns, and not by name.
    order = {name: index for index, name in enumerate(kernels)}
    units.sort(key=lambda unit: order.get(unit.source.name, 0))
    return Workload(key, title, root, modules, sum(kernels.values()) or None, tuple(units))
