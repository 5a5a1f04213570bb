"""Compare builds with cuda_ext, nvcc, CMake and PyTorch: ``python scripts/bench_build.py``.

Needs ``cuda-ext[nvcc-cu13]``, a host compiler, and the packages lz4 and zstandard, to decompress nvcc's
fatbins; the contenders of these names need cmake, ninja, setuptools, distributed and torch. Takes hours, or
minutes with ``--quick``, whose figures have no meaning. Prints at the end which bounds hold.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from _environment import ROOT
from bench.machine import describe_machine
from bench.processes import CORES
from builds.bounds import APART, TOGETHER, Measured
from builds.cuda_ext_builds import Bench, build_cold, build_wheel, build_with_cuda_ext, build_with_dask
from builds.measuring import Contender, Result, measure
from builds.other_builds import INVOCATIONS, build_torch_extension, build_with_cmake, build_with_nvcc
from builds.results import as_json, as_text
from builds.scale import measure_memory, measure_planning
from builds.workloads import Workload, copy_example, write_block_sums, write_cub, write_small

from cuda_ext.errors import ToolchainError
from cuda_ext.toolchain.compilers import find_nvcc
from cuda_ext.toolchain.nvcc import Nvcc

PARTS = {
    "a": "example_project",
    "b": "a library of small kernels",
    "c": "sources that include CUB",
    "d": "the same sources with common leading includes",
    "e": "sources that begin with the same headers, precompiled and not",
    "plan": "planning, by number of units",
    "dask": "(c) with one and two Dask workers",
    "torch": "a PyTorch extension",
    "scale": "memory of a build of very many units; slow, so not part of the default",
}


@dataclass(frozen=True, slots=True)
class Size:
    """The numbers of sources to build."""

    small: int
    cub: int
    planned: tuple[int, ...]
    scale: int


FULL = Size(small=200, cub=10, planned=(200, 2_000, 20_000), scale=20_000)
QUICK = Size(small=20, cub=2, planned=(20, 200, 2_000), scale=200)


def main() -> int:
    arguments = _parse_arguments()
    size = QUICK if arguments.quick else FULL
    rounds = arguments.repeat or (1 if arguments.quick else 3)
    nvcc = _find_nvcc()
    machine = describe_machine(nvcc)
    # Exit instead of dying, so that child processes are killed and temporary files removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="bench_build-", dir=arguments.work) as name:
        bench = Bench.create(Path(name))
        notes = list(_describe_conditions(arguments, bench, rounds))
        measured = _measure(arguments.only, size, rounds, arguments.sample, bench, nvcc)
    print(f"\n{as_text(machine, notes, measured)}")
    if arguments.json:
        text = json.dumps(as_json(machine, notes, measured), indent=2)
        arguments.json.write_text(f"{text}\n", encoding="utf-8")
    return 0


def _measure(
    parts: list[str], size: Size, rounds: int, sample: int, bench: Bench, nvcc: Nvcc | None
) -> Measured:
    """Measure the selected parts, one after the other."""
    work = bench.directory
    prepare: dict[str, Callable[[], Workload]] = {
        "a": lambda: copy_example(work / "a", ROOT),
        "b": lambda: write_small(work / "b", size.small),
        "c": lambda: write_cub(work / "c", size.cub),
        "d": lambda: write_cub(work / "d", size.cub, common=True),
    }
    results: dict[str, Result] = {}
    for key in filter(parts.__contains__, prepare):
        workload = prepare[key]()
        contenders = list(_contenders(workload, sample, bench, nvcc, torch="torch" in parts))
        results[key] = measure(workload, contenders, rounds, _report)
    if "e" in parts:
        together, apart = (write_block_sums(work / f"e{n}", 8, apart=bool(n)) for n in range(2))
        contenders = [
            build_cold(project, bench, labels[jobs], jobs)
            for jobs in TOGETHER
            for project, labels in ((together, TOGETHER), (apart, APART))
        ]
        results["e"] = measure(together, contenders, rounds, _report)
    if "dask" in parts:
        workload = write_cub(work / "dask", size.cub)
        contenders = [build_with_dask(workload, bench, workers) for workers in (1, 2)]
        results["dask"] = measure(workload, contenders, rounds, _report)
    planning = measure_planning(bench, size.planned, max(rounds, 3)) if "plan" in parts else None
    memory = tuple(measure_memory(bench, size.scale)) if "scale" in parts else ()
    return Measured(results, planning, memory)


def _contenders(
    workload: Workload, sample: int, bench: Bench, nvcc: Nvcc | None, *, torch: bool
) -> Iterator[Contender]:
    yield build_with_cuda_ext(workload, bench)
    if workload.key == "a":
        yield build_wheel(workload, bench)
        if torch:
            yield build_torch_extension(bench.directory)
    if nvcc:
        part = workload.sample(sample) if workload.key == "b" else workload
        for invocation in INVOCATIONS:
            yield build_with_nvcc(part, invocation, nvcc.executable, bench.directory)
        yield build_with_cmake(part, nvcc.executable, bench.directory)


def _describe_conditions(arguments: argparse.Namespace, bench: Bench, rounds: int) -> Iterator[str]:
    yield (
        f"Medians of the wall time of {rounds} rounds; all contenders take turns in each. cuda_ext runs with "
        f"MAX_JOBS={CORES} in new processes; its caches hold NVRTC's headers, and unpacking these takes "
        f"{bench.unpacking:.2f} s once per machine."
    )
    yield (
        "In (a), nvcc and CMake leave out the PTX source and do not device-link the linked module, so they "
        "do less than cuda_ext."
    )
    if arguments.sample > 1:
        yield (
            f"In (b), nvcc and CMake build one in {arguments.sample} sources; their times are scaled to all "
            "sources."
        )
    if arguments.quick:
        yield "This was a quick run with few sources, to which the bounds do not apply."


def _find_nvcc() -> Nvcc | None:
    try:
        return find_nvcc(None, os.environ)
    except ToolchainError as error:
        print(f"nvcc is left out: {error}", file=sys.stderr)
        return None


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compare builds with cuda_ext, nvcc, CMake and PyTorch.",
        epilog="parts: " + "; ".join(f"{key}: {title}" for key, title in PARTS.items()),
    )
    parser.add_argument("--quick", action="store_true", help="build few sources, once, to test the script")
    parser.add_argument(
        "--only",
        type=_parse_parts,
        default=[key for key in PARTS if key != "scale"],
        help="such as a,c",
    )
    parser.add_argument("--repeat", type=int, default=0, help="rounds; 3 unless --quick")
    parser.add_argument(
        "--sample",
        type=int,
        default=1,
        help="let nvcc build one in N sources of (b), and scale its time",
    )
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    parser.add_argument("--work", type=Path, help="put temporary files into this directory")
    return parser.parse_args()


def _parse_parts(text: str) -> list[str]:
    parts = text.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    return parts


if __name__ == "__main__":
    sys.exit(main())
