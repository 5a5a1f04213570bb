"""Copies between host and device memory at the speed of the bus.

A GPU accesses page-locked memory directly, and pageable memory through the driver, slowly. So large copies go
in chunks through a few page-locked staging buffers: several threads copy chunks between the buffers and the
arrays while the GPU transfers others. Small copies are left to the driver.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from queue import SimpleQueue
from typing import Any

from cuda_ext.errors import DriverCallError
from cuda_ext.runtime.driver.driver import Device, ProcessCache

__all__ = ["Copy", "Staging", "staging_of"]

# In bytes: the largest copy that is left to the driver, and the size of a staging buffer.
_SMALL = 64 << 10
_CHUNK = 2 << 20
# A single core copies more slowly than the bus.
_THREADS = min(4, os.cpu_count() or 1)
_BUFFERS = 2 * _THREADS


@dataclass(frozen=True, slots=True)
class Copy:
    """`size` bytes, at the address `host` and at the address `device`."""

    host: int
    device: int
    size: int


@dataclass(slots=True, eq=False)
class _Buffer:
    """Page-locked memory and the event after which it can be reused; both are created at the first use."""

    address: int = 0
    event: Any = None


class Staging:
    """The staging buffers of `device` and the copies through them. Its context must be current."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._call = device.driver.call
        # Copies to the host have a stream of their own, so that they wait for no other work.
        self._out_stream = self._call(
            "cuStreamCreate", device.driver.api.CUstream_flags.CU_STREAM_NON_BLOCKING
        )
        # The buffers that no thread uses. The GPU may still be using them.
        self._buffers: SimpleQueue[_Buffer] = SimpleQueue()
        for _ in range(_BUFFERS):
            self._buffers.put(_Buffer())

    def copy_in(self, copies: Iterable[Copy], stream: int) -> None:
        """Copy to the device in `stream`. When this returns, the host memory has been read."""

        def directly(copy: Copy) -> None:
            self._call("cuMemcpyHtoDAsync", copy.device, copy.host, copy.size, stream)

        self._copy(copies, directly, partial(self._chunk_in, stream), stream)

    def copy_out(self, copies: Iterable[Copy]) -> None:
        """Copy to the host memory that no kernel is writing. When this returns, the copy is complete."""

        def directly(copy: Copy) -> None:
            self._call("cuMemcpyDtoHAsync", copy.host, copy.device, copy.size, self._out_stream)

        self._copy(copies, directly, self._chunk_out, self._out_stream)

    def _copy(
        self,
        copies: Iterable[Copy],
        directly: Callable[[Copy], None],
        in_chunks: Callable[[Copy], None],
        stream: Any,
    ) -> None:
        chunks: list[Copy] = []
        has_page_locked = False
        for copy in copies:
            if page_locked := self._is_page_locked(copy):
                has_page_locked = True
            if page_locked or copy.size <= _SMALL:
                directly(copy)
            else:
                chunks += _chunks(copy)
        self._run_parallel(in_chunks, chunks)
        if has_page_locked:  # only these copies are asynchronous for the host
            self._call("cuStreamSynchronize", stream)

    def _chunk_in(self, stream: int, chunk: Copy) -> None:
        with self._device.current(), self._buffer(stream) as buffer:
            self._call("cuEventSynchronize", buffer.event)
            ctypes.memmove(buffer.address, chunk.host, chunk.size)
            self._call("cuMemcpyHtoDAsync", chunk.device, buffer.address, chunk.size, stream)
            self._call("cuEventRecord", buffer.event, stream)

    def _chunk_out(self, chunk: Copy) -> None:
        with self._device.current(), self._buffer(self._out_stream) as buffer:
            self._call("cuEventSynchronize", buffer.event)
            self._call("cuMemcpyDtoHAsync", buffer.address, chunk.device, chunk.size, self._out_stream)
            self._call("cuEventRecord", buffer.event, self._out_stream)
            self._call("cuEventSynchronize", buffer.event)
            ctypes.memmove(chunk.host, buffer.address, chunk.size)

    def _run_parallel(self, work: Callable[[Copy], None], chunks: Sequence[Copy]) -> None:
        """Call `work` for each chunk, in several threads, and wait for all of them."""
        if len(chunks) < 2:
            for chunk in chunks:
                work(chunk)
            return
        futures: list[concurrent.futures.Future[None]] = []
        try:
            for chunk in chunks:
                try:
                    futures.append(_threads().submit(work, chunk))
                except RuntimeError:  # the interpreter is shutting down and starts no threads
                    work(chunk)
            for future in futures:
                future.result()
        finally:
            for future in futures:
                future.cancel()
            concurrent.futures.wait(futures)

    @contextmanager
    def _buffer(self, stream: Any) -> Iterator[_Buffer]:
        """A staging buffer for exclusive use in `stream`."""
        buffer = self._buffers.get()
        try:
            if buffer.event is None:
                flag = self._device.driver.api.CUevent_flags.CU_EVENT_DISABLE_TIMING
                buffer.event = self._call("cuEventCreate", flag)
            if not buffer.address:
                buffer.address = int(self._call("cuMemHostAlloc", _CHUNK, 0))
            yield buffer
        except BaseException:
            # Finish the transfers from or to the buffer before it is used again.
            with suppress(DriverCallError):
                self._call("cuStreamSynchronize", stream)
            raise
        finally:
            self._buffers.put(buffer)

    def _is_page_locked(self, copy: Copy) -> bool:
        """Whether the GPU can access the host memory directly."""
        api = self._device.driver.api
        attribute = api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        for address in (copy.host, copy.host + copy.size - 1):
            # The function returns an error for pageable memory, which is no failure of the driver.
            status, kind = api.cuPointerGetAttribute(attribute, address)
            if int(status) or kind != api.CUmemorytype.CU_MEMORYTYPE_HOST:
                return False
        return True


def _chunks(copy: Copy) -> Iterator[Copy]:
    for offset in range(0, copy.size, _CHUNK):
        yield Copy(copy.host + offset, copy.device + offset, min(_CHUNK, copy.size - offset))


@cache
def _threads() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(_THREADS, "cuda_ext staging")


_stagings: ProcessCache[int, Staging] = ProcessCache()


def staging_of(device: Device) -> Staging:
    """The staging buffers of `device`, whose context must be current."""
    return _stagings.get_or_create(device.ordinal, lambda: Staging(device))
