"""Tune the kernels of this example on a GPU, and show what that gains: ``python measure.py``.

Builds all candidates, measures them, and builds again with the measurements. Then it compares the kernel that
a launch takes with all candidates, with the default, and with the choice of ``triton.autotune``, for measured
sizes and for others, and the cost of a launch with that in C. Takes cuda-ext with a C compiler, PyTorch,
Triton, and about two minutes on 16 cores; the machine needs no network.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

MODULE = "tuned.kernels"
# The sizes that are measured, at most a factor of 1.5 apart, and others between them. For sizes that are not
# multiples of 16, Triton compiles other code.
MULTIPLES = (256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
UNALIGNED = (300, 700, 1300, 2100, 3300)
OTHERS = (640, 900, 1280, 1800, 2560, 3500)
COLUMNS = (*MULTIPLES, 6 << 10, 1 << 13, 1 << 14, 1 << 16, 1 << 20)
SIZES: dict[str, tuple[list[dict[str, int]], list[dict[str, int]]]] = {
    "gemm": (
        [{"m": s, "n": s, "k": s} for s in MULTIPLES] + [{"m": s, "n": 4096, "k": 4096} for s in (128, 256)],
        [{"m": s, "n": s, "k": s} for s in OTHERS] + [{"m": 200, "n": 3000, "k": 4096}],
    ),
    "row_sums": (
        [{"rows": (1 << 26) // columns, "columns": columns} for columns in COLUMNS],
        [{"rows": r, "columns": c} for r, c in ((90000, 700), (30000, 2500), (10000, 7000), (200, 1 << 18))],
    ),
    "matmul": (
        [{"M": s, "N": s, "K": s} for s in (*MULTIPLES, *UNALIGNED)]
        + [{"M": s, "N": 4096, "K": 4096} for s in (128, 256)],
        [{"M": s, "N": s, "K": s} for s in OTHERS] + [{"M": 192, "N": 3072, "K": 4096}],
    ),
    "attention": (
        [{"heads": 32, "length": s} for s in (*MULTIPLES[2:], *UNALIGNED[1:])]
        + [{"heads": 4, "length": 2048}],
        [{"heads": 32, "length": s} for s in OTHERS[1:]] + [{"heads": 8, "length": 2048}],
    ),
}
# The sizes for which Triton chooses.
AUTOTUNED = {"matmul": {"M": 1024, "N": 1024, "K": 1024}, "attention": {"heads": 32, "length": 4096}}
PROCESSES = 6
MEASURED, BETWEEN, LAUNCH = 0.97, 0.90, 1.4
began = time.monotonic()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--keep", type=Path, help="copy tuning/*.json to this directory")
    parser.add_argument("--no-autotune", action="store_true", help="leave out triton.autotune")
    parser.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        step, *rest = arguments.step
        print(
            json.dumps({"precompile": precompile, "autotune": autotune, "launch": launch_costs}[step](*rest))
        )
        return 0
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="tuning-") as name:
        work = Path(name)
        project = work / "project"
        shutil.copytree(HERE, project, ignore=shutil.ignore_patterns("build", "*.pyc", "kernels.json"))
        shutil.rmtree(project / "tuning", ignore_errors=True)
        cache = {"TRITON_CACHE_DIR": str(work / "triton")}
        ahead = (
            []
            if arguments.no_autotune
            else [start("precompile", str(number), **cache) for number in range(PROCESSES)]
        )
        build(project, work / "before")
        build(project, work / "all", CUDA_EXT_CANDIDATES="1")
        for process in ahead:
            process.communicate()
        tune(project, work / "all")
        if arguments.keep:
            shutil.copytree(project / "tuning", arguments.keep, dirs_exist_ok=True)
        build(project, work / "chosen")
        choices = {} if arguments.no_autotune else read(start("autotune", **cache))
        results["choices"] = list(compare(work, choices))
        results["launches"] = {
            name: read(start("launch", str(work), PYTHONPATH=str(work / name)))
            for name in ("before", "chosen")
        }
    is_good = show(results)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if is_good else 1


def say(text: str) -> None:
    print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)


def build(project: Path, output: Path, **variables: str) -> None:
    command = [sys.executable, "-m", "cuda_ext", "build", str(project), "--output", str(output)]
    done = subprocess.run(
        command, env=environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        sys.exit(done.stdout)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("[")]
    say(f"built {output.name}: " + "\n          ".join(lines))


def tune(project: Path, package: Path) -> None:
    for kernel, (cases, _) in SIZES.items():
        command = [
            sys.executable,
            "-m",
            "cuda_ext",
            "tune",
            MODULE,
            "--kernel",
            kernel,
            "--project",
            str(project),
        ]
        for case in cases:
            command += ["--case", ", ".join(f"{name}={value}" for name, value in case.items())]
        say(f"cuda-ext tune {kernel}")
        subprocess.run(command, env=environment(PYTHONPATH=str(package)), check=True)


def environment(**variables: str) -> dict[str, str]:
    paths = [variables.pop("PYTHONPATH", ""), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def start(*step: str, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--step", *step]
    return subprocess.Popen(command, env=environment(**variables), stdout=subprocess.PIPE, text=True)


def read(process: subprocess.Popen[str]) -> Any:
    output, _ = process.communicate()
    return json.loads(output.splitlines()[-1]) if process.returncode == 0 else {}


def compare(work: Path, autotuned: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Time all candidates for each size, and yield how the one that a launch takes compares with others."""
    from cuda_ext.tuning.measure import Bench

    everything, chosen = Bench(MODULE, 20), Bench(MODULE, 20)
    sys.path.insert(0, "")
    names = {"matmul": "matmul<fp16>", "attention": "attention<fp16, DIM=64>"}
    try:
        for kernel, groups in SIZES.items():
            for is_measured, cases in zip((True, False), groups, strict=True):
                for case in cases:
                    name = names.get(kernel, kernel)
                    sys.path[0] = str(work / "chosen")  # of the processes that start now
                    taken = chosen.ask(name, case).get("taken")
                    sys.path[0] = str(work / "all")
                    listed = everything.ask(name, case)
                    if not taken or "failed" in listed:
                        say(f"{kernel} {case}: {listed.get('failed', 'no kernel is taken')}")
                        continue
                    default = listed["candidates"][-1]
                    theirs = autotuned.get(kernel) if case == AUTOTUNED.get(kernel) else None
                    times = times_of(everything, name, case, listed["candidates"], [taken, default, theirs])
                    best = min(times, key=times.__getitem__)
                    row = {
                        "kernel": kernel,
                        "case": case,
                        "measured": is_measured,
                        "taken": taken,
                        "best": json.loads(best),
                        "candidates": len(listed["candidates"]),
                        "of_best": times[best] / times[key(taken)],
                        "of_default": times[key(default)] / times[key(taken)],
                        "microseconds": times[key(taken)],
                    }
                    if theirs and key(theirs) in times:
                        row |= {"autotune": theirs, "of_autotune": times[key(theirs)] / times[key(taken)]}
                    say(f"{kernel} {case}: {row['of_best']:.3f} of the best")
                    yield row
    finally:
        everything.close()
        chosen.close()


def key(configuration: dict[str, str]) -> str:
    return json.dumps(configuration, sort_keys=True)


def times_of(
    bench: Any, name: str, case: Any, candidates: list[Any], compared: list[Any]
) -> dict[str, float]:
    """Return the microseconds by configuration: of the fastest and of those `compared`, in turns."""
    first = {key(each): bench.ask(name, case, each, 0).get("time") for each in candidates}
    first = {each: found for each, found in first.items() if found}
    finalists = {*sorted(first, key=first.__getitem__)[:3], *(key(each) for each in compared if each)}
    samples: dict[str, list[float]] = {each: [] for each in finalists if each in first}
    for _ in range(3):
        for each, own in samples.items():
            own.append(bench.ask(name, case, json.loads(each), 1).get("time", float("inf")))
    return {**first, **{each: median(own) for each, own in samples.items()}}


def precompile(number: str) -> None:
    """Compile a part of the configurations for Triton's cache, so that its decorator only measures."""
    import torch

    sys.path.insert(0, str(HERE / "kernels"))
    import attention
    import matmul

    half = torch.float16
    calls = [(matmul.matmul, (half, half, half, 1024, 1024, 1024), {})]
    calls += [(attention.attention, (half, half, half, half, 1.0, 32, 4096), {"DIM": 64})]
    jobs = [(f, given, named, config) for f, given, named in calls for config in f.configs]
    for function, given, named, config in jobs[int(number) :: PROCESSES]:
        try:
            function.fn.warmup(*given, **named, **config.all_kwargs(), grid=(1,))
        except Exception:  # Triton leaves out configurations that need too much of the GPU
            continue


def autotune() -> dict[str, dict[str, str]]:
    """Return the configurations that ``triton.autotune`` chooses."""
    import torch

    sys.path.insert(0, str(HERE / "kernels"))
    from attention import attention
    from matmul import matmul

    def zeros(*shape: int) -> Any:
        return torch.rand(shape, device="cuda", dtype=torch.float16) - 0.5

    m, n, k = AUTOTUNED["matmul"].values()
    heads, length = AUTOTUNED["attention"].values()
    matmul[lambda c: (-(-m // c["BM"]) * -(-n // c["BN"]),)](zeros(m, k), zeros(k, n), zeros(m, n), m, n, k)
    four = [zeros(heads, length, 64) for _ in range(4)]
    attention[lambda c: (-(-length // c["BM"]), heads)](*four, 1.0, heads, length, DIM=64)
    found = {}
    for name, function in (("matmul", matmul), ("attention", attention)):
        best = function.best_config.all_kwargs()
        found[name] = {
            each: repr(best[each]) for each in best if each not in ("num_ctas", "maxnreg", "ir_override")
        }
    return found


def launch_costs(directory: str) -> dict[str, float]:
    """Return the microseconds of launches of ``gemm`` by C, and by this package with PyTorch's tensors."""
    import ctypes

    import torch
    from launching.c_launch import CLaunch
    from tuned import kernels

    from cuda_ext.runtime.driver.driver import open_driver

    compiled = CLaunch(Path(directory))
    size = 16
    a, b, c = (torch.zeros(size, size, device="cuda") for _ in range(3))
    grid = (1, 1)
    kernels.gemm(a, b, c, size, size, size, grid=grid)
    kernel: Any = kernels.gemm
    if hasattr(kernel, "taken"):
        kernel = kernel.taken(a, b, c, size, size, size, grid=grid)
    loaded = kernel._load(open_driver().device(0))
    stream = torch.cuda.current_stream().cuda_stream
    values = [ctypes.c_void_p(x.data_ptr()) for x in (a, b, c)] + [ctypes.c_int(size)] * 3
    block, shared = loaded.fixed.block[0], loaded.fixed.shared
    times: dict[str, list[float]] = {"C": [], "keyword grid": [], "brackets": []}
    count, gemm = 200, kernels.gemm
    for _ in range(60):
        torch.cuda.synchronize()
        times["C"].append(compiled.seconds(loaded.function, stream, values, count, block, shared))
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            gemm(a, b, c, size, size, size, grid=grid)
        times["keyword grid"].append((time.perf_counter() - start) / count)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            gemm[grid](a, b, c, size, size, size)
        times["brackets"].append((time.perf_counter() - start) / count)
    return {name: 1e6 * median(own[10:]) for name, own in times.items()}


def show(results: dict[str, Any]) -> bool:
    """Print all figures with their bounds; return True if they are kept."""
    is_good = True
    print(f"\n{'kernel':10}{'sizes':32}{'of best':>9}{'default':>9}{'autotune':>9}{'us':>9}  taken")
    for row in results["choices"]:
        bound = MEASURED if row["measured"] else BETWEEN
        is_good = is_good and row["of_best"] >= bound
        case = ", ".join(f"{n}={v}" for n, v in row["case"].items()) + (
            "" if row["measured"] else " (between)"
        )
        theirs = f"{row['of_autotune']:.2f}" if "of_autotune" in row else ""
        taken = ",".join(row["taken"].values())
        flag = "" if row["of_best"] >= bound else f"  BELOW {bound}: {','.join(row['best'].values())}"
        print(
            f"{row['kernel']:10}{case:32}{row['of_best']:9.3f}{row['of_default']:9.2f}{theirs:>9}"
            f"{row['microseconds']:9.1f}  {taken} of {row['candidates']}{flag}"
        )
    for kernel in SIZES:
        for is_measured, title in ((True, "measured"), (False, "between")):
            rows = [
                row for row in results["choices"] if (row["kernel"], row["measured"]) == (kernel, is_measured)
            ]
            if rows:
                least = min(row["of_best"] for row in rows)
                gain = geometric_mean([row["of_default"] for row in rows])
                print(f"{kernel}, {title}: at least {least:.3f} of the best, {gain:.2f} times the default")
    for name, costs in results["launches"].items():
        if costs:
            ratios = {each: cost / costs["C"] for each, cost in costs.items() if each != "C"}
            is_good = is_good and all(ratio <= LAUNCH for ratio in ratios.values())
            spelled = ", ".join(f"{each} {ratio:.2f}" for each, ratio in ratios.items())
            print(f"launch {name}: C {costs['C']:.2f} us; of C: {spelled} (at most {LAUNCH})")
    is_complete = len(results["choices"]) == sum(len(cases) for groups in SIZES.values() for cases in groups)
    return is_good and is_complete and all(results["launches"].values())


if __name__ == "__main__":
    raise SystemExit(main())
