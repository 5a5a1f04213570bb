"""Compare launches with cuda_ext, C, cuda.core, CuPy, Triton, tvm-ffi, Numba and PyTorch on a GPU.

In each round all contenders take turns, with a batch of launches between two synchronisations. Prints
medians with the 10th and 90th percentile, and ratios to C, which is compiled here. Contenders that are not
installed are left out and listed. Needs ``cuda-ext[cu13]`` and PyTorch; the part ``numpy`` needs CuPy, and
the part ``second`` two GPUs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import _environment  # noqa: F401 - makes cuda_ext importable
from bench.tables import format_pairs
from launching import (
    cold_start,
    host_arrays,
    imports,
    kernels,
    large_module,
    repeated_launches,
    second_gpu,
    structures,
)
from launching.machine import describe_gpu_machine
from launching.results import format_bounds, format_launches

from cuda_ext.errors import CudaExtError
from cuda_ext.runtime.driver.driver import open_driver

PARTS = ("launch", "structures", "large", "second", "import", "cold", "numpy")


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
    try:
        machine = describe_gpu_machine()
    except CudaExtError as error:
        sys.exit(f"{Path(__file__).name}: {error}")
    print(format_pairs(machine), flush=True)
    results: dict[str, Any] = {"machine": machine}
    with tempfile.TemporaryDirectory(prefix="bench_launch-") as name:
        work = Path(name)
        package = kernels.build(work / "package")
        if "import" in parts:
            results["import"] = imports.measure(package, work / "empty")
            print(format_pairs(results["import"], "Import, milliseconds"), flush=True)
        if "cold" in parts:
            results["cold"] = cold_start.measure(package, work)
            print(format_pairs(results["cold"], "Cold start, milliseconds"), flush=True)
        if "launch" in parts:
            results["launch"] = repeated_launches.measure(package, work, arguments.rounds, arguments.batch)
            print(format_launches(results["launch"]), flush=True)
        if "structures" in parts:
            taken = structures.measure(work / "structures", arguments.rounds, arguments.batch)
            results["structures"] = taken
            print(format_launches(taken, " with a structure of 33 members"), flush=True)
        if "large" in parts:
            large = large_module.measure(work / "large", arguments.rounds, arguments.batch)
            results["large"] = large
            print(format_launches(large, " among 504 kernels, 405 of one name"), flush=True)
            print(format_pairs(large["first"], "First launches and choices among them, microseconds"))
            print(format_pairs(large["cold"], "300 kernels beside PyTorch, milliseconds"), flush=True)
        if "second" in parts and open_driver().count > 1:
            second = second_gpu.measure(package, work, arguments.rounds, arguments.batch)
            results["second"] = second
            print(format_launches(second, " on the first of two GPUs"), flush=True)
            print(format_pairs(second["ratios"], "Ratios with the second GPU current"), flush=True)
        if "numpy" in parts:
            results["numpy"] = host_arrays.measure(package)
            print(format_pairs(results["numpy"], "64 MB copied in and out of numpy arrays, GB/s"), flush=True)
    print(format_bounds(results))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
