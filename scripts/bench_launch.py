"""What a launch costs: ours beside C, cuda.core, CuPy, Triton, Numba and PyTorch, in one run on a GPU.

All contenders take turns, round by round, in batches of launches between two synchronisations. Printed are
medians with the 10th and 90th percentile, and ratios to C, which is compiled here. Contenders that are not
installed are named and left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from _environment import ROOT

sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from launching import cold, hosts, imports, kernels, launches  # noqa: E402
from launching.machine import machine  # noqa: E402
from launching.printing import bounds_text, launches_text, pairs_text  # noqa: E402

PARTS = ("launch", "import", "cold", "numpy")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts of {','.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=40, help="rounds of launches; 40")
    parser.add_argument("--batch", type=int, default=200, help="launches between two synchronisations; 200")
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    found: dict[str, object] = {"machine": machine()}
    print(pairs_text(machine()), flush=True)
    with tempfile.TemporaryDirectory(prefix="bench_launch-") as name:
        place = Path(name)
        package = kernels.build(place / "package")
        if "import" in parts:
            found["import"] = imports.measure(package, place / "empty")
            print(pairs_text(found["import"], "Import, milliseconds"), flush=True)
        if "cold" in parts:
            found["cold"] = cold.measure(package)
            print(pairs_text(found["cold"], "Cold start, milliseconds"), flush=True)
        if "launch" in parts:
            found["launch"] = launches.measure(package, place, arguments.rounds, arguments.batch)
            print(launches_text(found["launch"]), flush=True)
        if "numpy" in parts:
            found["numpy"] = hosts.measure(package)
            print(pairs_text(found["numpy"], "64 MB in and out of numpy arrays, GB/s"), flush=True)
    print(bounds_text(found))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
