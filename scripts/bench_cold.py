"""Measure how fast a build starts: ``python scripts/bench_cold.py [--checkout DIR]...``.

Compiles one small kernel for two architectures with ``python -m cuda_ext build`` of each checkout, with
``nvcc -t2`` and with NVRTC alone, which take turns in each round. Needs ``cuda-ext[nvcc-cu13]`` and a host
compiler for nvcc. All checkouts run in this interpreter; a round that is not counted compiles their bytecode.
On a shared machine, compare the CPU times.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from _environment import ROOT
from bench.machine import describe_machine
from bench.processes import CORES, benchmark_environment, run, temporary_directory
from bench.tables import format_pairs, format_table
from builds.checks import check_fatbins
from builds.measuring import Contender, Result, Sample, measure
from builds.other_builds import REFERENCE, build_with_nvcc
from builds.results import format_result, samples_as_json
from builds.workloads import Workload, copy_tree, write_one, write_tiny

from cuda_ext.toolchain.compilers import find_nvcc

COLD = "empty cache"
NEW_KERNEL = "new kernel"  # with the cache of another project's build
NO_CHANGES = "no changes"
# Relative to nvcc's time, and in seconds.
LIMITS = {COLD: ("x", 0.7), NO_CHANGES: ("s", 0.15)}
_BARE_NVRTC = Path(__file__).with_name("builds") / "bare_nvrtc.py"
_PRINT_PATH = "import cuda_ext; print(cuda_ext.__file__)"


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout of this repository: the name of its rows, and the environment of its processes."""

    name: str
    environment: dict[str, str]

    def run(self, *arguments: object, cache: Path, directory: Path) -> float:
        """Run the interpreter with `arguments`; return the wall time in seconds."""
        environment = self.environment | {"CUDA_EXT_CACHE": str(cache)}
        return run([sys.executable, *arguments], directory=directory, environment=environment).seconds


def main() -> int:
    arguments = _parse_arguments()
    checkouts = [path.resolve() for path in arguments.checkout or [ROOT]]
    nvcc = find_nvcc(None, os.environ)
    machine = describe_machine(nvcc)
    with tempfile.TemporaryDirectory(prefix="bench_cold-", dir=arguments.work) as name:
        work = Path(name)
        workload = write_one(work / "project")
        contenders = [_build_with_cuda_ext(workload, each, work) for each in _prepare(checkouts, work)]
        contenders += [
            build_with_nvcc(workload, REFERENCE, nvcc.executable, work),
            _compile_with_nvrtc(workload, work),
            _start_interpreter(work),
        ]
        contenders = list(map(_measure_cpu, contenders))
        measure(workload, contenders, 1, lambda _: None)
        result = measure(workload, contenders, arguments.rounds, _report)
    verdicts = format_table(("", "bound", "measured", ""), _check_limits(result))
    print(f"\n{format_pairs(machine)}\n\nMedians of the wall time of {arguments.rounds} rounds.")
    print(f"\n{format_result(result)}\n\nBounds\n{verdicts}")
    if arguments.json:
        content = {"machine": machine, **samples_as_json(result)}
        arguments.json.write_text(f"{json.dumps(content, indent=2)}\n", encoding="utf-8")
    return 1 if result.left_out else 0


def _prepare(paths: list[Path], work: Path) -> Iterator[Checkout]:
    """Check that each checkout is imported, and fill its cache with the build of another project."""
    other = write_tiny(work / "other", 1)
    for path in paths:
        alone = [p.name for p in paths].count(path.name) == 1
        checkout = Checkout(
            path.name if alone else str(path),
            benchmark_environment(PYTHONPATH=path, PYTHONPYCACHEPREFIX=work / "bytecode", MAX_JOBS=CORES),
        )
        command = [sys.executable, "-c", _PRINT_PATH]
        imported = run(command, directory=work, environment=checkout.environment).output.strip()
        if Path(imported).resolve() != path / "cuda_ext" / "__init__.py":
            sys.exit(f"{path}: Python imports {imported} instead")
        _build(checkout, other, work / "other-output", _prepared_cache(checkout, work))
        yield checkout


def _prepared_cache(checkout: Checkout, work: Path) -> Path:
    return work / f"cache-{checkout.name.replace(os.sep, '-')}"


def _build(checkout: Checkout, root: Path, output: Path, cache: Path) -> float:
    return checkout.run("-m", "cuda_ext", "build", "--output", output, cache=cache, directory=root)


def _build_with_cuda_ext(workload: Workload, checkout: Checkout, work: Path) -> Contender:
    """Build with an empty cache, again without changes, and with the cache of another project."""

    def take_turn() -> Iterator[Sample]:
        with temporary_directory(work) as directory:
            root, output = copy_tree(workload.root, directory / "project"), directory / "output"
            package = output.joinpath(*next(iter(workload.modules)).split("."))
            for label in (COLD, NO_CHANGES):
                seconds = _build(checkout, root, output, directory / "cache")
                check_fatbins(workload.units, package)
                yield Sample(f"{checkout.name}: {label}", seconds)
            cache = Path(shutil.copytree(_prepared_cache(checkout, work), directory / "prepared-cache"))
            shutil.rmtree(output)
            yield Sample(f"{checkout.name}: {NEW_KERNEL}", _build(checkout, root, output, cache))
            check_fatbins(workload.units, package)
            arguments = ("-m", "cuda_ext", "build", "--help")
            seconds = checkout.run(*arguments, cache=cache, directory=directory)
            yield Sample(f"{checkout.name}: build --help", seconds)

    return Contender(checkout.name, take_turn)


def _compile_with_nvrtc(workload: Workload, work: Path) -> Contender:
    (unit,) = workload.units
    environment = benchmark_environment(PYTHONPYCACHEPREFIX=work / "bytecode")

    def take_turn() -> Iterator[Sample]:
        with temporary_directory(work) as directory:
            arguments = [workload.root / unit.source, directory / "image", *unit.architectures]
            completed = run([sys.executable, _BARE_NVRTC, *arguments], environment=environment)
            measured = json.loads(completed.output)
            figures = completed.seconds, measured["seconds"], measured["imports"]
            yield Sample("NVRTC in one process", *figures)

    return Contender("NVRTC in one process", take_turn)


def _start_interpreter(work: Path) -> Contender:
    environment = benchmark_environment(PYTHONPYCACHEPREFIX=work / "bytecode")

    def take_turn() -> Iterator[Sample]:
        yield Sample("python -c pass", run([sys.executable, "-c", "pass"], environment=environment).seconds)

    return Contender("python -c pass", take_turn)


def _measure_cpu(contender: Contender) -> Contender:
    """Return `contender` with the CPU time of its processes in its samples."""

    def take_turn() -> Iterator[Sample]:
        before = _read_cpu_time()
        for sample in contender.take_turn():
            yield replace(sample, cpu=_read_cpu_time() - before)
            before = _read_cpu_time()

    return Contender(contender.name, take_turn)


def _read_cpu_time() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _check_limits(result: Result) -> Iterator[tuple[str, ...]]:
    reference = result.series.get(REFERENCE.label)
    for label, series in result.series.items():
        unit, limit = LIMITS.get(label.rpartition(": ")[2], ("", 0.0))
        if unit == "x" and reference is None:
            yield label, f"<= {limit:g} x", "-", "not measured"
        elif unit:
            figure = series.seconds / reference.seconds if unit == "x" and reference else series.seconds
            verdict = "holds" if figure <= limit else "misses"
            yield label, f"<= {limit:g} {unit}", f"{figure:.3f} {unit}", verdict


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--checkout",
        type=Path,
        action="append",
        metavar="DIR",
        help="measure this checkout; may be repeated",
    )
    parser.add_argument("--rounds", type=int, default=11, help="rounds; 11")
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    parser.add_argument("--work", type=Path, help="put temporary files into this directory")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
