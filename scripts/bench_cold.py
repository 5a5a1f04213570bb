"""How fast a build starts: ``python scripts/bench_cold.py [--checkout DIR]...``.

One small kernel for two architectures, by ``python -m cuda_ext build`` of each checkout, by ``nvcc -t2``
and by NVRTC alone, in rounds in which each takes its turn. Needs ``cuda-ext[nvcc-cu13]`` and a host compiler
for nvcc. All checkouts run in this interpreter, with bytecode that an uncounted round has written. On a
machine that others use too, compare the CPU times.
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
from bench._checks import check_fatbins
from bench._machine import describe_machine
from bench._measuring import Contender, Result, Sample, compete
from bench._others import REFERENCE, by_hand
from bench._printing import competition_text, machine_text, samples_json, table_text
from bench._processes import CORES, quiet_environment, run, scratch
from bench._workloads import Workload, copy_tree, one, tiny

from cuda_ext.toolchain.compilers import find_nvcc

COLD = "empty cache"
KNOWN = "new kernel"  # with a cache that another project's build has begun
NOTHING_CHANGED = "nothing changed"
# In terms of nvcc's time, and in seconds.
LIMITS = {COLD: ("x", 0.7), NOTHING_CHANGED: ("s", 0.15)}
_BARE_NVRTC = Path(__file__).with_name("bench") / "_bare_nvrtc.py"
_WHERE = "import cuda_ext; print(cuda_ext.__file__)"


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout of this repository, by the name that its rows have, and what its processes run in."""

    name: str
    environment: dict[str, str]

    def run(self, *arguments: object, cache: Path, directory: Path) -> float:
        """Run the interpreter on `arguments`; the seconds that it took."""
        environment = self.environment | {"CUDA_EXT_CACHE": str(cache)}
        return run([sys.executable, *arguments], directory=directory, environment=environment).seconds


def main() -> int:
    arguments = _parse()
    checkouts = [path.resolve() for path in arguments.checkout or [ROOT]]
    nvcc = find_nvcc(None, os.environ)
    machine = describe_machine(nvcc)
    with tempfile.TemporaryDirectory(prefix="bench_cold-", dir=arguments.work) as name:
        place = Path(name)
        workload = one(place / "project")
        contenders = [_ours(workload, checkout, place) for checkout in _prepared(checkouts, place)]
        contenders += [
            by_hand(workload, REFERENCE, nvcc.executable, place),
            _bare_nvrtc(workload, place),
            _interpreter(place),
        ]
        contenders = list(map(_with_cpu, contenders))
        compete(workload, contenders, 1, lambda _: None)
        result = compete(workload, contenders, arguments.rounds, _tell)
    verdicts = table_text(("", "bound", "measured", ""), _verdicts(result))
    print(f"\n{machine_text(machine)}\n\nRounds: {arguments.rounds}; medians of wall time.")
    print(f"\n{competition_text(result)}\n\nBounds\n{verdicts}")
    if arguments.json:
        content = {"machine": machine, **samples_json(result)}
        arguments.json.write_text(f"{json.dumps(content, indent=2)}\n", encoding="utf-8")
    return 1 if result.left_out else 0


def _prepared(paths: list[Path], place: Path) -> Iterator[Checkout]:
    """The checkouts; each has been imported from where it lies, and has a cache that knows the compiler."""
    other = tiny(place / "other", 1)
    for path in paths:
        alone = [p.name for p in paths].count(path.name) == 1
        checkout = Checkout(
            path.name if alone else str(path),
            quiet_environment(PYTHONPATH=path, PYTHONPYCACHEPREFIX=place / "bytecode", MAX_JOBS=CORES),
        )
        command = [sys.executable, "-c", _WHERE]
        imported = run(command, directory=place, environment=checkout.environment).output.strip()
        if Path(imported).resolve() != path / "cuda_ext" / "__init__.py":
            sys.exit(f"{path}: Python imports {imported} instead")
        _build(checkout, other, place / "other-output", _known(checkout, place))
        yield checkout


def _known(checkout: Checkout, place: Path) -> Path:
    return place / f"cache-{checkout.name.replace(os.sep, '-')}"


def _build(checkout: Checkout, root: Path, output: Path, cache: Path) -> float:
    return checkout.run("-m", "cuda_ext", "build", "--output", output, cache=cache, directory=root)


def _ours(workload: Workload, checkout: Checkout, place: Path) -> Contender:
    """With an empty cache, then again, then with a cache that knows the compiler."""

    def take_turn() -> Iterator[Sample]:
        with scratch(place) as directory:
            root, output = copy_tree(workload.root, directory / "project"), directory / "output"
            package = output.joinpath(*next(iter(workload.modules)).split("."))
            for label in (COLD, NOTHING_CHANGED):
                seconds = _build(checkout, root, output, directory / "cache")
                check_fatbins(workload.units, package)
                yield Sample(f"{checkout.name}: {label}", seconds)
            known = Path(shutil.copytree(_known(checkout, place), directory / "known"))
            shutil.rmtree(output)
            yield Sample(f"{checkout.name}: {KNOWN}", _build(checkout, root, output, known))
            check_fatbins(workload.units, package)
            arguments = ("-m", "cuda_ext", "build", "--help")
            seconds = checkout.run(*arguments, cache=known, directory=directory)
            yield Sample(f"{checkout.name}: build --help", seconds)

    return Contender(checkout.name, take_turn)


def _bare_nvrtc(workload: Workload, place: Path) -> Contender:
    (unit,) = workload.units
    environment = quiet_environment(PYTHONPYCACHEPREFIX=place / "bytecode")

    def take_turn() -> Iterator[Sample]:
        with scratch(place) as directory:
            arguments = [workload.root / unit.source, directory / "image", *unit.architectures]
            ended = run([sys.executable, _BARE_NVRTC, *arguments], environment=environment)
            told = json.loads(ended.output)
            yield Sample("NVRTC in one process", ended.seconds, told["seconds"], told["imports"])

    return Contender("NVRTC in one process", take_turn)


def _interpreter(place: Path) -> Contender:
    environment = quiet_environment(PYTHONPYCACHEPREFIX=place / "bytecode")

    def take_turn() -> Iterator[Sample]:
        yield Sample("python -c pass", run([sys.executable, "-c", "pass"], environment=environment).seconds)

    return Contender("python -c pass", take_turn)


def _with_cpu(contender: Contender) -> Contender:
    """`contender`, whose samples have the CPU time of its processes too."""

    def take_turn() -> Iterator[Sample]:
        before = _cpu_of_children()
        for sample in contender.take_turn():
            yield replace(sample, cpu=_cpu_of_children() - before)
            before = _cpu_of_children()

    return Contender(contender.name, take_turn)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _verdicts(result: Result) -> Iterator[tuple[str, ...]]:
    reference = result.series.get(REFERENCE.label)
    for label, series in result.series.items():
        unit, limit = LIMITS.get(label.rpartition(": ")[2], ("", 0.0))
        if unit == "x" and reference is None:
            yield label, f"<= {limit:g} x", "-", "not measured"
        elif unit:
            figure = series.seconds / reference.seconds if unit == "x" and reference else series.seconds
            verdict = "holds" if figure <= limit else "misses"
            yield label, f"<= {limit:g} {unit}", f"{figure:.3f} {unit}", verdict


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--checkout",
        type=Path,
        action="append",
        metavar="DIR",
        help="measure this checkout, and others where given again",
    )
    parser.add_argument("--rounds", type=int, default=11, help="rounds; 11")
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    parser.add_argument("--work", type=Path, help="work below this directory")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
