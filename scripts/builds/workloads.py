"""Write or copy the projects to build, each with a ``[tool.cuda_ext]`` table."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from builds.cub_kernels import block_sums, cub_kernels
from builds.small_kernels import COMMON_HEADER, Source, small_kernels
from cuda_ext.builder import session
from cuda_ext.builder.project import Project

SIX = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_120")
FOUR = ("sm_80", "sm_90", "sm_120", "compute_120")
TWO = ("sm_80", "sm_90")


@dataclass(frozen=True, slots=True)
class Unit:
    """A CUDA source as other tools build it. ``kernels`` is ``None`` if the number is unknown."""

    source: Path  # relative to the project
    architectures: tuple[str, ...]
    std: str
    relocatable: bool
    instantiate: tuple[str, ...]
    kernels: int | None


@dataclass(frozen=True, slots=True)
class Workload:
    """A project at ``root``, the architectures of each library of its modules, and its CUDA sources.

    ``share`` is the fraction of the project's sources that ``units`` has.
    """

    key: str
    title: str
    root: Path
    modules: dict[str, tuple[tuple[str, ...], ...]]
    kernels: int | None
    units: tuple[Unit, ...]
    share: float = 1.0

    def sample(self, part: int) -> Workload:
        """Return one in `part` of the units. Generated families take turns, so all are included."""
        count = -(-len(self.units) // part)
        return replace(self, units=self.units[:count], share=count / len(self.units))

    @property
    def images(self) -> int:
        """The number of images: the sum of the architectures of all libraries."""
        return sum(len(architectures) for units in self.modules.values() for architectures in units)


def copy_example(directory: Path, repository: Path) -> Workload:
    """Copy the example project."""
    root = copy_tree(repository / "example_project", directory)
    return _plan_workload("a", "example_project", root, {})


def write_small(directory: Path, count: int) -> Workload:
    """Write a library of `count` small kernels for six architectures."""
    sources = list(small_kernels(count))
    root = _write_project(directory, "small_kernels", sources, SIX)
    (root / "device" / "common.cuh").write_text(COMMON_HEADER, encoding="utf-8")
    title = f"{count} small sources x {len(SIX)} architectures"
    return _plan_workload("b", title, root, {s.name: s.kernels for s in sources})


def write_cub(directory: Path, count: int, common: bool = False) -> Workload:
    """Write `count` sources that include CUB, by `common` headers or their own, for four architectures."""
    sources = list(cub_kernels(count, common))
    root = _write_project(directory, "cub_kernels", sources, FOUR)
    title = f"{count} CUB sources x {len(FOUR)} architectures{', common includes' * common}"
    return _plan_workload("d" if common else "c", title, root, {s.name: s.kernels for s in sources})


def write_block_sums(directory: Path, count: int, apart: bool) -> Workload:
    """Write `count` sources that begin with the same headers of CUB, for two architectures.

    With `apart`, a header of the project comes first, so that these are not precompiled.
    """
    sources = list(block_sums(count, '#include "own.cuh"\n' if apart else ""))
    root = _write_project(directory, "block_sums", sources, TWO)
    (root / "device" / "own.cuh").write_text("#pragma once\n", encoding="utf-8")
    title = f"{count} sources that begin with the same headers of CUB x {len(TWO)} architectures"
    return _plan_workload("e", title, root, {s.name: s.kernels for s in sources})


def write_one(directory: Path) -> Workload:
    """Write one small kernel for two architectures."""
    (source,) = small_kernels(1)
    root = _write_project(directory, "one_kernel", [source], TWO)
    return _plan_workload("one", "one small source x 2 architectures", root, {source.name: source.kernels})


def write_tiny(directory: Path, count: int) -> Path:
    """Write `count` sources of three lines for one architecture, which take little time to compile."""
    sources = (
        Source(
            f"scale_{i:05}.cu",
            f'extern "C" __global__ void scale_{i:05}(int n, float* x) {{\n'
            f"  if (threadIdx.x < n) x[threadIdx.x] *= {i}.0f;\n}}\n",
            1,
        )
        for i in range(count)
    )
    return _write_project(directory, "tiny_kernels", sources, ("sm_90",))


def copy_tree(source: Path, target: Path) -> Path:
    """Copy the project in `source` without the outputs of earlier builds."""
    leftovers = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    return Path(shutil.copytree(source, target, ignore=leftovers))


def _write_project(root: Path, package: str, sources: Iterable[Source], architectures: Sequence[str]) -> Path:
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


def _plan_workload(key: str, title: str, root: Path, kernels: dict[str, int]) -> Workload:
    """Return the workload of the project in `root`, as cuda_ext plans it."""
    project = Project.load(root)
    assert project is not None
    modules: dict[str, tuple[tuple[str, ...], ...]] = {}
    units: list[Unit] = []
    for module in session.plan(project):
        targets = [tuple(map(str, library.architectures)) for library in module.libraries]
        modules[module.name] = tuple(targets)
        units += (
            Unit(
                Path(unit.name),
                architectures,
                unit.options.std,
                unit.options.relocatable,
                unit.instantiate,
                kernels.get(Path(unit.name).name),
            )
            for library, architectures in zip(module.libraries, targets, strict=True)
            for unit in library.units
            if unit.kind == "cu"
        )
    # In the order of generation, in which the families take turns.
    order = {name: index for index, name in enumerate(kernels)}
    units.sort(key=lambda unit: order.get(unit.source.name, 0))
    return Workload(key, title, root, modules, sum(kernels.values()) or None, tuple(units))
