"""Device memory for copies of host arrays, and these copies at the speed of the bus.

The driver copies pageable memory through a buffer of its own. To the GPU, that is slow for large arrays. So
these go in chunks through a few page-locked staging buffers: several threads fill some while the GPU reads
others.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from queue import SimpleQueue
from typing import NamedTuple

from cuda_ext.errors import DriverCallError
from cuda_ext.runtime.driver import cuda_h
from cuda_ext.runtime.driver.driver import Device, ProcessCache
from cuda_ext.runtime.driver.functions import OUT

# In bytes: the largest copy to the GPU that the driver does itself, and the size of a staging buffer. To an
# H100, the driver copies 1, 16 and 128 MiB at 10, 12 and 8 GB/s, and staging at 5, 11 and 12. To the host,
# the driver is faster at all sizes.
_SMALL = 16 << 20
_CHUNK = 2 << 20
# The unused memory that a pool keeps, in bytes, since allocating new memory takes longer than filling it.
_POOL_SIZE = 1 << 30
# A single core copies more slowly than the bus.
_THREADS = min(4, os.cpu_count() or 1)
_BUFFERS = 2 * _THREADS


class Copy(NamedTuple):
    """`size` bytes, at the address `host` and at the address `device`."""

    host: int
    device: int
    size: int


@dataclass(slots=True, eq=False)
class _Buffer:
    """Page-locked memory and the event after which it can be reused; both are created at the first use."""

    address: int = 0
    event: int = 0


class Staging:
    """The memory pool and the staging buffers of `device`, whose context must be current.

    ``pool`` is ``None`` for a GPU without memory pools. It is not the default pool, whose settings belong to
    the application.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._call = device.driver.call
        self._query = device.driver.query
        self.pool = _create_pool(device) if device.has_memory_pools else None
        # Copies to the host have their own stream, so that they wait for no other work.
        self._out_stream = self._query("cuStreamCreate", OUT, cuda_h.CU_STREAM_NON_BLOCKING)
        # The buffers that no thread uses. The GPU may still use them.
        self._buffers: SimpleQueue[_Buffer] = SimpleQueue()
        for _ in range(_BUFFERS):
            self._buffers.put(_Buffer())

    def allocate(self, size: int, stream: int) -> int:
        """Allocate `size` bytes of device memory for later work in `stream`."""
        if self.pool is None:
            return self._query("cuMemAlloc", OUT, size)
        return self._query("cuMemAllocFromPoolAsync", OUT, size, self.pool, stream)

    def free(self, address: int, stream: int) -> None:
        """Free device memory after all earlier work in `stream`."""
        if self.pool is None:
            self._call("cuStreamSynchronize", stream)
            self._call("cuMemFree", address)
        else:
            self._call("cuMemFreeAsync", address, stream)

    def copy_in(self, copies: Iterable[Copy], stream: int) -> None:
        """Copy to the device in `stream`. When this returns, the host memory has been read."""
        chunks: list[Copy] = []
        is_asynchronous = False
        for copy in copies:
            is_page_locked = self._is_page_locked(copy)
            is_asynchronous = is_asynchronous or is_page_locked
            if is_page_locked or copy.size <= _SMALL:
                self._call("cuMemcpyHtoDAsync", copy.device, copy.host, copy.size, stream)
            else:
                chunks += _split(copy)
        _run_parallel(lambda chunk: self._copy_chunk(chunk, stream), chunks)
        if is_asynchronous:
            self._call("cuStreamSynchronize", stream)

    def copy_out(self, copies: Sequence[Copy], stream: int | None = None) -> None:
        """Copy to the host after the work in `stream`, if there is any to wait for.

        When this returns, the copy is complete.
        """
        stream = self._out_stream if stream is None else stream
        for copy in copies:
            self._call("cuMemcpyDtoHAsync", copy.host, copy.device, copy.size, stream)
        if any(map(self._is_page_locked, copies)):  # only these copies are asynchronous for the host
            self._call("cuStreamSynchronize", stream)

    def _copy_chunk(self, chunk: Copy, stream: int) -> None:
        with self.device.current(), self._buffer(stream) as buffer:
            self._call("cuEventSynchronize", buffer.event)
            ctypes.memmove(buffer.address, chunk.host, chunk.size)
            self._call("cuMemcpyHtoDAsync", chunk.device, buffer.address, chunk.size, stream)
            self._call("cuEventRecord", buffer.event, stream)

    @contextmanager
    def _buffer(self, stream: int) -> Iterator[_Buffer]:
        """Lend a staging buffer for exclusive use in `stream`."""
        buffer = self._buffers.get()
        try:
            buffer.event = buffer.event or self.device.create_event()
            buffer.address = buffer.address or self._query("cuMemHostAlloc", OUT, _CHUNK, 0)
            yield buffer
        except BaseException:
            # Finish the transfer from the buffer before it is used again.
            with suppress(DriverCallError):
                self._call("cuStreamSynchronize", stream)
            raise
        finally:
            self._buffers.put(buffer)

    def _is_page_locked(self, copy: Copy) -> bool:
        """Return True if the GPU can access the host memory directly."""
        attributes, kind = self.device.driver.pointer_attributes, cuda_h.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        ends = copy.host, copy.host + copy.size - 1
        return all(attributes(address, kind) == [cuda_h.CU_MEMORYTYPE_HOST] for address in ends)


def _create_pool(device: Device) -> int:
    location = cuda_h.CU_MEM_LOCATION_TYPE_DEVICE, device.ordinal
    properties = struct.pack(cuda_h.MEM_POOL_PROPS, cuda_h.CU_MEM_ALLOCATION_TYPE_PINNED, 0, *location)
    pool = device.driver.query("cuMemPoolCreate", OUT, properties)
    threshold = struct.pack("Q", _POOL_SIZE)
    attribute = cuda_h.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    device.driver.call("cuMemPoolSetAttribute", pool, attribute, threshold)
    return pool


def _split(copy: Copy) -> Iterator[Copy]:
    for offset in range(0, copy.size, _CHUNK):
        yield Copy(copy.host + offset, copy.device + offset, min(_CHUNK, copy.size - offset))


def _run_parallel(copy_chunk: Callable[[Copy], None], chunks: Sequence[Copy]) -> None:
    """Call `copy_chunk` for each of `chunks`, in several threads, and wait for all of them."""
    futures: list[concurrent.futures.Future[None]] = []
    try:
        for chunk in chunks:
            try:
                futures.append(_threads().submit(copy_chunk, chunk))
            except RuntimeError:  # the interpreter is shutting down and starts no threads
                copy_chunk(chunk)
        for future in futures:
            future.result()
    finally:
        for future in futures:
            future.cancel()
        concurrent.futures.wait(futures)


@cache
def _threads() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(_THREADS, "cuda_ext staging")


_stagings = ProcessCache()


def staging_of(device: Device) -> Staging:
    """Return the staging of `device`, whose context must be current."""
    staging: Staging = _stagings.get_or_create(device.ordinal, lambda: Staging(device))
    return staging
