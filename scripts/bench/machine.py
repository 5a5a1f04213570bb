"""Describe the machine and the compilers that results were measured with."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from bench.processes import CORES, find_program, run
from cuda_ext.toolchain.nvcc import Nvcc
from cuda_ext.toolchain.nvrtc import Nvrtc


def describe_machine(nvcc: Nvcc | None) -> dict[str, str]:
    host = os.environ.get("NVCC_CCBIN") or shutil.which("gcc") or shutil.which("clang")
    return {
        "CPU": f"{read_processor()}, {CORES} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "load before": read_load(),
        "system": f"{_read_system()}, {platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
        "NVRTC": Nvrtc().version,
        "nvcc": f"{nvcc.version}, {nvcc.executable}" if nvcc else "none",
        "host compiler": read_version(host),
        "CMake": read_version(find_program("cmake")),
        "Ninja": read_version(find_program("ninja")),
    }


def read_load() -> str:
    """Return the load averages of the last 1, 5 and 15 minutes."""
    return " ".join(f"{load:.1f}" for load in os.getloadavg())


def read_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown")


def read_version(program: str | None) -> str:
    """Return the first line that `program` prints for ``--version``."""
    return run([program, "--version"]).output.partition("\n")[0] if program else "none"


def _read_system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()
