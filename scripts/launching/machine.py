"""What the figures were measured on."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

from cuda_ext.runtime.driver.driver import open_driver

__all__ = ["machine"]


def machine() -> dict[str, str]:
    driver = open_driver()
    name = driver.call("cuDeviceGetName", 100, 0).decode().strip("\0 ")
    found = {
        "GPU": f"{driver.count} x {name}",
        "driver": "CUDA {}.{}".format(*driver.version),
        "CPU": _processor(),
        "system": platform.platform(),
        "Python": platform.python_version(),
    }
    for package in ("cuda-bindings", "cuda-core", "cupy-cuda13x", "numba-cuda", "torch", "triton", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )
