"""Launches with host arrays, which are copied to the GPU before and back after them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from cuda_ext.errors import ArgumentError, DriverCallError
from cuda_ext.runtime.arrays.device_scope import DeviceCopies, innermost_scope
from cuda_ext.runtime.arrays.host_arrays import HostArray
from cuda_ext.runtime.driver import cuda_h
from cuda_ext.runtime.driver.driver import Device
from cuda_ext.runtime.driver.functions import OUT


class Pending:
    """A launch with ``wait=False``, whose results have not been copied back yet.

    It keeps the arrays that the kernel writes alive. Without a call of :meth:`wait`, nothing is copied back.
    """

    def __init__(
        self,
        device: Device,
        stream: int,
        copies: DeviceCopies,
        raise_error: Callable[[DriverCallError], NoReturn],
    ) -> None:
        self._device = device
        self._copies = copies
        self._raise_error = raise_error
        self._lock = threading.Lock()
        self._error: DriverCallError | None = None
        self._event = device.create_event()
        self._release = weakref.finalize(self, _release, device, copies, self._event)
        self._release.atexit = False
        device.driver.call("cuEventRecord", self._event, stream)

    @property
    def done(self) -> bool:
        """True if the kernel has finished, so that :meth:`wait` only has to copy."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not self._release.alive:
                return True
            self._device.driver.call("cuEventQuery", self._event)
        except DriverCallError as error:
            if error.code == cuda_h.CUDA_ERROR_NOT_READY:
                return False
            self._raise_error(error)
        finally:
            self._lock.release()
        return True

    def wait(self) -> None:
        """Wait for the kernel, and copy its results to the arrays.

        Raises :class:`~cuda_ext.errors.LaunchError` if the kernel failed; the arrays are then unchanged.
        """
        with self._lock:
            if self._release.alive:
                try:
                    self._device.driver.call("cuEventSynchronize", self._event)
                    self._copies.copy_back(wait=False)
                except DriverCallError as error:
                    self._error = error
                # After any other exception, such as KeyboardInterrupt, wait() can be called again.
                self._release()
            if self._error:
                self._raise_error(self._error)


def launch_with_copies(
    device: Device,
    stream: int,
    keep: object,
    values: Sequence[Any],
    wait: bool,
    submit: Callable[[Sequence[Any]], None],
    raise_error: Callable[[DriverCallError], NoReturn],
) -> Pending | None:
    """Copy the host arrays among `values` to `device`, and the results back.

    In between, call `submit` with the addresses of the copies in place of the arrays. `keep` keeps `stream`
    alive. `raise_error` raises the errors of a :class:`Pending` launch. Raises :class:`DriverCallError`, and
    :class:`ArgumentError` if `stream` is being captured into a graph.
    """
    own = DeviceCopies()
    shared = innermost_scope()
    pending = None
    arrays = [value for value in values if isinstance(value, HostArray)]
    with device.current():
        _check_not_captured(device, stream)
        try:
            with (shared or own).place(device, stream, keep, arrays) as addresses:
                copies = iter(addresses)
                submit([next(copies) if isinstance(value, HostArray) else value for value in values])
            if not wait:
                pending = Pending(device, stream, own, raise_error)
            elif shared is None:
                own.copy_back()
        finally:
            if pending is None:
                own.release()
    return pending


def _check_not_captured(device: Device, stream: int) -> None:
    try:
        captured = device.driver.query("cuStreamIsCapturing", stream, OUT)
    except DriverCallError as error:
        if error.code != cuda_h.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
            raise
    else:
        if captured == cuda_h.CU_STREAM_CAPTURE_STATUS_NONE:
            return
    raise ArgumentError(
        "is being captured into a graph, which takes no host arrays and cannot be waited for",
        where="stream",
        remedy="pass arrays in device memory, and leave out wait=False",
    )


def _release(device: Device, copies: DeviceCopies, event: int) -> None:
    with suppress(DriverCallError):
        device.driver.call("cuEventDestroy", event)
    copies.release()
