"""Builds with cuda_ext and without it, side by side: ``python scripts/bench_build.py``.

Needs ``cuda-ext[nvcc-cu13]``, a host compiler, and the packages lz4 and zstandard, to look into what nvcc
compressed; for the contenders of these names cmake, ninja, setuptools, distributed and torch. Takes hours as
it is, and minutes with ``--quick``, whose figures tell nothing. Ends with the bounds to be kept.
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
from bench._bounds import Measured
from bench._dask import dask
from bench._machine import describe_machine
from bench._measuring import Contender, Result, compete
from bench._others import ARRANGEMENTS, by_hand, cmake_and_ninja, torch_extension
from bench._ours import Bench, ours, pip_wheel
from bench._printing import as_json, as_text
from bench._processes import CORES
from bench._scale import driver_memory, planning
from bench._workloads import Workload, cub, example, small

from cuda_ext.errors import ToolchainError
from cuda_ext.toolchain.compilers import find_nvcc
from cuda_ext.toolchain.nvcc import Nvcc

PARTS = {
    "a": "example_project",
    "b": "a library of small kernels",
    "c": "CUB-heavy sources",
    "plan": "planning, by number of units",
    "dask": "(c) with one and two Dask workers",
    "torch": "a PyTorch extension",
    "scale": "memory of a build of very many units; takes long, so only when asked for",
}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is built."""

    small: int
    cub: int
    planned: tuple[int, ...]
    scale: int


FULL = Size(small=200, cub=10, planned=(200, 2_000, 20_000), scale=20_000)
QUICK = Size(small=20, cub=2, planned=(20, 200, 2_000), scale=200)


def main() -> int:
    arguments = _parse()
    size = QUICK if arguments.quick else FULL
    rounds = arguments.repeat or (1 if arguments.quick else 3)
    nvcc = _nvcc()
    machine = describe_machine(nvcc)
    # So that what was started is ended and what was written is removed then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="bench_build-", dir=arguments.work) as name:
        bench = Bench.make(Path(name))
        notes = list(_notes(arguments, bench, rounds))
        measured = _measure(arguments.only, size, rounds, arguments.sample, bench, nvcc)
    print(f"\n{as_text(machine, notes, measured)}")
    if arguments.json:
        text = json.dumps(as_json(machine, notes, measured), indent=2)
        arguments.json.write_text(f"{text}\n", encoding="utf-8")
    return 0


def _measure(
    parts: list[str], size: Size, rounds: int, sample: int, bench: Bench, nvcc: Nvcc | None
) -> Measured:
    """Everything that is asked for, one after the other."""
    place = bench.directory
    make: dict[str, Callable[[], Workload]] = {
        "a": lambda: example(place / "a", ROOT),
        "b": lambda: small(place / "b", size.small),
        "c": lambda: cub(place / "c", size.cub),
    }
    results: dict[str, Result] = {}
    for key in filter(parts.__contains__, make):
        workload = make[key]()
        contenders = list(_contenders(workload, sample, bench, nvcc, torch="torch" in parts))
        results[key] = compete(workload, contenders, rounds, _tell)
    if "dask" in parts:
        workload = cub(place / "dask", size.cub)
        contenders = [dask(workload, bench, workers) for workers in (1, 2)]
        results["dask"] = compete(workload, contenders, rounds, _tell)
    planned = planning(bench, size.planned, max(rounds, 3)) if "plan" in parts else None
    memory = tuple(driver_memory(bench, size.scale)) if "scale" in parts else ()
    return Measured(results, planned, memory)


def _contenders(
    workload: Workload, sample: int, bench: Bench, nvcc: Nvcc | None, *, torch: bool
) -> Iterator[Contender]:
    yield ours(workload, bench)
    if workload.key == "a":
        yield pip_wheel(workload, bench)
        if torch:
            yield torch_extension(bench.directory)
    if nvcc:
        part = workload.sample(sample) if workload.key == "b" else workload
        for arrangement in ARRANGEMENTS:
            yield by_hand(part, arrangement, nvcc.executable, bench.directory)
        yield cmake_and_ninja(part, nvcc.executable, bench.directory)


def _notes(arguments: argparse.Namespace, bench: Bench, rounds: int) -> Iterator[str]:
    yield (
        f"Rounds: {rounds}, in each of which all contenders take their turn; medians of wall time. Ours runs "
        f"with MAX_JOBS={CORES} in fresh processes; its caches hold NVRTC's headers beforehand, which takes "
        f"{bench.unpacking:.2f} s once per machine."
    )
    yield (
        "In (a), nvcc and CMake leave out the source that is PTX already and do not device-link the linked "
        "module, so they do a little less than ours."
    )
    if arguments.sample > 1:
        yield (
            f"In (b), nvcc and CMake build one source in {arguments.sample}; their times are multiplied "
            "accordingly."
        )
    if arguments.quick:
        yield "A quick run: much less is built, and the bounds do not apply to its figures."


def _nvcc() -> Nvcc | None:
    try:
        return find_nvcc(None, os.environ)
    except ToolchainError as error:
        print(f"without nvcc: {error}", file=sys.stderr)
        return None


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compare builds with cuda_ext and without it.",
        epilog="parts: " + "; ".join(f"{key}: {what}" for key, what in PARTS.items()),
    )
    parser.add_argument("--quick", action="store_true", help="build little, once: to try the script itself")
    parser.add_argument(
        "--only", type=_parts, default=[key for key in PARTS if key != "scale"], help="parts, such as a,c"
    )
    parser.add_argument("--repeat", type=int, default=0, help="rounds; 3 unless --quick")
    parser.add_argument(
        "--sample",
        type=int,
        default=1,
        help="let nvcc build one in so many sources of (b), and scale its time",
    )
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    parser.add_argument("--work", type=Path, help="work below this directory")
    return parser.parse_args()


def _parts(text: str) -> list[str]:
    parts = text.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return parts


if __name__ == "__main__":
    sys.exit(main())
