"""Compare Triton kernels of a package with Triton: launches, first launches, run times, and builds.

The parts ``launch``, ``first`` and ``run`` need a GPU, PyTorch and Triton, and the package that is built from
``examples/front_ends``: here, or elsewhere with ``--package DIR --only write`` and carried in DIR. The parts
``build`` and ``unchanged`` need ``cuda-ext[cu13,triton]`` and no GPU. All contenders of a part take turns.
Prints medians with the 10th and 90th percentile, ratios, and the bounds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from _environment import ROOT
from bench.machine import describe_machine
from bench.tables import format_pairs, format_table
from launching.machine import describe_gpu_machine
from launching.repeated_launches import measure_groups
from launching.results import format_figures
from triton_bounds import builds, first_launches, launches, run_times

from cuda_ext.builder.project import Project
from cuda_ext.builder.session import build_project
from cuda_ext.errors import CudaExtError

PARTS = ("launch", "first", "run", "build", "unchanged")
ON_GPU = ("launch", "first", "run")
LAUNCH_BOUND, FIRST_BOUND, RUN_BOUND, BUILD_BOUND, UNCHANGED_BOUND = 1.35, 0.25, 1.01, 1.2, 1.05


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default=",".join(PARTS), help=f"parts of {','.join(PARTS)}; or write, the package alone"
    )
    parser.add_argument(
        "--package", type=Path, metavar="DIR", help="where the package is; built there if not"
    )
    parser.add_argument("--rounds", type=int, default=40, help="rounds of launches and run times; 40")
    parser.add_argument("--starts", type=int, default=7, help="new processes of each, and builds; 7")
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    with tempfile.TemporaryDirectory(prefix="bench_triton-") as name:
        work = Path(name)
        package = arguments.package or work / "package"
        if {*parts} & {*ON_GPU, "write"}:
            _write_package(package)
        if parts == ["write"]:
            return 0
        machine = _describe(bool({*parts} & {*ON_GPU}))
        print(format_pairs(machine), flush=True)
        results = _measure(parts, package, work, arguments.rounds, arguments.starts)
    for title, samples in results.items():
        print(_format_samples(title, samples))
    print(format_figures(_figures(results)))
    if arguments.json:
        text = json.dumps({"machine": machine, **results}, indent=2)
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return 0


def _write_package(package: Path) -> None:
    """Build ``examples/front_ends`` into `package`, unless it is there."""
    if (package / "front_ends").is_dir():
        return
    project = Project.load(ROOT / "examples" / "front_ends")
    assert project is not None
    for built in build_project(project):
        built.write(package.joinpath(*built.name.split(".")))


def _describe(on_gpu: bool) -> dict[str, str]:
    try:
        machine = describe_gpu_machine() if on_gpu else describe_machine(None)
    except CudaExtError as error:
        sys.exit(f"{Path(__file__).name}: {error}")
    return machine | {"triton": metadata.version("triton")}


def _measure(parts: list[str], package: Path, work: Path, rounds: int, starts: int) -> dict[str, Any]:
    """The samples of each part by contender."""
    results: dict[str, Any] = {}
    if "launch" in parts:
        kernels = launches.import_kernels(package)
        measured = measure_groups(launches.GROUPS, kernels, work, rounds, 200)
        for group, error in measured.left_out.items():
            print(f"left out: {group}: {error}")
        results["One launch, microseconds"] = measured.samples
    if "first" in parts:
        try:
            samples = first_launches.measure(package, work, starts)
            results["First launch in a new process, milliseconds"] = samples
        except RuntimeError as error:
            print(f"left out: first launches: {error}")
    if "run" in parts:
        for name, samples in run_times.measure(launches.import_kernels(package), rounds).items():
            results[f"{name}, microseconds"] = samples
    if "build" in parts:
        results[f"{builds.IMAGES} images, seconds"] = builds.measure_build(work, starts)
    if "unchanged" in parts:
        results["Nothing changed, seconds; no front-end was imported"] = builds.measure_no_change(
            work, starts
        )
    return results


def _format_samples(title: str, samples: dict[str, list[float]]) -> str:
    first = median(next(iter(samples.values())))
    rows = [
        (
            name,
            f"{median(taken):.3f}",
            "{0:.3f} .. {8:.3f}".format(*quantiles(taken, n=10, method="inclusive")),
            f"{median(taken) / first:.2f}",
        )
        for name, taken in samples.items()
    ]
    return f"\n{title}\n" + format_table(("", "median", "10 % .. 90 %", "/ first"), rows)


def _figures(results: dict[str, Any]) -> list[tuple[str, str, float, float | None]]:
    """Each bound with its figure: the ratio of two medians."""
    figures: list[tuple[str, str, float, float | None]] = []

    def add(title: str, limit: float, samples: dict[str, list[float]], one: str, other: str) -> None:
        if one in samples and other in samples:
            figures.append((title, "<=", limit, median(samples[one]) / median(samples[other])))

    for title, samples in results.items():
        for name in samples:
            if name.startswith("cuda_ext, "):
                add(f"{name} / C", LAUNCH_BOUND, samples, name, "C")
        add("first launch / Triton with a warm cache", FIRST_BOUND, samples, "cuda_ext", "Triton, warm cache")
        add(f"{title.rpartition(',')[0]} / Triton", RUN_BOUND, samples, "cuda_ext", "Triton")
        names = [name for name in samples if name.startswith("triton.compile")]
        for kind, name in zip(("wall", "CPU"), names, strict=False):
            title = f"build of {builds.IMAGES} images / triton.compile alone, {kind}"
            add(title, BUILD_BOUND, samples, f"cuda-ext build, {kind}", name)
        title = "no changes, Triton / CUDA C++"
        add(title, UNCHANGED_BOUND, samples, "no changes, Triton", "no changes, CUDA C++")
    return figures


if __name__ == "__main__":
    raise SystemExit(main())
