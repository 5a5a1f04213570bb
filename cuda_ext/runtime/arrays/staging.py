"""Copies between host and device memory at the speed of the bus.

A GPU reads and writes page-locked memory by itself, and all other memory through the driver, slowly. So large
copies go in chunks through a few page-locked buffers: several threads copy chunks between them and the
arrays, while the GPU copies others. Small copies are left to the driver.
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
from cuda_ext.runtime.driver.driver import Device, Prepared

__all__ = ["Copy", "Staging", "staging"]

_SMALL = 64 << 10
_CHUNK = 2 << 20
# One core copies slower than the bus does.
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
    """Page-locked memory, and the event after which the GPU is done with it; both made at the first use."""

    address: int = 0
    event: Any = None


class Staging:
    """The page-locked buffers of `device`, and the copies through them. Its context is to be current."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._call = device.driver.call
        # That of all copies to the host, so that they wait for nothing that others do.
        self._back = self._call("cuStreamCreate", device.driver.api.CUstream_flags.CU_STREAM_NON_BLOCKING)
        # Those that no thread uses, though the GPU may.
        self._buffers: SimpleQueue[_Buffer] = SimpleQueue()
        for _ in range(_BUFFERS):
            self._buffers.put(_Buffer())

    def copy_in(self, copies: Iterable[Copy], stream: int) -> None:
        """Copy to the device in `stream`. The host memory has been read when this returns."""

        def directly(copy: Copy) -> None:
            self._call("cuMemcpyHtoDAsync", copy.device, copy.host, copy.size, stream)

        self._copy(copies, directly, partial(self._chunk_in, stream), stream)

    def copy_out(self, copies: Iterable[Copy]) -> None:
        """Copy to the host what nothing on the device writes any more. It is there when this returns."""

        def directly(copy: Copy) -> None:
            self._call("cuMemcpyDtoHAsync", copy.host, copy.device, copy.size, self._back)

        self._copy(copies, directly, self._chunk_out, self._back)

    def _copy(
        self,
        copies: Iterable[Copy],
        directly: Callable[[Copy], None],
        in_chunks: Callable[[Copy], None],
        stream: Any,
    ) -> None:
        chunks: list[Copy] = []
        begun = False
        for copy in copies:
            if page_locked := self._is_page_locked(copy):
                begun = True
            if page_locked or copy.size <= _SMALL:
                directly(copy)
            else:
                chunks += _chunks(copy)
        self._at_once(in_chunks, chunks)
        if begun:  # of all others the driver returns when the host is done with them
            self._call("cuStreamSynchronize", stream)

    def _chunk_in(self, stream: int, chunk: Copy) -> None:
        with self._device.current(), self._buffer(stream) as buffer:
            self._call("cuEventSynchronize", buffer.event)
            ctypes.memmove(buffer.address, chunk.host, chunk.size)
            self._call("cuMemcpyHtoDAsync", chunk.device, buffer.address, chunk.size, stream)
            self._call("cuEventRecord", buffer.event, stream)

    def _chunk_out(self, chunk: Copy) -> None:
        with self._device.current(), self._buffer(self._back) as buffer:
            self._call("cuEventSynchronize", buffer.event)
            self._call("cuMemcpyDtoHAsync", buffer.address, chunk.device, chunk.size, self._back)
            self._call("cuEventRecord", buffer.event, self._back)
            self._call("cuEventSynchronize", buffer.event)
            ctypes.memmove(chunk.host, buffer.address, chunk.size)

    def _at_once(self, work: Callable[[Copy], None], chunks: Sequence[Copy]) -> None:
        """Do `work` for each chunk, in several threads. None is at work any more when this returns."""
        if len(chunks) < 2:
            for chunk in chunks:
                work(chunk)
            return
        futures: list[concurrent.futures.Future[None]] = []
        try:
            for chunk in chunks:
                try:
                    futures.append(_threads().submit(work, chunk))
                except RuntimeError:  # the interpreter is ending and starts no threads any more
                    work(chunk)
            for future in futures:
                future.result()
        finally:
            for future in futures:
                future.cancel()
            concurrent.futures.wait(futures)

    @contextmanager
    def _buffer(self, stream: Any) -> Iterator[_Buffer]:
        """A buffer that nobody else has, used in `stream`."""
        buffer = self._buffers.get()
        try:
            if buffer.event is None:
                flag = self._device.driver.api.CUevent_flags.CU_EVENT_DISABLE_TIMING
                buffer.event = self._call("cuEventCreate", flag)
            if not buffer.address:
                buffer.address = int(self._call("cuMemHostAlloc", _CHUNK, 0))
            yield buffer
        except BaseException:
            # What the GPU has begun ends before the buffer is used again.
            with suppress(DriverCallError):
                self._call("cuStreamSynchronize", stream)
            raise
        finally:
            self._buffers.put(buffer)

    def _is_page_locked(self, copy: Copy) -> bool:
        """Whether the GPU reaches the host memory by itself."""
        api = self._device.driver.api
        attribute = api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        for address in (copy.host, copy.host + copy.size - 1):
            # An error for all other memory, which is no failure.
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


_stagings: Prepared[int, Staging] = Prepared()


def staging(device: Device) -> Staging:
    """That of `device`, whose context is current; the same for everybody."""
    return _stagings.once(device.ordinal, lambda: Staging(device))
