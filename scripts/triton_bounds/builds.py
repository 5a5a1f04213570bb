"""Build 256 images of a Triton kernel, against Triton's compiler alone; and build again without changes."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from _environment import ROOT
from bench.processes import CORES, Completed, benchmark_environment, run, start, temporary_directory

Samples = dict[str, list[float]]
IMAGES = 256
SOURCE = ROOT / "examples" / "front_ends" / "kernels" / "softmax.py"
COMPILE = Path(__file__).with_name("compile_alone.py")
TRITON_TABLE = """
[project]
name = "bench-triton"
[tool.cuda_ext.modules."bench_triton.kernels"]
sources = ["kernels/softmax.py"]
architectures = ["sm_80", "sm_86", "sm_90", "sm_100"]
emit = "cubin"
[[tool.cuda_ext.modules."bench_triton.kernels".overrides]]
sources = ["kernels/softmax.py"]
instantiate = [
  { kernel = "softmax(out: *{O}:16, x: *{T}:16, stride: i32:16, n_cols: i32:16, scale: fp32, BLOCK={B})", \
O = ["fp16", "fp32"], T = ["fp16", "fp32"], B = [128, 256, 512, 1024, 2048, 4096, 8192, 16384] },
]
"""
CUDA_TABLE = f"""
[project]
name = "bench-cuda"
[tool.cuda_ext.modules."bench_cuda.kernels"]
architectures = ["sm_80", "sm_86", "sm_90", "sm_100"]
instantiate = [{{ kernel = "fill<{{N}}>", N = {[*range(IMAGES // 4)]} }}]
split-instantiations = true
emit = "cubin"
"""
KERNEL = "template <int n> __global__ void fill(float* x, float value) { x[n * threadIdx.x] = value; }\n"
NOT_IMPORTED = (
    "import sys; from cuda_ext.__main__ import main\n"
    "try: main()\n"
    "except SystemExit as end: assert not end.code, end.code\n"
    "loaded = {'triton', 'torch', 'numpy'} & sys.modules.keys()\n"
    "assert not loaded, loaded\n"
)


def measure_build(work: Path, rounds: int) -> Samples:
    """The seconds, and seconds of CPU time, of a cold build and of Triton alone in as many processes."""
    samples: Samples = {}
    environment = _environment(work)
    for round_ in range(rounds + 1):  # the first writes bytecode
        taken = {
            "cuda-ext build": _timed(lambda: _build_cold(work, environment)),
            f"triton.compile alone, {CORES} processes": _timed(lambda: _compile_alone(work, environment)),
        }
        for name, (wall, cpu) in taken.items():
            if round_:
                samples.setdefault(f"{name}, wall", []).append(wall)
                samples.setdefault(f"{name}, CPU", []).append(cpu)
    return samples


def measure_no_change(work: Path, rounds: int) -> Samples:
    """The seconds of builds that have nothing to do: of images of Triton, and of as many of CUDA C++."""
    samples: Samples = {}
    environment = _environment(work)
    with temporary_directory(work) as directory:
        projects = {
            "no changes, Triton": _write(directory / "triton", TRITON_TABLE, SOURCE.read_text()),
            "no changes, CUDA C++": _write(directory / "cuda", CUDA_TABLE, ""),
        }
        variables = environment | {"CUDA_EXT_CACHE": str(directory / "cache")}
        for round_ in range(rounds + 2):  # the first builds, and the second writes bytecode
            for name, root in projects.items():
                done = _build(root, variables)
                if round_ > 1:
                    samples.setdefault(name, []).append(done.seconds)
        for root in projects.values():
            check = [sys.executable, "-c", NOT_IMPORTED, "build", "--output", root / "out"]
            run(check, directory=root, environment=variables)
    return samples


def _environment(work: Path) -> dict[str, str]:
    return benchmark_environment(PYTHONPATH=ROOT, PYTHONPYCACHEPREFIX=work / "bytecode", MAX_JOBS=CORES)


def _write(root: Path, table: str, source: str) -> Path:
    (root / "kernels").mkdir(parents=True)
    (root / "device").mkdir()
    (root / "pyproject.toml").write_text(table)
    (root / "kernels" / "softmax.py").write_text(source)
    (root / "device" / "fill.cu").write_text(KERNEL)
    return root


def _build(root: Path, environment: dict[str, str]) -> Completed:
    command = [sys.executable, "-m", "cuda_ext", "build", "--output", root / "out"]
    return run(command, directory=root, environment=environment)


def _build_cold(work: Path, environment: dict[str, str]) -> float:
    with temporary_directory(work) as directory:
        root = _write(directory / "project", TRITON_TABLE, SOURCE.read_text())
        done = _build(root, environment | {"CUDA_EXT_CACHE": str(directory / "cache")})
        images = len(list(root.glob("out/**/*.cubin")))
        if images != IMAGES:
            raise RuntimeError(f"built {images} images, not {IMAGES}:\n{done.output}")
        return done.seconds


def _compile_alone(work: Path, environment: dict[str, str]) -> float:
    with temporary_directory(work) as directory:
        variables = environment | {"TRITON_CACHE_DIR": str(directory)}
        commands = [[sys.executable, COMPILE, SOURCE, number, CORES] for number in range(CORES)]
        processes = [start(command, environment=variables) for command in commands]
        for process in processes:
            output, errors = process.communicate()
            if process.returncode:
                raise RuntimeError(output + errors)
    return 0.0


def _timed(action: Callable[[], object]) -> tuple[float, float]:
    """The wall time of `action`, and the CPU time of its processes, in seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    action()
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
