"""Launching one kernel, with every check.

This is the whole of it, for any argument and any number of GPUs. What :mod:`cuda_ext.runtime.specialised`
makes does the same for common arguments in less time, and comes here with all others.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from cuda_ext import manifest
from cuda_ext.errors import ArgumentError, DriverCallError, LaunchError
from cuda_ext.runtime.arguments import fields, in_order, layout
from cuda_ext.runtime.device_memory import DeviceMemory
from cuda_ext.runtime.driver import Device, Driver, Prepared, open_driver
from cuda_ext.runtime.launch import Launch, LaunchOptions
from cuda_ext.runtime.library import Library
from cuda_ext.runtime.loaded_kernel import LoadedKernel
from cuda_ext.runtime.streams import stream_handle

__all__ = ["Buffer", "Configs", "Launcher"]

# Errors of a kernel that already ran: CUDA_ERROR_ILLEGAL_ADDRESS, _LAUNCH_TIMEOUT, _ASSERT, and from
# _HARDWARE_STACK_ERROR to _LAUNCH_FAILED.
_OF_EARLIER_WORK = {700, 702, 710, *range(714, 720)}
# Handles that stand for streams of every context.
_DEFAULT_STREAMS = {0, 1, 2}

# Memory for the arguments of one launch, the address of the array that points at each, and that array.
Buffer = tuple[bytearray, int, Any]
# By device and stream: the function and its ``CUlaunchConfig``.
Configs = Prepared[tuple[int | None, int], tuple[Any, Any]]


class Launcher:
    """Launches `kernel` of `library`.

    ``ready`` has the kernel on each device where it can be launched without further ado, and under ``None``
    where it runs if no argument tells.
    """

    def __init__(self, library: Library, kernel: manifest.Kernel) -> None:
        self.library = library
        self.kernel = kernel
        self.fields = fields(kernel.parameters)
        self.packing, self._offsets = layout(self.fields)
        self.ready: Prepared[int | None, LoadedKernel] = Prepared()
        # Those that no launch uses at present. None is shared: other threads launch while the driver is at
        # work, and so may a signal's handler in this one.
        self.buffers: list[Buffer] = []

    def launch(
        self,
        arguments: Sequence[object],
        named: Mapping[str, object],
        options: LaunchOptions,
        stream: object,
        configs: Configs | None = None,
    ) -> None:
        """Launch as :meth:`Kernel.__call__` says. `configs` is told how to do so again."""
        try:
            ordered = in_order(self.kernel.parameters, arguments, named)
            values = [field.value(argument) for field, argument in zip(self.fields, ordered, strict=True)]
            handle = None if stream is None else stream_handle(stream)
            driver = open_driver()
            device = self._device(driver, values, handle)
            if handle is None:
                handle = _current_stream(values, device.ordinal)
            loaded = self.loaded(device)
            launch = Launch.checked(options, loaded)
        except ArgumentError as error:
            raise ArgumentError(f"{error}\n  in a launch of {self.kernel.signature}") from None
        self._submit(loaded, launch, handle, values)
        if driver.count == 1:
            for key in (None, device.ordinal):
                self.ready[key] = loaded
                if configs is not None:
                    configs[key, handle] = loaded.function, launch.config(driver.api, handle)

    def loaded(self, device: Device) -> LoadedKernel:
        return self.library.kernel(self.kernel, device)

    def refused(self, error: DriverCallError, driver: Driver, launch: Launch) -> NoReturn:
        """Raise what `error` means for a launch."""
        note = f"; {driver.fault}" if driver.fault else ""
        if error.code in _OF_EARLIER_WORK:
            note = note or "; the fault may be of earlier work on this GPU"
            driver.fault = driver.fault or (
                f"after the first such error, in or before a launch of {self.kernel.expression}, no work on "
                "the GPU succeeds in this process any more; start another"
            )
        raise LaunchError(f"{self.kernel.expression}: {error}; launched with {launch}{note}") from None

    def _device(self, driver: Driver, values: Sequence[Any], stream: int | None) -> Device:
        """Where the arrays lie; or else where the stream is, or the current context."""
        if driver.count == 1:
            return driver.device(0)
        places: dict[int, str] = {}
        for field, value in zip(self.fields, values, strict=True):
            if isinstance(value, DeviceMemory) and (ordinal := _place(driver, value)) is not None:
                places.setdefault(ordinal, field.parameter.name)
        if len(places) > 1:
            (here, first), (there, second), *_ = places.items()
            raise ArgumentError(
                f"argument {second!r}: is on GPU {there}, and {first!r} is on GPU {here}; "
                "a kernel runs on one"
            )
        for ordinal in places:
            return driver.device(ordinal)
        if stream is not None and stream not in _DEFAULT_STREAMS:
            context = driver.call("cuStreamGetCtx", stream)
            driver.call("cuCtxPushCurrent", context)
            try:
                return driver.device(int(driver.call("cuCtxGetDevice")))
            finally:
                driver.call("cuCtxPopCurrent")
        return driver.current_device()

    def _submit(self, loaded: LoadedKernel, launch: Launch, stream: int, values: Sequence[Any]) -> None:
        driver = loaded.device.driver
        buffer = self.buffers.pop() if self.buffers else self._new_buffer()
        memory, addresses, _ = buffer
        self.packing.pack_into(memory, 0, *(v.address if isinstance(v, DeviceMemory) else v for v in values))
        try:
            with loaded.device.current():
                if launch.plain:
                    shape = *launch.grid, *launch.block, launch.shared
                    driver.call("cuLaunchKernel", loaded.function, *shape, stream, addresses, 0)
                else:
                    config = launch.config(driver.api, stream)
                    driver.call("cuLaunchKernelEx", config, loaded.function, addresses, 0)
        except DriverCallError as error:
            self.refused(error, driver, launch)
        finally:
            self.buffers.append(buffer)

    def _new_buffer(self) -> Buffer:
        memory = bytearray(self.packing.size)
        start = ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory))
        addresses = (ctypes.c_void_p * len(self._offsets))(*(start + offset for offset in self._offsets))
        return memory, ctypes.addressof(addresses), addresses


def _place(driver: Driver, memory: DeviceMemory) -> int | None:
    if memory.device is not None or memory.stream is None or not memory.address:
        return memory.device
    attribute = driver.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(driver.call("cuPointerGetAttribute", attribute, memory.address))


def _current_stream(values: Sequence[Any], device: int) -> int:
    """The stream that the framework of the first array works in; the default stream where there is none."""
    for value in values:
        if isinstance(value, DeviceMemory) and value.stream is not None:
            return value.stream(device)
    return 0
