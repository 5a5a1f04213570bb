"""What machine and which compilers the figures are of."""

from __future__ import annotations

import os
import platform
import re
import shutil
from pathlib import Path

from bench._processes import CORES, find_program, run
from cuda_ext.toolchain.nvcc import Nvcc
from cuda_ext.toolchain.nvrtc import Nvrtc

__all__ = ["describe_machine"]


def describe_machine(nvcc: Nvcc | None) -> dict[str, str]:
    host = os.environ.get("NVCC_CCBIN") or shutil.which("gcc") or shutil.which("clang")
    return {
        "CPU": f"{_cpu()}, {CORES} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "load before": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        "system": f"{_system()}, {platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
        "NVRTC": Nvrtc().version,
        "nvcc": f"{nvcc.version}, {nvcc.executable}" if nvcc else "none",
        "host compiler": _first_line(host),
        "CMake": _first_line(find_program("cmake")),
        "Ninja": _first_line(find_program("ninja")),
    }


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or "unknown"


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()


def _first_line(program: str | None) -> str:
    return run([program, "--version"]).output.partition("\n")[0] if program else "none"
