"""The same kernels packaged with cuda_ext, scikit-build-core, PyTorch and CuPy, side by side.

Each contender is a small project in ``scripts/packages``, built by ``pip wheel`` for the same architectures,
in an environment of its own with its build requirements installed beforehand. In each round all contenders
take their turn, with caches that are empty at first; where ccache is installed, nvcc and the host compiler
run under it. Every wheel is looked into: the kernels must be there, for each architecture. Runs where
``cuda-ext[cu13]`` is installed, and makes the contenders' environments once, from the package registry. Takes
no GPU.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from _environment import ROOT, step

sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench._machine import describe_machine  # noqa: E402
from launching.printing import pairs_text  # noqa: E402
from packages.building import build_in_all_states  # noqa: E402
from packages.contenders import CONTENDERS, Contender  # noqa: E402
from packages.environments import Place, prepare  # noqa: E402
from packages.importing import import_once, install  # noqa: E402
from packages.printing import Found, as_json, as_text  # noqa: E402

IMPORTS = 5  # processes of each contender, for each round


def main() -> int:
    arguments = _parse()
    # So that what was started is ended and what was written is removed then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="bench_packages-", dir=arguments.work) as name:
        work = Path(name)
        found = _prepare(arguments.only, arguments.environments, work, left_out)
        machine = _machine([each.place for each in found])
        print(f"\n{pairs_text(machine)}\n", flush=True)
        for number in range(arguments.rounds):
            # In turns, each of them once the first: what ran before may slow another one down.
            start = number % max(1, len(found))
            for each in found[start:] + found[:start]:
                _build(each, f"round {number + 1} of {arguments.rounds}", work, left_out)
        found = [each for each in found if each.place.contender.title not in left_out]
        for each in found:
            install(each.place, work / "wheels" / each.place.contender.key)
        for _ in range(IMPORTS * arguments.rounds):
            for each in found:
                each.imported.append(import_once(each.place))
    if not found:
        print("\n".join(f"not measured: {title}: {why}" for title, why in left_out.items()))
        return 1
    print(f"\n{as_text(found, left_out, arguments.rounds)}")
    if arguments.json:
        text = json.dumps(as_json(machine, found, left_out), indent=2)
        arguments.json.write_text(f"{text}\n", encoding="utf-8")
    return 0


def _prepare(
    contenders: Sequence[Contender], environments: Path, work: Path, left_out: dict[str, str]
) -> list[Found]:
    found = []
    for contender in contenders:
        try:
            found.append(Found(prepare(contender, environments, work)))
        except RuntimeError as error:
            left_out[contender.title] = str(error)
    return found


def _build(found: Found, when: str, work: Path, left_out: dict[str, str]) -> None:
    contender = found.place.contender
    if contender.title in left_out:
        return
    try:
        for built in build_in_all_states(found.place, work, work / "wheels" / contender.key):
            found.built.append(built)
            step(f"{when}: {contender.title}, {built.state}: {built.seconds:.1f} s")
    except RuntimeError as error:
        left_out[contender.title] = str(error)


def _machine(places: Sequence[Place]) -> dict[str, str]:
    told = describe_machine(None)
    kept = ("CPU", "memory", "load before", "system", "Python", "host compiler")
    found = {name: told[name] for name in kept}
    found["ccache"] = shutil.which("ccache") or "none"
    shown = (
        "nvidia-cuda-nvrtc",
        "nvidia-cuda-nvcc",
        "scikit-build-core",
        "nanobind",
        "torch",
        "cupy-cuda13x",
    )
    for place in places:
        versions = (f"{name} {place.versions[name]}" for name in shown if name in place.versions)
        found[place.contender.title] = ", ".join(versions)
    return found


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    keys = [contender.key for contender in CONTENDERS]
    parser.add_argument("--rounds", type=int, default=3, help="rounds; 3")
    parser.add_argument(
        "--only", type=_contenders, default=CONTENDERS, help=f"contenders of {','.join(keys)}"
    )
    parser.add_argument(
        "--environments",
        type=Path,
        default=ROOT / ".test" / "packages",
        help="where the contenders' environments are kept, 7 GB; .test/packages",
    )
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    parser.add_argument("--work", type=Path, help="work below this directory")
    return parser.parse_args()


def _contenders(text: str) -> list[Contender]:
    by_key = {contender.key: contender for contender in CONTENDERS}
    if unknown := [key for key in text.split(",") if key not in by_key]:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(by_key)}")
    return [by_key[key] for key in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
