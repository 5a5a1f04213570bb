"""The compute capabilities of the GPUs in this machine, for the architecture group ``native``."""

from __future__ import annotations

from typing import Any

__all__ = ["capabilities"]


def capabilities() -> list[int]:
    """Ask the driver; an empty list where there is no driver or no GPU.

    Only ``cuInit`` and queries that need no context are called.
    """
    try:
        from cuda.bindings import driver

        cuda: Any = driver
        if int(cuda.cuInit(0)[0]) != 0:
            return []
        _, count = cuda.cuDeviceGetCount()
        major = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        minor = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
        found = {
            10 * cuda.cuDeviceGetAttribute(major, device)[1] + cuda.cuDeviceGetAttribute(minor, device)[1]
            for device in range(count)
        }
    except (ImportError, OSError, RuntimeError, ValueError):
        return []
    return sorted(found)
