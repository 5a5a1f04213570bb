"""``cuda_ext.device_scope``: copies of host arrays in device memory, for one or several launches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from cuda_ext.errors import ArgumentError, DriverCallError
from cuda_ext.runtime.arrays.host_arrays import HostArray, is_host_array, place_of
from cuda_ext.runtime.arrays.staging import Copy, Staging, staging_of
from cuda_ext.runtime.driver.driver import Device


@dataclass(slots=True, eq=False)
class _Block:
    """Device memory at `address` with a copy of the host memory in `place`.

    `owners` keep the host memory alive. `stream` used the block last, and `keep` keeps the stream alive.
    `written` are the ranges of host memory that kernels have written in the block and that are not yet copied
    back.
    """

    place: range
    owners: list[object]
    staging: Staging
    address: int
    stream: int
    keep: object
    written: set[range] = field(default_factory=set)

    def address_of(self, host: int) -> int:
        """Return the address in the block of the copy of the byte at `host`."""
        return self.address + host - self.place.start

    def copies(self, parts: Iterable[range]) -> list[Copy]:
        return [Copy(part.start, self.address_of(part.start), len(part)) for part in parts]

    def use_in(self, stream: int, keep: object) -> None:
        """Order later work in `stream` after all earlier work on this block."""
        if stream == self.stream:
            return
        device = self.staging.device
        event = device.create_event()
        try:
            device.driver.call("cuEventRecord", event, self.stream)
            device.driver.call("cuStreamWaitEvent", stream, event, 0)
        finally:
            device.driver.call("cuEventDestroy", event)
        self.stream, self.keep = stream, keep


class DeviceCopies:
    """Copies of host memory on GPUs, for any thread. Arrays that overlap share one copy.

    If `outer` has a copy of some memory, that copy is used. No thread adds or removes a copy while another
    holds the ``lock``.
    """

    def __init__(self, outer: DeviceCopies | None = None) -> None:
        self.released = False
        self.outer = outer
        self._blocks: list[_Block] = []
        self.lock: RLock = outer.lock if outer else RLock()

    @contextmanager
    def place(
        self, device: Device, stream: int, keep: object, arrays: Sequence[HostArray]
    ) -> Iterator[list[int]]:
        """Copy `arrays` to `device` unless they are there, and yield their addresses, for work in `stream`.

        Submit the work within the ``with`` block. If the block raises, nothing changes. `keep` keeps the
        stream alive. The context of `device` must be current.
        """
        new: list[_Block] = []
        with self.lock:
            if self.released:
                raise ArgumentError(
                    "the device scope of this launch has ended", remedy="launch within its with block"
                )
            self._check_strided(arrays)
            staging = staging_of(device)
            block_of: dict[HostArray, _Block] = {}
            try:
                for group in _overlapping_groups(arrays):
                    block = self._find_block(group, device)
                    if block is None:
                        block = _allocate_block(group, staging, stream, keep)
                        new.append(block)
                    block.use_in(stream, keep)
                    block_of |= dict.fromkeys(group, block)
                copies = (
                    copy
                    for block in new
                    for copy in block.copies(
                        {a.place for a in arrays if a.reads and block_of.get(a) is block}
                    )
                )
                staging.copy_in(copies, stream)
                yield [
                    block_of[array].address_of(array.place.start) if array in block_of else 0
                    for array in arrays
                ]
            except BaseException:
                _free_blocks(new)
                raise
            for array, block in block_of.items():
                if array.writes:
                    block.written.add(array.place)
            # The contiguous copies of strided arrays are for this launch only.
            temporary = [block_of[array] for array in arrays if array.strided and array in block_of]
            self._blocks += (block for block in new if block not in temporary)
            _free_blocks(temporary)

    def expect_addresses(self, arrays: Iterable[HostArray]) -> dict[HostArray, int]:
        """Predict the addresses that :meth:`place` gives `arrays`, modulo 256.

        All memory that the driver allocates begins at multiples of 256.
        """
        found: dict[HostArray, int] = {}
        with self.lock:
            for group in _overlapping_groups(arrays):
                place = _span(group)
                known = self._overlapping_blocks(place)
                start = known[0].address_of(0) if known else -place.start
                found |= {array: start + array.place.start for array in group}
        return found

    def device_of(self, array: HostArray) -> int | None:
        """Return the GPU that has a copy of `array`, or of a part of it; ``None`` if no GPU has."""
        with self.lock:
            overlapping = self._overlapping_blocks(array.place)
            return overlapping[0].staging.device.ordinal if overlapping else None

    def copy_back(self, wait: bool = True) -> None:
        """Copy to the host what kernels wrote. By default, wait for the kernels first."""
        with self.lock:
            written = [block for block in self._blocks if block.written]
            for staging, stream in dict.fromkeys((block.staging, block.stream) for block in written):
                blocks = [b for b in written if b.staging is staging and b.stream == stream]
                copies = [copy for block in blocks for copy in block.copies(block.written)]
                with staging.device.current():
                    staging.copy_out(copies, stream if wait else None)

    def fetch(self, place: range) -> None:
        """Wait for the kernels that write to `place`, and copy their results back."""
        with self.lock:
            for block in self._overlapping_blocks(place):
                parts = [common for part in block.written if (common := _intersect(part, place))]
                with block.staging.device.current():
                    block.staging.copy_out(block.copies(parts), block.stream)
                block.written = {part for part in block.written if _intersect(part, place) != part}

    def release(self) -> None:
        """Free all device memory after the work that uses it."""
        with self.lock:
            self.released = True
            _free_blocks(self._blocks)
            self._blocks = []

    def _overlapping_blocks(self, place: range) -> list[_Block]:
        outer = self.outer._overlapping_blocks(place) if self.outer else []
        return outer + [block for block in self._blocks if _intersect(block.place, place)]

    def _find_block(self, arrays: Sequence[HostArray], device: Device) -> _Block | None:
        """Find the existing block of `arrays`, which overlap."""
        place = _span(arrays)
        where = f"argument {arrays[0].parameter!r}"
        for block in self._overlapping_blocks(place):
            if block.staging.device is not device:
                raise ArgumentError(
                    f"is on GPU {block.staging.device.ordinal} until its device scope ends, and the kernel "
                    f"runs on GPU {device.ordinal}",
                    where=where,
                    remedy="use a scope for each GPU",
                )
            if _intersect(place, block.place) != place:
                raise ArgumentError(
                    "a part of this array was an argument before it in this device scope",
                    where=where,
                    remedy="let the whole array be the first",
                )
            return block
        return None

    def _check_strided(self, arrays: Sequence[HostArray]) -> None:
        """Reject strided arrays that a kernel writes to: their contiguous copies would miss the changes."""
        for array in arrays:
            if place := array.strided:
                written = [other.place for other in arrays if other.writes]
                written += (part for block in self._overlapping_blocks(place) for part in block.written)
                if any(_intersect(place, part) for part in written):
                    raise ArgumentError(
                        "expected a contiguous array in C order, since a kernel writes to its memory, found "
                        "one with gaps or in another order",
                        where=f"argument {array.parameter!r}",
                    )


_innermost: ContextVar[DeviceCopies | None] = ContextVar("_innermost", default=None)


class DeviceScope:
    """An open :func:`device_scope`."""

    __slots__ = ("_copies",)

    def __init__(self, copies: DeviceCopies) -> None:
        self._copies = copies

    def fetch(self, array: Any) -> None:
        """Wait for the kernels that write to `array`, and copy their results back before the scope ends.

        Raises :class:`ArgumentError` for objects that are not numpy arrays.
        """
        if not is_host_array(array):
            raise ArgumentError(f"expected a numpy array, found {type(array).__qualname__}", where="fetch")
        self._copies.fetch(place_of(array))


@contextmanager
def device_scope() -> Iterator[DeviceScope]:
    """Open a ``with`` block that keeps the numpy arrays of launches in device memory.

    Each array is copied to the GPU when it is first an argument. Arrays that kernels wrote are copied back
    when the block ends, even with an exception. Until then, launches do not wait, and host and device do not
    see each other's changes. :meth:`DeviceScope.fetch` copies an array back earlier. Changes that the host
    makes after the first use of an array are ignored.

    A scope belongs to the thread or task that opens it. In nested scopes, the arrays of the outer scope stay
    on the GPU until the outer scope ends. A stream that is passed as a handle must outlive the scope.
    """
    copies = DeviceCopies(innermost_scope())
    _innermost.set(copies)
    try:
        yield DeviceScope(copies)
    except BaseException:
        with suppress(DriverCallError):  # it may have the same cause as the exception
            copies.copy_back()
        raise
    else:
        copies.copy_back()
    finally:
        copies.release()


def innermost_scope() -> DeviceCopies | None:
    """Return the copies of the innermost open scope of this thread or task, or ``None``."""
    copies = _innermost.get()
    # A scope may have ended in another thread or task from which this one inherited its context.
    while copies is not None and copies.released:
        copies = copies.outer
    return copies


def _intersect(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))


def _span(arrays: Sequence[HostArray]) -> range:
    """Return the host memory of `arrays`, which overlap and are sorted by address."""
    return range(arrays[0].place.start, max(array.place.stop for array in arrays))


def _overlapping_groups(arrays: Iterable[HostArray]) -> list[list[HostArray]]:
    """Group `arrays` by overlapping memory, sorted by address. Empty arrays are left out."""
    groups: list[list[HostArray]] = []
    for array in sorted(arrays, key=lambda array: array.place.start):
        if not array.place:
            continue
        if not groups or not _intersect(_span(groups[-1]), array.place):
            groups.append([])
        groups[-1].append(array)
    return groups


def _allocate_block(arrays: Sequence[HostArray], staging: Staging, stream: int, keep: object) -> _Block:
    place = _span(arrays)
    address = staging.allocate(len(place), stream)
    return _Block(place, [array.owner for array in arrays], staging, address, stream, keep)


def _free_blocks(blocks: Iterable[_Block]) -> None:
    for block in blocks:
        # This fails only if the driver has lost the GPU and its memory.
        with suppress(DriverCallError), block.staging.device.current():
            block.staging.free(block.address, block.stream)
