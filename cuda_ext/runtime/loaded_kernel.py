"""A kernel in the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from cuda_ext.errors import ArgumentError
from cuda_ext.runtime import driver as cuda
from cuda_ext.runtime.driver import Device
from cuda_ext.runtime.launch import Launch

__all__ = ["LoadedKernel"]

# What a block gets of shared memory, static and dynamic together, unless the kernel is allowed more.
_DEFAULT_SHARED_MEMORY = 48 << 10


class LoadedKernel:
    """A kernel on one device; `handle` is its ``CUkernel``."""

    def __init__(self, device: Device, handle: Any) -> None:
        self._device = device
        self._handle = handle
        # The driver takes a kernel wherever it takes a function.
        self._function = device.driver.api.CUfunction(int(handle))
        attribute = device.driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
        self._static = device.driver.call("cuKernelGetAttribute", attribute, handle, device.ordinal)
        self._allowed = max(0, _DEFAULT_SHARED_MEMORY - self._static)

    def launch(self, launch: Launch, arguments: bytearray, offsets: Sequence[int]) -> None:
        """Launch in the current context with `arguments`, which lie at `offsets`.

        Raises :class:`ArgumentError` for more shared memory than the device has, and
        :class:`~cuda_ext.errors.DriverCallError` if the driver refuses.
        """
        if launch.shared > self._allowed:
            self._allow(launch.shared)
        # Both arrays belong to this call alone: other threads launch while the driver is at work.
        buffer = (ctypes.c_char * len(arguments)).from_buffer(arguments)
        start = ctypes.addressof(buffer)
        addresses = (ctypes.c_void_p * len(offsets))(*(start + offset for offset in offsets))
        shape = self._function, *launch.grid, *launch.block, launch.shared, launch.stream
        if launch.cooperative:
            self._device.driver.call("cuLaunchCooperativeKernel", *shape, ctypes.addressof(addresses))
        else:
            self._device.driver.call("cuLaunchKernel", *shape, ctypes.addressof(addresses), 0)

    def _allow(self, shared: int) -> None:
        device = self._device
        if shared > (most := device.shared_memory_limit - self._static):
            raise ArgumentError(
                f"shared: expected at most {most} bytes, found {shared}; a block on this GPU, {device}, has "
                f"{device.shared_memory_limit}, of which the kernel's own variables take {self._static}"
            )
        with cuda.lock:
            # Never less than another thread needs.
            if shared > self._allowed:
                attribute = (
                    device.driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                )
                device.driver.call("cuKernelSetAttribute", attribute, shared, self._handle, device.ordinal)
                self._allowed = shared
