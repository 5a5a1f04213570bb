"""A launch with host arrays: copied to the GPU before it, and back after it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from cuda_ext.errors import ArgumentError, DriverCallError
from cuda_ext.runtime.arrays.device_copies import DeviceCopies
from cuda_ext.runtime.arrays.device_scope import copies_of_scope
from cuda_ext.runtime.arrays.host_arrays import HostArray
from cuda_ext.runtime.driver.driver import Device

__all__ = ["Pending", "launch_with_copies"]

_NOT_READY = 600
_CAPTURED_IMPLICITLY = 906


class Pending:
    """A launch with ``wait=False``, whose results are not there yet.

    It holds the arrays that the kernel writes. If it is dropped without :meth:`wait`, nothing is copied back.
    """

    def __init__(
        self, device: Device, stream: int, copies: DeviceCopies, failed: Callable[[DriverCallError], NoReturn]
    ) -> None:
        driver = device.driver
        self._device = device
        self._copies = copies
        self._failed = failed
        self._lock = threading.Lock()
        self._error: DriverCallError | None = None
        self._event = driver.call("cuEventCreate", driver.api.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        self._end = weakref.finalize(self, _ended, device, copies, self._event)
        self._end.atexit = False
        driver.call("cuEventRecord", self._event, stream)

    @property
    def done(self) -> bool:
        """Whether the kernel is over, so that :meth:`wait` only has to copy."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not self._end.alive:
                return True
            self._device.driver.call("cuEventQuery", self._event)
        except DriverCallError as error:
            if error.code == _NOT_READY:
                return False
            self._failed(error)
        finally:
            self._lock.release()
        return True

    def wait(self) -> None:
        """Wait for the kernel, and copy what it wrote to the arrays.

        Raises :class:`~cuda_ext.errors.LaunchError` if the kernel failed; the arrays are as they were then.
        """
        with self._lock:
            if self._end.alive:
                try:
                    self._device.driver.call("cuEventSynchronize", self._event)
                    self._copies.bring_back(done=True)
                except DriverCallError as error:
                    self._error = error
                # Whatever else comes between, such as an interrupt, leaves everything for another call.
                self._end()
            if self._error:
                self._failed(self._error)


def launch_with_copies(
    device: Device,
    stream: int,
    keep: object,
    arrays: Sequence[HostArray],
    wait: bool,
    submit: Callable[[list[int]], None],
    failed: Callable[[DriverCallError], NoReturn],
) -> Pending | None:
    """Have `submit` launch in `stream`, which `keep` holds, with the addresses of `arrays` on `device`.

    `failed` raises what an error of the driver means once this has returned. Raises :class:`DriverCallError`,
    and :class:`ArgumentError` where `stream` is being captured into a graph.
    """
    own = DeviceCopies()
    scope = copies_of_scope()
    pending = None
    with device.current():
        _check_not_captured(device, stream)
        try:
            with (scope or own).placed(device, stream, keep, arrays) as addresses:
                submit(addresses)
            if not wait:
                pending = Pending(device, stream, own, failed)
            elif scope is None:
                own.bring_back()
        finally:
            if pending is None:
                own.end()
    return pending


def _check_not_captured(device: Device, stream: int) -> None:
    api = device.driver.api
    try:
        captured = device.driver.call("cuStreamIsCapturing", stream)
    except DriverCallError as error:
        if error.code != _CAPTURED_IMPLICITLY:
            raise
    else:
        if captured == api.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE:
            return
    raise ArgumentError(
        "stream: is being captured into a graph, which takes no host arrays and cannot be waited for; pass "
        "arrays in device memory, and leave out wait=False"
    )


def _ended(device: Device, copies: DeviceCopies, event: Any) -> None:
    with suppress(DriverCallError):
        device.driver.call("cuEventDestroy", event)
    copies.end()
