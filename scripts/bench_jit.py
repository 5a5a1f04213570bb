"""What compilation on demand costs: ours beside CuPy's RawModule, in one run on a GPU.

Every figure is of a process of its own, which has opened the driver and its context before. ``cold`` finds
an empty cache, ``warm`` what a process before it has kept. ``first`` is the first kernel of the process, from
its name to its result, and ``whole`` is that with all before it, from the start of the process; ``second`` is
another instantiation; ``again`` looks the first up once more. Contenders take turns. Printed are medians with
the least and the greatest.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from _environment import ROOT

sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from jit.children import CONTENDERS, SOURCES, run  # noqa: E402
from launching.machine import machine  # noqa: E402
from launching.printing import pairs_text  # noqa: E402

import cuda_ext  # noqa: E402

STEPS = ("whole", "first", "second", "again")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="processes of each contender; 7")
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    arguments = parser.parse_args()
    print(pairs_text(machine()), flush=True)
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    with tempfile.TemporaryDirectory(prefix="bench_jit-") as name:
        for title, source in SOURCES.items():
            module = Path(name, title)
            # What is asked for later is not among what was built.
            built = cuda_ext.compile(source, instantiate=["axpy<float>"], architectures=["sm_80"])
            cuda_ext.save(built, module)
            found[title] = samples = {}
            for round_ in range(arguments.rounds):
                # In turns, each of them once the first: what ran before may slow a process down.
                order = list(CONTENDERS)
                for contender in order[round_ % len(order) :] + order[: round_ % len(order)]:
                    cache = Path(name, "caches", title, str(round_))
                    for state in ("cold", "warm"):
                        try:
                            steps = run(contender, source, cache, module)
                        except subprocess.CalledProcessError as error:
                            print(f"left out: {contender}: {error.stderr.strip().splitlines()[-1:]}")
                            continue
                        for step, milliseconds in steps.items():
                            taken = samples.setdefault(f"{contender}, {state}", {})
                            taken.setdefault(step, []).append(milliseconds)
            print(text(title, samples), flush=True)
    print(bounds(found))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


def text(title: str, samples: dict[str, dict[str, list[float]]]) -> str:
    width = max(map(len, samples), default=0)
    head = "".join(f"{step:>26}" for step in STEPS)
    lines = [f"\n{title}, milliseconds", f"  {'':{width}}{head}"]
    for name, steps in samples.items():
        cells = "".join(f"{spread(steps[step]):>26}" for step in STEPS)
        lines.append(f"  {name:{width}}{cells}")
    return "\n".join(lines)


def spread(milliseconds: list[float]) -> str:
    digits = 2 if median(milliseconds) > 0.1 else 6
    least, most = min(milliseconds), max(milliseconds)
    return f"{median(milliseconds):.{digits}f} ({least:.{digits}f} .. {most:.{digits}f})"


def bounds(found: dict[str, dict[str, dict[str, list[float]]]]) -> str:
    tiny = found["tiny"]
    rows = [
        ("hit from disk, another kernel of a process, ms", 2, tiny["ours, a package, warm"]["second"]),
        ("hit from disk, the first kernel of a process, ms", 2, tiny["ours, a package, warm"]["first"]),
        ("looked up again, ms", 0.0002, tiny["ours, a package, warm"]["again"]),
        ("tiny kernel cold, another one of a process, ms", 60, tiny["ours, a package, cold"]["second"]),
        ("tiny kernel cold, the first one of a process, ms", 60, tiny["ours, a package, cold"]["first"]),
    ]
    lines = ["\nBounds"]
    for what, bound, samples in rows:
        verdict = "holds" if median(samples) <= bound else "misses"
        lines.append(f"  {what:50} <= {bound:<7} {spread(samples):>34}  {verdict}")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
