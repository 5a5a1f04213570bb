"""Copies of host arrays in device memory, for one launch or for all launches in a device scope."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from cuda_ext.errors import ArgumentError, DriverCallError
from cuda_ext.runtime.arrays.host_arrays import HostArray
from cuda_ext.runtime.arrays.staging import Copy, staging_of
from cuda_ext.runtime.driver.driver import Device, ProcessCache

__all__ = ["DeviceCopies", "memory_pool"]

# The unused memory that a pool keeps, in bytes: allocating new memory takes longer than filling it.
_POOL_SIZE = 1 << 30

_Range = tuple[int, int]


@dataclass(slots=True, eq=False)
class _Block:
    """Device memory at `address` with a copy of the host memory from `start` to `stop`.

    `owners` keep the host memory alive. `stream` used the block last, and `keep` keeps that alive. `written`
    are the ranges of host memory that kernels have written in the block and that are not copied back yet.
    """

    start: int
    stop: int
    owners: list[object]
    device: Device
    address: int
    stream: int
    keep: object
    written: set[_Range] = field(default_factory=set)

    def copies(self, ranges: Iterable[_Range]) -> list[Copy]:
        return [Copy(start, self.address + start - self.start, stop - start) for start, stop in ranges]

    def use_in(self, stream: int, keep: object) -> None:
        """Order later work in `stream` after all earlier work on this block."""
        if stream == self.stream:
            return
        driver = self.device.driver
        event = driver.call("cuEventCreate", driver.api.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        try:
            driver.call("cuEventRecord", event, self.stream)
            driver.call("cuStreamWaitEvent", stream, event, 0)
        finally:
            driver.call("cuEventDestroy", event)
        self.stream, self.keep = stream, keep

    def synchronize(self) -> None:
        """Wait for the work on this block."""
        with self.device.current():
            self.device.driver.call("cuStreamSynchronize", self.stream)


class DeviceCopies:
    """Copies of host memory on GPUs, for any thread. Arrays that overlap share one copy.

    Memory that `outer` has a copy of is used there instead of being copied again.
    """

    def __init__(self, outer: DeviceCopies | None = None) -> None:
        self.released = False
        self.outer = outer
        self._blocks: list[_Block] = []
        self._lock: RLock = outer._lock if outer else RLock()

    @contextmanager
    def place(
        self, device: Device, stream: int, keep: object, arrays: Sequence[HostArray]
    ) -> Iterator[list[int]]:
        """Copy `arrays` to `device` unless they are there, and give their addresses, for work in `stream`.

        Submit the work within the ``with`` block; if that raises, nothing has changed. `keep` keeps the
        stream alive. The context of `device` must be current.
        """
        new: list[_Block] = []
        with self._lock:
            if self.released:
                raise ArgumentError(
                    "the device scope of this launch has ended", remedy="launch within its with block"
                )
            self._check_strided(arrays)
            block_of: dict[HostArray, _Block] = {}
            try:
                for group in _overlapping_groups(arrays):
                    block = self._find_block(group, device)
                    if block is None:
                        block = _allocate_block(group, device, stream, keep)
                        new.append(block)
                    block.use_in(stream, keep)
                    block_of |= dict.fromkeys(group, block)
                _copy_in(new, arrays, block_of)
                yield [
                    block_of[array].address + array.start - block_of[array].start if array in block_of else 0
                    for array in arrays
                ]
            except BaseException:
                _free_blocks(new)
                raise
            for array, block in block_of.items():
                if array.writes:
                    block.written.add((array.start, array.stop))
            # The contiguous copies of strided arrays are for this launch only.
            temporary = [block_of[array] for array in arrays if array.strided and array in block_of]
            self._blocks += (block for block in new if block not in temporary)
            _free_blocks(temporary)

    def device_of(self, array: HostArray) -> int | None:
        """The GPU that has a copy of `array`, or of a part of it; ``None`` if there is none."""
        with self._lock:
            overlapping = self._overlapping_blocks((array.start, array.stop))
            return overlapping[0].device.ordinal if overlapping else None

    def copy_back(self, wait: bool = True) -> None:
        """Copy to the host what kernels wrote. Wait for the kernels first, unless they have finished."""
        with self._lock:
            written = [block for block in self._blocks if block.written]
            if wait:
                for block in written:
                    block.synchronize()
            for device in {block.device for block in written}:
                copies = [c for b in written if b.device is device for c in b.copies(b.written)]
                with device.current():
                    staging_of(device).copy_out(copies)

    def fetch(self, low: int, high: int) -> None:
        """Wait for kernels that write host memory from `low` to `high`, and copy that range to the host."""
        with self._lock:
            for block in self._overlapping_blocks((low, high)):
                parts = [(max(start, low), min(stop, high)) for start, stop in block.written]
                parts = [(start, stop) for start, stop in parts if start < stop]
                block.synchronize()
                with block.device.current():
                    staging_of(block.device).copy_out(block.copies(parts))
                block.written = {(start, stop) for start, stop in block.written if start < low or high < stop}

    def release(self) -> None:
        """Free all device memory after the work that uses it."""
        with self._lock:
            self.released = True
            _free_blocks(self._blocks)
            self._blocks = []

    def _overlapping_blocks(self, place: _Range) -> list[_Block]:
        outer = self.outer._overlapping_blocks(place) if self.outer else []
        return outer + [block for block in self._blocks if _overlap((block.start, block.stop), place)]

    def _find_block(self, arrays: Sequence[HostArray], device: Device) -> _Block | None:
        """The existing block of `arrays`, which overlap."""
        first = arrays[0]
        start, stop = first.start, max(array.stop for array in arrays)
        for block in self._overlapping_blocks((start, stop)):
            if block.device is not device:
                raise ArgumentError(
                    f"is on GPU {block.device.ordinal} until its device scope ends, and the kernel runs on "
                    f"GPU {device.ordinal}",
                    where=f"argument {first.parameter!r}",
                    remedy="use a scope for each GPU",
                )
            if start < block.start or block.stop < stop:
                raise ArgumentError(
                    "a part of this array was an argument before it in this device scope",
                    where=f"argument {first.parameter!r}",
                    remedy="let the whole array be the first",
                )
            return block
        return None

    def _check_strided(self, arrays: Sequence[HostArray]) -> None:
        """Reject strided arrays that a kernel writes to: their contiguous copies would miss the changes."""
        for array in arrays:
            if place := array.strided:
                written = [(other.start, other.stop) for other in arrays if other.writes]
                written += (part for block in self._overlapping_blocks(place) for part in block.written)
                if any(_overlap(place, part) for part in written):
                    raise ArgumentError(
                        "expected a contiguous array in C order, since a kernel writes to its memory, found "
                        "one with gaps or in another order",
                        where=f"argument {array.parameter!r}",
                    )


def _overlap(one: _Range, other: _Range) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _overlapping_groups(arrays: Iterable[HostArray]) -> list[list[HostArray]]:
    """Group `arrays` by overlapping memory, sorted by address. Empty arrays are left out."""
    groups: list[list[HostArray]] = []
    end = 0
    for array in sorted(arrays, key=lambda array: array.start):
        if array.start == array.stop:
            continue
        if array.start >= end:
            groups.append([])
        groups[-1].append(array)
        end = max(end, array.stop)
    return groups


def _allocate_block(arrays: Sequence[HostArray], device: Device, stream: int, keep: object) -> _Block:
    start, stop = arrays[0].start, max(array.stop for array in arrays)
    address = _allocate(device, stop - start, stream)
    return _Block(start, stop, [array.owner for array in arrays], device, address, stream, keep)


def _copy_in(
    blocks: Sequence[_Block], arrays: Iterable[HostArray], block_of: dict[HostArray, _Block]
) -> None:
    """Copy to `blocks`, which are used in the same stream, the memory that kernels read."""
    copies: list[Copy] = []
    for block in blocks:
        ranges = {(a.start, a.stop) for a in arrays if a.reads and block_of.get(a) is block}
        copies += block.copies(ranges)
    if copies:
        staging_of(blocks[0].device).copy_in(copies, blocks[0].stream)


def _free_blocks(blocks: Iterable[_Block]) -> None:
    for block in blocks:
        # It fails only if the driver has lost the GPU and its memory.
        with suppress(DriverCallError), block.device.current():
            _free(block.device, block.address, block.stream)


def _allocate(device: Device, size: int, stream: int) -> int:
    """Allocate `size` bytes for later work in `stream`."""
    if (pool := memory_pool(device)) is None:
        return int(device.driver.call("cuMemAlloc", size))
    return int(device.driver.call("cuMemAllocFromPoolAsync", size, pool, stream))


def _free(device: Device, address: int, stream: int) -> None:
    """Free memory after all earlier work in `stream`."""
    if memory_pool(device) is None:
        device.driver.call("cuStreamSynchronize", stream)
        device.driver.call("cuMemFree", address)
    else:
        device.driver.call("cuMemFreeAsync", address, stream)


_pools: ProcessCache[int, Any] = ProcessCache()


def memory_pool(device: Device) -> Any:
    """The memory pool for copies on `device`, whose context must be current; ``None`` without pool support.

    It is not the default pool, whose settings belong to the application.
    """
    return _pools.get_or_create(device.ordinal, lambda: _create_pool(device))


def _create_pool(device: Device) -> Any:
    if not device.has_memory_pools:
        return None
    driver, api = device.driver, device.driver.api
    properties = api.CUmemPoolProps()
    properties.allocType = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device.ordinal
    handle = driver.call("cuMemPoolCreate", properties)
    threshold = api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    driver.call("cuMemPoolSetAttribute", handle, threshold, api.cuuint64_t(_POOL_SIZE))
    return handle
