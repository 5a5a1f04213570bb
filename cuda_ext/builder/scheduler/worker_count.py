"""The number of processes that compile at a time."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from cuda_ext.errors import ConfigError

# The memory that a compilation with CUB needs, in bytes.
_MEMORY_OF_A_WORKER = 1 << 30
_MOST = 1024
_CGROUP = Path("/sys/fs/cgroup")


def worker_count(environ: Mapping[str, str], warn: Callable[[str], None] = lambda _: None) -> int:
    """Return ``MAX_JOBS``, or else the number of cores, limited by the available memory."""
    if text := environ.get("MAX_JOBS", "").strip():
        if not (match := re.fullmatch("0*([1-9][0-9]*)", text)):
            raise ConfigError(
                f"{text!r} is not a number of processes",
                where="MAX_JOBS",
                remedy=f"write one from 1 to {_MOST}",
            )
        if len(match[1]) <= len(str(_MOST)) and int(match[1]) <= _MOST:
            return int(match[1])
        warn(f"MAX_JOBS: {_MOST} processes compile, which is the limit")
        return _MOST
    return max(1, min(_available_cores(), _available_memory() // _MEMORY_OF_A_WORKER))


# Determined here, since importing loky takes longer than a small build, and psutil knows no cgroups.
def _available_cores() -> int:
    """Return the number of cores that this process, or its container, may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = (_CGROUP / "cpu.max").read_text().split()
        cores = min(cores, math.ceil(int(quota) / int(period)))
    return cores


def _available_memory() -> int:
    """Return the free memory of this machine, or of the process's container, in bytes."""
    available = sys.maxsize
    with suppress(OSError, ValueError, IndexError):
        kilobytes = Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]
        available = int(kilobytes) << 10
    with suppress(OSError, ValueError):
        available = min(available, int((_CGROUP / "memory.max").read_text()))
    return available
