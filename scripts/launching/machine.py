"""Describe the GPU, the machine and the packages that launches were measured with."""

from __future__ import annotations

import ctypes
import platform
from importlib import metadata

from bench.machine import read_load, read_processor

from cuda_ext.runtime.driver.driver import open_driver


def describe_gpu_machine() -> dict[str, str]:
    driver = open_driver()
    name = ctypes.create_string_buffer(100)
    driver.call("cuDeviceGetName", ctypes.addressof(name), len(name), 0)
    machine = {
        "GPU": f"{driver.count} x {name.value.decode()}",
        "driver": "CUDA {}.{}".format(*driver.version),
        "CPU": read_processor(),
        "load before": read_load(),
        "system": platform.platform(),
        "Python": platform.python_version(),
    }
    for package in ("cuda-bindings", "cuda-core", "cupy-cuda13x", "numba-cuda", "torch", "triton", "numpy"):
        try:
            machine[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            machine[package] = "not installed"
    return machine
