"""Build without cuda_ext: with nvcc directly, with CMake and Ninja, and with PyTorch's extensions."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.processes import CORES, benchmark_environment, find_program, run, temporary_directory

from builds.checks import check_fatbins
from builds.measuring import Contender, Sample
from builds.workloads import Unit, Workload

NINJA = f"CMake + Ninja, -j{CORES}"


@dataclass(frozen=True, slots=True)
class Invocation:
    """Run nvcc: `threads` in each process, `jobs` processes at once, or one process for all files."""

    label: str
    threads: int
    jobs: int = 1
    single: bool = False


REFERENCE = Invocation("nvcc -t2, one by one", 2)
INVOCATIONS = (
    REFERENCE,
    Invocation("nvcc -t0, one by one", 0),
    Invocation(f"nvcc -t1, {CORES} at a time", 1, CORES),
    Invocation(f"nvcc -t2, {CORES} at a time", 2, CORES),
    Invocation("nvcc -t0, all in one call", 0, single=True),
)


def build_with_nvcc(workload: Workload, invocation: Invocation, nvcc: Path, directory: Path) -> Contender:
    """Build with nvcc. Times are scaled to the whole project if `workload` is a sample of it."""

    def take_turn() -> Iterator[Sample]:
        with temporary_directory(directory) as place:
            sources = _write_sources(workload, place / "sources")
            commands = list(_commands(workload, sources, invocation, nvcc, place))
            seconds = _run_all(commands, invocation.jobs)
            check_fatbins(workload.units, place)
            yield Sample(invocation.label, seconds / workload.share)

    return Contender(invocation.label, take_turn)


def build_with_cmake(workload: Workload, nvcc: Path, directory: Path) -> Contender:
    """Build with custom commands and depfiles, then again without changes."""
    cmake, ninja = find_program("cmake"), find_program("ninja")

    def take_turn() -> Iterator[Sample]:
        if cmake is None or ninja is None:
            raise RuntimeError(f"{'ninja' if cmake else 'cmake'} is not installed")
        with temporary_directory(directory) as place:
            sources = _write_sources(workload, place / "sources")
            build = place / "build"
            _write_cmake_project(workload, sources, nvcc, place)
            generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
            configuring = run([cmake, "-S", place, "-B", build, *generator]).seconds
            building = run([ninja, "-C", build, f"-j{CORES}"]).seconds
            check_fatbins(workload.units, build)
            yield Sample(NINJA, configuring + building / workload.share)
            yield Sample(f"{NINJA}, no changes", run([ninja, "-C", build, f"-j{CORES}"]).seconds)

    return Contender(NINJA, take_turn)


def build_torch_extension(directory: Path) -> Contender:
    """Build one trivial kernel with ``torch.utils.cpp_extension.load``."""

    def take_turn() -> Iterator[Sample]:
        if importlib.util.find_spec("torch") is None:
            raise RuntimeError("torch is not installed in this Python")
        with temporary_directory(directory) as place:
            (place / "fill.cu").write_text(_TORCH_SOURCE, encoding="utf-8")
            environment = benchmark_environment(TORCH_EXTENSIONS_DIR=place, MAX_JOBS=CORES)
            completed = run([sys.executable, "-c", _TORCH_LOAD, place / "fill.cu"], environment=environment)
            yield Sample("PyTorch extension, one kernel", completed.seconds)

    return Contender("PyTorch extension", take_turn)


def _run_all(commands: Sequence[Sequence[str]], jobs: int) -> float:
    """Run `commands`, `jobs` at a time; return the wall time in seconds."""
    began = time.perf_counter()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            list(pool.map(run, commands))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return time.perf_counter() - began


def _write_sources(workload: Workload, target: Path) -> Path:
    """Copy the project; every source instantiates its templates itself."""
    shutil.copytree(workload.root, target)
    for unit in workload.units:
        if unit.instantiate:
            with (target / unit.source).open("a", encoding="utf-8") as file:
                addresses = ", ".join(f"(void*)&{expression}" for expression in unit.instantiate)
                file.write(f"\nstatic void* const instantiated[] = {{{addresses}}};\n")
    return target


def _commands(
    workload: Workload, sources: Path, invocation: Invocation, nvcc: Path, output: Path
) -> Iterator[list[str]]:
    if not invocation.single:
        for unit in workload.units:
            files = [str(sources / unit.source), "-o", str(output / f"{unit.source.stem}.fatbin")]
            yield [str(nvcc), f"-t{invocation.threads}", *_options(unit, sources), *files]
        return
    by_options: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for unit in workload.units:
        by_options[tuple(_options(unit, sources))].append(str(sources / unit.source))
    for options, files in by_options.items():
        yield [str(nvcc), f"-t{invocation.threads}", *options, *files, "-odir", str(output)]


def _options(unit: Unit, sources: Path) -> list[str]:
    """Return nvcc's options for `unit`; PTX is kept only if it is one of its architectures."""
    codes: dict[str, list[str]] = defaultdict(list)
    for architecture in unit.architectures:
        codes[architecture.partition("_")[2]].append(architecture)
    targets = [f"-gencode=arch=compute_{target},code=[{','.join(names)}]" for target, names in codes.items()]
    linkable = ["-rdc=true"] if unit.relocatable else []
    return ["-fatbin", f"-std={unit.std}", f"-I{sources / 'device'}", *linkable, *targets]


def _write_cmake_project(workload: Workload, sources: Path, nvcc: Path, directory: Path) -> None:
    commands = []
    for unit in workload.units:
        name, source = f"{unit.source.stem}.fatbin", sources / unit.source
        options = " ".join(f'"{option}"' for option in _options(unit, sources))
        commands.append(f"""\
add_custom_command(
  OUTPUT {name}
  COMMAND "{nvcc}" {options} -MD -MF {name}.d -MT {name} "{source}" -o {name}
  DEPENDS "{source}" DEPFILE {name}.d VERBATIM)
""")
    names = " ".join(f"{unit.source.stem}.fatbin" for unit in workload.units)
    header = "cmake_minimum_required(VERSION 3.25)\nproject(by_cmake LANGUAGES NONE)\n"
    text = header + "".join(commands) + f"add_custom_target(all_fatbins ALL DEPENDS {names})\n"
    (directory / "CMakeLists.txt").write_text(text, encoding="utf-8")


_TORCH_SOURCE = """\
#include <torch/extension.h>

__global__ void fill(float* x, int n, float value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = value;
}

void run(torch::Tensor x, float value) {
  fill<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), x.numel(), value);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""

_TORCH_LOAD = """\
import sys
from torch.utils.cpp_extension import load
load(name="fill", sources=[sys.argv[1]], is_python_module=False)
"""
