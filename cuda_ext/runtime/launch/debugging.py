"""``CUDA_EXT_DEBUG=1``: slow launches that attribute errors to the kernel that caused them.

The arrays of each launch are checked before it, and the stream is synchronized after it, so that an error
names the kernel, its arguments and its launch configuration.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

from cuda_ext.errors import ArgumentError, DriverCallError
from cuda_ext.manifest import Kernel
from cuda_ext.runtime.arrays.device_memory import ArrayLayout, DeviceMemory, array_layout
from cuda_ext.runtime.arrays.dtypes import alignment
from cuda_ext.runtime.arrays.host_arrays import HostArray
from cuda_ext.runtime.driver import cuda_h
from cuda_ext.runtime.driver.driver import Device, Driver
from cuda_ext.runtime.driver.functions import OUT
from cuda_ext.runtime.launch.arguments import Field

__all__ = ["check_arguments", "synchronize"]


def check_arguments(
    kernel: Kernel,
    fields: Sequence[Field],
    arguments: Sequence[object],
    values: Sequence[Any],
    device: Device,
) -> str:
    """Check the arrays of a launch and describe all its arguments for error messages.

    `values` are what is passed for `arguments`. Raises :class:`ArgumentError` for a view with gaps, and for
    an array that is not aligned to its elements or reaches beyond its allocation.
    """
    lines = [f"\n  in a launch of {kernel.signature}"]
    with device.current():
        for field, argument, value in zip(fields, arguments, values, strict=True):
            name = field.parameter.name
            try:
                lines.append(f"    {name} = {_check_argument(field, argument, value, device)}")
            except ArgumentError as error:
                error.where = f"argument {name!r}"
                raise
    return "\n".join(lines)


def _check_argument(field: Field, argument: object, value: Any, device: Device) -> str:
    if isinstance(value, HostArray):
        return f"{value.owner.dtype} array of shape {value.owner.shape} in host memory"
    if not isinstance(value, DeviceMemory) or not value.address:
        return reprlib.repr(argument)
    layout = array_layout(argument)
    _check_array(field, value.address, layout, device)
    place = f"{value.address:#x} on GPU {device.ordinal if value.device is None else value.device}"
    return f"{value.dtype or 'an'} array of shape {layout.shape} at {place}" if layout else place


def synchronize(device: Device, stream: int) -> None:
    """Synchronize `stream`, unless it is being captured into a graph.

    Raises :class:`DriverCallError` for an error of the work in it.
    """
    with device.current():
        if not device.driver.query("cuStreamIsCapturing", stream, OUT):
            device.driver.call("cuStreamSynchronize", stream)


def _check_array(field: Field, address: int, layout: ArrayLayout | None, device: Device) -> None:
    element = field.parameter.element or "void"
    if element.endswith(")"):  # a pointer to a function
        return
    if layout is not None and not layout.contiguous:
        raise ArgumentError(
            f"expected a contiguous array, found a view of shape {layout.shape} with strides of "
            f"{layout.strides} bytes",
            remedy="the kernel sees the memory, not the view: pass a contiguous copy, or the address alone "
            "if the kernel knows the strides",
        )
    if layout is not None and not layout.size:
        return
    if address % alignment(element):
        raise ArgumentError(
            f"expected an address that is a multiple of {alignment(element)}, as {element} is aligned, found "
            f"{address:#x}"
        )
    _check_memory(address, layout.size if layout else 1, device)


def _check_memory(address: int, size: int, device: Device) -> None:
    """Check that `size` bytes at `address` lie in one allocation that `device` can access."""
    driver = device.driver
    try:
        start = driver.pointer_attribute(cuda_h.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address)
        end = start + driver.pointer_attribute(cuda_h.CU_POINTER_ATTRIBUTE_RANGE_SIZE, address)
    except DriverCallError as error:
        if driver.fault:
            raise
        raise ArgumentError(
            f"expected memory on GPU {device.ordinal}, found {address:#x}, which is in no allocation",
            remedy=f"perhaps it has been freed ({error})",
        ) from None
    if address + size > end:
        raise ArgumentError(
            f"expected an array within its allocation, found one of {size} bytes at {address:#x}, which ends "
            f"{address + size - end} bytes behind the {end - start} bytes at {start:#x}"
        )
    if (ordinal := _device_of(driver, address)) not in (None, device.ordinal):
        raise ArgumentError(
            f"expected memory on GPU {device.ordinal}, found {address:#x}, which is on GPU {ordinal}"
        )


def _device_of(driver: Driver, address: int) -> int | None:
    """The GPU whose memory is at `address`; ``None`` if all GPUs can access it."""
    if driver.count == 1 or driver.pointer_attribute(cuda_h.CU_POINTER_ATTRIBUTE_IS_MANAGED, address):
        return None
    # Every GPU can access page-locked host memory.
    kind = driver.pointer_attribute(cuda_h.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
    if kind == cuda_h.CU_MEMORYTYPE_HOST:
        return None
    return driver.pointer_attribute(cuda_h.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)
