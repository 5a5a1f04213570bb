"""``CUDA_EXT_DEBUG=1``: slow launches that find the kernel that caused an error.

The arrays of each launch are checked before it, and the stream is synchronized after it, so that an error
names the kernel, its arguments and its launch configuration.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

from cuda_ext.errors import ArgumentError
from cuda_ext.facts.kernels import Kernel
from cuda_ext.runtime.arrays.device_memory import ArrayLayout, DeviceMemory, array_layout
from cuda_ext.runtime.arrays.dtypes import alignment
from cuda_ext.runtime.arrays.host_arrays import HostArray
from cuda_ext.runtime.driver import cuda_h
from cuda_ext.runtime.driver.driver import Device
from cuda_ext.runtime.driver.functions import OUT
from cuda_ext.runtime.launch.arguments import Field


def check_arguments(
    kernel: Kernel,
    fields: Sequence[Field],
    arguments: Sequence[object],
    values: Sequence[Any],
    device: Device,
) -> str:
    """Check the arrays of a launch and describe all its arguments for error messages.

    `values` are passed for `arguments`. Raises :class:`ArgumentError` for an array that is not aligned to its
    elements, or with an element outside of the allocation.
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
    if layout is None:
        return place
    strides = "" if layout.contiguous else f" with strides of {layout.strides} bytes"
    return f"{value.dtype or 'an'} array of shape {layout.shape}{strides} at {place}"


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
    reach = layout.reach if layout else range(1)
    if not reach:
        return
    if address % alignment(element):
        raise ArgumentError(
            f"expected an address that is a multiple of {alignment(element)}, as {element} is aligned, found "
            f"{address:#x}"
        )
    _check_memory(address, reach, device)


def _check_memory(address: int, reach: range, device: Device) -> None:
    """Check that the `reach` from `address` lies in one allocation that `device` can access."""
    kind, is_managed, ordinal, start, size = device.driver.pointer_attributes(
        address,
        cuda_h.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        cuda_h.CU_POINTER_ATTRIBUTE_IS_MANAGED,
        cuda_h.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        cuda_h.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        cuda_h.CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    )
    if not kind:
        raise ArgumentError(
            f"expected memory on GPU {device.ordinal}, found {address:#x}, which is in no allocation",
            remedy="perhaps it has been freed",
        )
    before, behind = start - (address + reach.start), address + reach.stop - (start + size)
    if before > 0 or behind > 0:
        where = f"begins {before} bytes before" if before > 0 else f"ends {behind} bytes behind"
        raise ArgumentError(
            f"expected an array within its allocation, found one of {len(reach)} bytes at "
            f"{address + reach.start:#x}, which {where} the {size} bytes at {start:#x}"
        )
    # Every GPU can access managed memory and page-locked host memory.
    is_everywhere = is_managed or kind == cuda_h.CU_MEMORYTYPE_HOST
    if not is_everywhere and ordinal != device.ordinal:
        raise ArgumentError(
            f"expected memory on GPU {device.ordinal}, found {address:#x}, which is on GPU {ordinal}"
        )
