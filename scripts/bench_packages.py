"""Compare packages of the same kernels with cuda_ext, scikit-build-core, PyTorch and CuPy.

Each contender is a small project in ``scripts/packages``, built by ``pip wheel`` for the same architectures
in its own environment, with its build requirements installed beforehand. In each round all contenders take
turns, with empty caches at first; nvcc and the host compiler run under ccache where that is installed. Every
wheel must contain all kernels for each architecture. Needs ``cuda-ext[cu13]`` and no GPU, and creates the
contenders' environments once, from the package registry.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from _environment import ROOT, step
from bench.machine import describe_machine
from bench.tables import format_pairs
from packages.building import build_in_all_states
from packages.contenders import CONTENDERS, Contender, parse_contenders
from packages.environments import Place, prepare, running_environment
from packages.importing import install, measure_import
from packages.published import write_tables
from packages.results import Results, as_json, as_text

IMPORTS = 5  # processes of each contender, for each round


def main() -> int:
    arguments = _parse_arguments()
    # Exit instead of dying, so that child processes are killed and temporary files removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="bench_packages-", dir=arguments.work) as name:
        work = Path(name)
        results = (
            [Results(running_environment(CONTENDERS[0]))]
            if arguments.quick
            else _prepare(arguments.only, arguments.environments, work, left_out)
        )
        machine = _describe_machine([each.place for each in results])
        print(f"\n{format_pairs(machine)}\n", flush=True)
        for number in range(arguments.rounds):
            # Another contender starts each round: the one before may slow a build down.
            start = number % max(1, len(results))
            for each in results[start:] + results[:start]:
                when = f"round {number + 1} of {arguments.rounds}"
                _build(each, when, work, left_out, 1 if arguments.quick else None)
        results = [each for each in results if each.place.contender.title not in left_out]
        for each in results:
            install(each.place, _wheels(work, each))
        for _ in range(1 if arguments.quick else IMPORTS * arguments.rounds):
            for each in results:
                each.imported.append(measure_import(each.place, _wheels(work, each)))
    if not results:
        print("\n".join(f"not measured: {title}: {error}" for title, error in left_out.items()))
        return 1
    print(f"\n{as_text(results, left_out, arguments.rounds)}")
    if arguments.write:
        write_tables(results)
    if arguments.json:
        text = json.dumps(as_json(machine, results, left_out), indent=2)
        arguments.json.write_text(f"{text}\n", encoding="utf-8")
    return 0


def _prepare(
    contenders: Sequence[Contender], environments: Path, work: Path, left_out: dict[str, str]
) -> list[Results]:
    results = []
    for contender in contenders:
        try:
            results.append(Results(prepare(contender, environments, work)))
        except RuntimeError as error:
            left_out[contender.title] = str(error)
    return results


def _wheels(work: Path, result: Results) -> Path:
    return work / "wheels" / result.place.contender.key


def _build(result: Results, when: str, work: Path, left_out: dict[str, str], states: int | None) -> None:
    """Build in the first `states`, or in all of them."""
    contender = result.place.contender
    if contender.title in left_out:
        return
    try:
        for built in islice(build_in_all_states(result.place, work, _wheels(work, result)), states):
            result.built.append(built)
            step(f"{when}: {contender.title}, {built.state}: {built.seconds:.1f} s")
    except RuntimeError as error:
        left_out[contender.title] = str(error)


def _describe_machine(places: Sequence[Place]) -> dict[str, str]:
    description = describe_machine(None)
    names = ("CPU", "memory", "load before", "system", "Python", "host compiler")
    machine = {name: description[name] for name in names}
    machine["ccache"] = shutil.which("ccache") or "none"
    packages = (
        "nvidia-cuda-nvrtc",
        "nvidia-cuda-nvcc",
        "scikit-build-core",
        "nanobind",
        "torch",
        "cupy-cuda13x",
    )
    for place in places:
        versions = (f"{name} {place.versions[name]}" for name in packages if name in place.versions)
        machine[place.contender.title] = ", ".join(versions)
    return machine


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    keys = [contender.key for contender in CONTENDERS]
    parser.add_argument("--rounds", type=int, default=3, help="rounds; 3")
    parser.add_argument(
        "--quick", action="store_true", help="only build cuda_ext's wheel once, with the running Python"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the figures into the tables of README.md and docs/why.md"
    )
    parser.add_argument(
        "--only", type=parse_contenders, default=CONTENDERS, help=f"contenders of {','.join(keys)}"
    )
    parser.add_argument(
        "--environments",
        type=Path,
        default=ROOT / ".test" / "packages",
        help="directory of the contenders' environments, 7 GB; .test/packages",
    )
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    parser.add_argument("--work", type=Path, help="put temporary files into this directory")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = 1
    return arguments


if __name__ == "__main__":
    sys.exit(main())
