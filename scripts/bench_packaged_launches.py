"""Compare first and later launches of the kernels of ``bench_packages.py``, packaged in four ways, on a GPU.

Builds each contender with the running Python and its packages, for the architectures of that script, all at
once. ``first`` is the time from the import of the package to the result of its first kernel, in a new process
that has imported the framework and opened the context. ``launch`` is a launch with tensors of PyTorch, as the
users of a package write it, beside ``cuLaunchKernel`` in a loop in C in the same process. Contenders take
turns. Needs PyTorch, ``cuda-ext[cu13]`` and a C compiler; for the others, scikit-build-core with nanobind,
CMake and Ninja, setuptools and pip, nvcc and a host compiler, and CuPy. What is missing is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from _environment import ROOT
from bench.processes import benchmark_environment, run
from bench.tables import format_pairs, format_spread, format_table
from launching import kernels
from launching.machine import describe_gpu_machine
from packages.contenders import CONTENDERS, Contender, parse_contenders

from cuda_ext.builder.project import Project
from cuda_ext.builder.session import build_project
from cuda_ext.errors import CudaExtError

_SCRIPTS = Path(__file__).parent
_HEAD = ("", "first, ms", "launch, µs", "C, µs", "launch / C")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    keys = ",".join(contender.key for contender in CONTENDERS)
    parser.add_argument("--only", type=parse_contenders, default=CONTENDERS, help=f"contenders of {keys}")
    parser.add_argument("--processes", type=int, default=7, help="processes for each first launch; 7")
    parser.add_argument("--rounds", type=int, default=40, help="rounds of launches; 40")
    parser.add_argument("--batch", type=int, default=200, help="launches of a round; 200")
    arguments = parser.parse_args()
    try:
        print(format_pairs(describe_gpu_machine()), flush=True)
    except CudaExtError as error:
        sys.exit(f"{Path(__file__).name}: {error}")
    with tempfile.TemporaryDirectory(prefix="bench_packaged_launches-") as name:
        work = Path(name)
        left_out: dict[str, str] = {}
        with ThreadPoolExecutor() as pool:
            builds = [(contender, pool.submit(_install, contender, work)) for contender in arguments.only]
            compared = kernels.build(work / "compared")
        for contender, build in builds:
            try:
                build.result()
            except RuntimeError as error:
                left_out[contender.title] = str(error)
        built = [contender for contender, _ in builds if contender.title not in left_out]
        rows = _measure(built, work, compared, arguments)
    print(f"\n{format_table(_HEAD, rows)}")
    for title, reason in left_out.items():
        print(f"\nnot measured: {title}: {reason}")
    return 0


def _install(contender: Contender, work: Path) -> None:
    """Build the contender, and install it into its directory in `work`. Raises :class:`RuntimeError`."""
    tree, site = work / "projects" / contender.key, work / contender.key
    shutil.copytree(contender.project, tree)
    shutil.copytree(contender.project.parent / "device", tree / "device")
    if contender.key == "cuda_ext":  # as its command does, without an entry point of an installation
        for package in build_project(Project.required(tree)):
            package.write(tree / "src" / Path(*package.name.split(".")))
        shutil.copytree(tree / "src", site)
        return
    pip = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index"]
    environment = benchmark_environment(**contender.variables)
    run([*pip, "--target", site, tree], directory=tree, environment=environment)


def _measure(
    contenders: list[Contender], work: Path, compared: Path, arguments: argparse.Namespace
) -> list[list[str]]:
    first: dict[str, list[float]] = {}
    for number in range(arguments.processes):
        for contender in contenders:
            title, cache = contender.title, work / f"cache{number}"
            first.setdefault(title, []).append(_launch(contender, work, cache, "first"))
            if not contender.compiles:
                again = _launch(contender, work, cache, "first")
                first.setdefault(f"{title}, from its cache", []).append(again)
    rows = []
    many = [compared, work, arguments.rounds, arguments.batch]
    for contender in contenders:
        in_c, launch = _launch(contender, work, work / "cache", "many", *many)
        shown = [f"{launch:.2f}", f"{in_c:.2f}", f"{launch / in_c:.2f}"]
        rows.append([contender.title, format_spread(first.pop(contender.title), 1), *shown])
    return [*rows, *([title, format_spread(taken, 1), "", "", ""] for title, taken in first.items())]


def _launch(contender: Contender, work: Path, cache: Path, *arguments: object) -> object:
    """Run ``packages/launches.py`` for the contender; `cache` is that of CuPy."""
    path = os.pathsep.join(map(str, (work / contender.key, _SCRIPTS, ROOT, os.environ.get("PYTHONPATH", ""))))
    environment = benchmark_environment(PYTHONPATH=path.rstrip(os.pathsep), CUPY_CACHE_DIR=cache)
    script = _SCRIPTS / "packages" / "launches.py"
    command = [sys.executable, script, contender.key, *arguments]
    return json.loads(run(command, environment=environment, timeout=300).output.splitlines()[-1])


if __name__ == "__main__":
    raise SystemExit(main())
