"""Copies of host arrays in device memory: for one launch, or for several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import RLock

from cuda_ext.errors import ArgumentError, DriverCallError
from cuda_ext.runtime.arrays.device_pool import device_pool
from cuda_ext.runtime.arrays.host_arrays import HostArray
from cuda_ext.runtime.arrays.staging import Copy, staging
from cuda_ext.runtime.driver.driver import Device

__all__ = ["DeviceCopies"]

_Range = tuple[int, int]


@dataclass(slots=True, eq=False)
class _Block:
    """Device memory at `address` that stands for the host memory from `start` to `stop`.

    `owners` hold that memory. `stream` is where the block was used last, and `keep` holds that. `written` are
    the parts of the host memory that kernels have written here and not there.
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
        """Have work that `stream` is given from now on come after all that was done here."""
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

    def wait(self) -> None:
        """Wait for the work that was done here."""
        with self.device.current():
            self.device.driver.call("cuStreamSynchronize", self.stream)


class DeviceCopies:
    """Copies of host memory on GPUs. Arrays that share memory share it there, too.

    What `outer` has a copy of is used there, and no other is made. Any thread may use them.
    """

    def __init__(self, outer: DeviceCopies | None = None) -> None:
        self.ended = False
        self.outer = outer
        self._blocks: list[_Block] = []
        self._lock: RLock = outer._lock if outer else RLock()

    @contextmanager
    def placed(
        self, device: Device, stream: int, keep: object, arrays: Sequence[HostArray]
    ) -> Iterator[list[int]]:
        """The addresses of `arrays` on `device`, copied there if they are not yet, for work in `stream`.

        The work is submitted within the ``with`` block; if it is not, nothing has changed. `keep` holds the
        stream. The context of `device` is to be current.
        """
        fresh: list[_Block] = []
        with self._lock:
            if self.ended:
                raise ArgumentError("the device scope of this launch has ended; launch within its with block")
            self._check_gaps(arrays)
            homes: dict[HostArray, _Block] = {}
            try:
                for members in _sharing(arrays):
                    block = self._known(members, device)
                    if block is None:
                        block = _allocated(members, device, stream, keep)
                        fresh.append(block)
                    block.use_in(stream, keep)
                    homes |= dict.fromkeys(members, block)
                _fill(fresh, arrays, homes)
                yield [
                    homes[array].address + array.start - homes[array].start if array in homes else 0
                    for array in arrays
                ]
            except BaseException:
                _free(fresh)
                raise
            for array, block in homes.items():
                if array.writes:
                    block.written.add((array.start, array.stop))
            # What was packed for this launch is of no use to another.
            passing = [homes[array] for array in arrays if array.gaps_in and array in homes]
            self._blocks += (block for block in fresh if block not in passing)
            _free(passing)

    def device_of(self, array: HostArray) -> int | None:
        """The GPU where there is a copy of `array`, or of some of it, already."""
        with self._lock:
            overlapping = self._overlapping((array.start, array.stop))
            return overlapping[0].device.ordinal if overlapping else None

    def bring_back(self, done: bool = False) -> None:
        """Copy to the host what kernels wrote. They are waited for, unless they are `done`."""
        with self._lock:
            written = [block for block in self._blocks if block.written]
            if not done:
                for block in written:
                    block.wait()
            for device in {block.device for block in written}:
                copies = [c for b in written if b.device is device for c in b.copies(b.written)]
                with device.current():
                    staging(device).copy_out(copies)

    def fetch(self, low: int, high: int) -> None:
        """Wait for the kernels that write to the host memory from `low` to `high`, and copy it there."""
        with self._lock:
            for block in self._overlapping((low, high)):
                parts = [(max(start, low), min(stop, high)) for start, stop in block.written]
                parts = [(start, stop) for start, stop in parts if start < stop]
                block.wait()
                with block.device.current():
                    staging(block.device).copy_out(block.copies(parts))
                block.written = {(start, stop) for start, stop in block.written if start < low or high < stop}

    def end(self) -> None:
        """Give all device memory back, once the work that uses it is done."""
        with self._lock:
            self.ended = True
            _free(self._blocks)
            self._blocks = []

    def _overlapping(self, place: _Range) -> list[_Block]:
        outer = self.outer._overlapping(place) if self.outer else []
        return outer + [block for block in self._blocks if _overlap((block.start, block.stop), place)]

    def _known(self, arrays: Sequence[HostArray], device: Device) -> _Block | None:
        """The block that holds `arrays`, which share memory."""
        first = arrays[0]
        start, stop = first.start, max(array.stop for array in arrays)
        for block in self._overlapping((start, stop)):
            if block.device is not device:
                raise ArgumentError(
                    f"argument {first.parameter!r}: is on GPU {block.device.ordinal} until its device scope "
                    f"ends, and the kernel runs on GPU {device.ordinal}; use a "
                    "scope for each GPU"
                )
            if start < block.start or block.stop < stop:
                raise ArgumentError(
                    f"argument {first.parameter!r}: a part of this array was an argument before it in this "
                    "device scope; let the whole array be the first"
                )
            return block
        return None

    def _check_gaps(self, arrays: Sequence[HostArray]) -> None:
        """What is packed for a launch would not see what kernels write to the array itself."""
        for array in arrays:
            if place := array.gaps_in:
                written = [(other.start, other.stop) for other in arrays if other.writes]
                written += (part for block in self._overlapping(place) for part in block.written)
                if any(_overlap(place, part) for part in written):
                    raise ArgumentError(
                        f"argument {array.parameter!r}: expected a contiguous array in C order, since a "
                        "kernel writes to its memory, found one with gaps or in another order"
                    )


def _overlap(one: _Range, other: _Range) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _sharing(arrays: Iterable[HostArray]) -> list[list[HostArray]]:
    """`arrays` by the memory that they have in common, each group in its order. Empty ones are left out."""
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


def _allocated(arrays: Sequence[HostArray], device: Device, stream: int, keep: object) -> _Block:
    """A block for `arrays`, which share memory."""
    start, stop = arrays[0].start, max(array.stop for array in arrays)
    address = device_pool(device).allocate(stop - start, stream)
    return _Block(start, stop, [array.owner for array in arrays], device, address, stream, keep)


def _fill(blocks: Sequence[_Block], arrays: Iterable[HostArray], homes: dict[HostArray, _Block]) -> None:
    """Copy to `blocks`, which are in one stream, what kernels read there."""
    copies: list[Copy] = []
    for block in blocks:
        ranges = {(a.start, a.stop) for a in arrays if a.reads and homes.get(a) is block}
        copies += block.copies(ranges)
    if copies:
        staging(blocks[0].device).copy_in(copies, blocks[0].stream)


def _free(blocks: Iterable[_Block]) -> None:
    for block in blocks:
        # Where it fails, the driver has lost the GPU and all that is on it.
        with suppress(DriverCallError), block.device.current():
            device_pool(block.device).free(block.address, block.stream)
