"""The CUDA driver and its devices.

The driver is opened at its first use, never at import. The outcome is cached, even a failure: later calls
raise the same error without another attempt.
"""

from __future__ import annotations

import ctypes
import os
import sys
from _thread import RLock
from collections.abc import Callable
from functools import cached_property
from typing import Any

from cuda_ext.errors import DriverCallError, DriverError, DriverTooOldError, NoDeviceError, NoDriverError
from cuda_ext.runtime.driver import cuda_h
from cuda_ext.runtime.driver.functions import OUT, Functions

# Held while the driver is opened and while images are loaded. One lock protects both, so that a forked child
# can tell whether another thread was doing either.
lock = RLock()

_OLDEST = (12, 0)  # the first driver with cuLibraryLoadData

# Errors of an earlier kernel that leave the context unusable.
_STICKY = {
    cuda_h.CUDA_ERROR_CONTAINED,
    cuda_h.CUDA_ERROR_ILLEGAL_ADDRESS,
    cuda_h.CUDA_ERROR_LAUNCH_TIMEOUT,
    cuda_h.CUDA_ERROR_ASSERT,
    *range(cuda_h.CUDA_ERROR_HARDWARE_STACK_ERROR, cuda_h.CUDA_ERROR_LAUNCH_FAILED + 1),
    cuda_h.CUDA_ERROR_TENSOR_MEMORY_LEAK,
}

# The handles of the default streams, which are the same in every context.
_DEFAULT_STREAMS = {0, 1, 2}

# Remedies for errors of cuInit.
_INIT_REMEDIES = {
    cuda_h.CUDA_ERROR_SYSTEM_NOT_READY: (
        "the machine is still starting, or a service that the GPUs need (Fabric Manager) is down"
    ),
    cuda_h.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: (
        "the driver's library and its kernel module have different versions; reboot"
    ),
    cuda_h.CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: (
        "this GPU does not support CUDA's compatibility package; remove it, or upgrade the driver"
    ),
}


def _attribute(number: int) -> cached_property[int]:
    return cached_property(lambda device: device.attribute(number))


def _extents(of_x: int) -> cached_property[tuple[int, int, int]]:
    return cached_property(lambda device: tuple(device.attribute(of_x + axis) for axis in range(3)))


class Device:
    """A GPU.

    ``capability`` is the compute capability (``90`` for 9.0). ``largest_grid`` is in blocks,
    ``largest_block`` and ``most_threads`` are in threads per block, and ``shared_memory_limit`` is the most
    shared memory that a block may have, in bytes.
    """

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self._context: int | None = None
        major = self.attribute(cuda_h.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        self.capability = 10 * major + self.attribute(cuda_h.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)

    shared_memory_limit = _attribute(cuda_h.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
    most_threads = _attribute(cuda_h.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
    multiprocessors = _attribute(cuda_h.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
    threads_per_multiprocessor = _attribute(cuda_h.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)
    supports_cooperative_launches = _attribute(cuda_h.CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)
    supports_clusters = _attribute(cuda_h.CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)
    has_memory_pools = _attribute(cuda_h.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)
    largest_block = _extents(cuda_h.CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)
    largest_grid = _extents(cuda_h.CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)

    @cached_property
    def name(self) -> str:
        """Its name, ``NVIDIA H200``."""
        text = ctypes.create_string_buffer(256)
        self.driver.call("cuDeviceGetName", ctypes.addressof(text), len(text), self.ordinal)
        return text.value.decode(errors="replace")

    def attribute(self, number: int) -> int:
        """Return a device attribute by its number in ``cuda.h``."""
        return self.driver.query("cuDeviceGetAttribute", OUT, number, self.ordinal)

    def current(self) -> _Current:
        """Make the primary context current within a ``with`` block, and restore the previous one after it."""
        return _Current(self)

    @property
    def context(self) -> int:
        """The primary context, which all libraries in this process share. It is retained once."""
        if self._context is None:
            with lock:
                if self._context is None:
                    device = self.driver.query("cuDeviceGet", OUT, self.ordinal)
                    self._context = self.driver.query("cuDevicePrimaryCtxRetain", OUT, device)
        return self._context

    def create_event(self) -> int:
        """Create an event without timing. The context must be current."""
        return self.driver.query("cuEventCreate", OUT, cuda_h.CU_EVENT_DISABLE_TIMING)

    def __str__(self) -> str:
        return f"sm_{self.capability}"


class _Current:
    """The ``with`` block in which the primary context of `device` is current."""

    __slots__ = ("_device", "_is_pushed")

    def __init__(self, device: Device) -> None:
        self._device = device

    def __enter__(self) -> None:
        driver, context = self._device.driver, self._device.context
        self._is_pushed = driver.query("cuCtxGetCurrent", OUT) != context
        if self._is_pushed:
            driver.call("cuCtxPushCurrent", context)

    def __exit__(self, *_: object) -> None:
        if self._is_pushed:
            self._device.driver.call("cuCtxPopCurrent", OUT)


class Driver:
    """The opened driver, which has these `functions`.

    ``version`` is the newest CUDA version that it supports, ``(13, 0)``. ``fault`` is the error after which
    all driver calls in this process fail, or ``None``.
    """

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.fault: DriverCallError | None = None
        self._devices: dict[int, Device] = {}

    def call(self, function: str, *arguments: int | bytes | None) -> list[int]:
        """Call `function` as :meth:`Functions.call` does, and return its results.

        Raises :class:`DriverCallError` with the driver's name and description of the error.
        """
        status, *results = self.functions.call(function, *arguments)
        if status:
            raise self.error(function, status)
        return results

    def query(self, function: str, *arguments: int | bytes | None) -> int:
        """Call `function`, which has a single result, and return this result."""
        status, result = self.functions.call(function, *arguments)
        if status:
            raise self.error(function, status)
        return result

    def error(self, function: str, code: int) -> DriverCallError:
        """Return the error for the status `code` that `function` returned.

        The first one that ends all work on the GPU is recorded, and named in all later ones.
        """
        name = self._describe("cuGetErrorName", code) or "unknown error"
        description = self._describe("cuGetErrorString", code) or "no description"
        problem = f"{function} failed: {name} ({code}): {description}"
        if self.fault:
            problem += f"; no work on the GPU succeeds in this process any more since {self.fault}"
            return DriverCallError(problem, code, remedy="start another")
        error = DriverCallError(problem, code)
        if code in _STICKY:
            self.fault = error
        return error

    def _describe(self, function: str, code: int) -> str:
        _, text = self.functions.call(function, code, OUT)
        return ctypes.string_at(text).decode(errors="replace") if text else ""

    @cached_property
    def version(self) -> tuple[int, int]:
        return divmod(self.query("cuDriverGetVersion", OUT) // 10, 100)

    @cached_property
    def count(self) -> int:
        """The number of GPUs that are visible to this process."""
        return self.query("cuDeviceGetCount", OUT)

    def device(self, ordinal: int) -> Device:
        """Return the GPU with this CUDA ordinal. Raises :class:`NoDeviceError` if there is none."""
        if ordinal not in self._devices:
            if not 0 <= ordinal < self.count:
                raise NoDeviceError(
                    f"there is no GPU {ordinal}", remedy=f"this process sees {self.count}, counted from 0"
                )
            # If two threads get here, one of them stores its device.
            self._devices.setdefault(ordinal, Device(self, ordinal))
        return self._devices[ordinal]

    def current_device(self) -> Device:
        """Return the GPU of the current context, or the first GPU if there is no context."""
        if self.count == 1 or not self.query("cuCtxGetCurrent", OUT):
            return self.device(0)
        return self.device(self.query("cuCtxGetDevice", OUT))

    def device_of_stream(self, stream: int) -> Device | None:
        """Return the GPU of the stream with this handle; ``None`` for a default stream, which all have."""
        if stream in _DEFAULT_STREAMS:
            return None
        if self.count == 1:
            return self.device(0)
        self.call("cuCtxPushCurrent", self.query("cuStreamGetCtx", stream, OUT))
        try:
            return self.device(self.query("cuCtxGetDevice", OUT))
        finally:
            self.call("cuCtxPopCurrent", OUT)

    def pointer_attributes(self, address: int, *attributes: int) -> list[int]:
        """Return `attributes` (numbers of ``cuda.h``) of the memory at `address`.

        They are 0 for memory unknown to CUDA. ``cuPointerGetAttribute`` would return an error for it.
        """
        count = len(attributes)
        values = (ctypes.c_uint64 * count)()
        start, size = ctypes.addressof(values), ctypes.sizeof(ctypes.c_uint64)
        places = (ctypes.c_uint64 * count)(*range(start, start + count * size, size))
        numbers = bytes((ctypes.c_uint32 * count)(*attributes))
        self.call("cuPointerGetAttributes", count, numbers, bytes(places), address)
        return list(values)

    def device_of_memory(self, address: int) -> int | None:
        """Return the ordinal of the GPU with the memory at `address`; ``None`` if CUDA does not know it."""
        kind, ordinal = self.pointer_attributes(
            address, cuda_h.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, cuda_h.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        )
        return ordinal if kind else None


class ProcessCache:
    """Driver objects by key. A forked child starts with an empty cache."""

    __slots__ = ("_objects", "_process")

    def __init__(self) -> None:
        self._objects: dict[Any, Any] = {}
        self._process = _process

    def get(self, key: object) -> Any:
        """Return the object of `key`, or ``None``."""
        return self._objects.get(key) if self._process is _process else None

    def get_or_create(self, key: object, create: Callable[[], Any]) -> Any:
        """Return the object of `key`. One thread creates it while others wait."""
        if self.get(key) is None:
            with lock:
                if self._process is not _process:
                    self._objects, self._process = {}, _process
                if key not in self._objects:
                    self._objects[key] = create()
        return self._objects[key]


# Identifies this process; a forked child has another object.
_process = object()

_outcome: Driver | DriverError | None = None


def open_driver() -> Driver:
    """Return the driver, and open it at the first call.

    Raises :class:`NoDriverError`, :class:`DriverTooOldError`, :class:`NoDeviceError`, or :class:`DriverError`
    for other failures of the driver.
    """
    global _outcome
    if _outcome is None:
        with lock:
            if _outcome is None:
                try:
                    _outcome = _open()
                except DriverError as error:
                    _outcome = error.with_traceback(None)
    if isinstance(_outcome, DriverError):
        from copy import copy

        raise copy(_outcome)  # an error object keeps the traceback of its first raise
    return _outcome


def gpu_available() -> bool:
    """Return True if this process can launch kernels: there is a usable driver, and a GPU."""
    try:
        open_driver()
    except DriverError:
        return False
    return True


def _open() -> Driver:
    if sys.platform == "darwin":
        raise NoDriverError(
            "there is no CUDA driver for macOS: kernels can be built and inspected here, and launched "
            "under Linux and Windows"
        )
    try:
        functions = Functions()
    except OSError as error:
        raise NoDriverError(
            f"there is no CUDA driver on this machine ({error})",
            remedy="launching kernels requires an NVIDIA GPU and its driver",
        ) from None
    driver = Driver(functions)
    try:
        # cuInit comes first, since the other functions require that there is a driver.
        driver.call("cuInit", 0)
    except DriverCallError as error:
        raise _explain_refusal(error) from None
    if driver.version < _OLDEST:
        raise DriverTooOldError(
            f"the NVIDIA driver supports CUDA up to {'.'.join(map(str, driver.version))}, and launches "
            f"require {'.'.join(map(str, _OLDEST))} or newer",
            remedy="upgrade the driver",
        )
    if driver.count == 0:
        raise _no_device()
    return driver


def _explain_refusal(error: DriverCallError) -> DriverError:
    """Return the error to raise for an `error` of ``cuInit``, with a remedy."""
    match error.code:
        case cuda_h.CUDA_ERROR_NOT_INITIALIZED:
            return _forked()
        case cuda_h.CUDA_ERROR_STUB_LIBRARY:
            return NoDriverError(
                "the CUDA library that was found is a stub for linking, not a driver",
                remedy="take the toolkit's stubs directory out of LD_LIBRARY_PATH",
            )
        case cuda_h.CUDA_ERROR_NO_DEVICE | cuda_h.CUDA_ERROR_INVALID_DEVICE:
            return _no_device()
    remedy = _INIT_REMEDIES.get(error.code, "see whether nvidia-smi works; reboot, or reinstall the driver")
    return DriverError(f"the CUDA driver cannot be used: {error}", remedy=remedy)


def _no_device() -> NoDeviceError:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return NoDeviceError("the CUDA driver finds no GPU", remedy="see whether nvidia-smi lists one")
    return NoDeviceError(
        f"the CUDA driver finds no GPU among CUDA_VISIBLE_DEVICES={visible!r}", remedy="change or unset that"
    )


def _forked() -> DriverError:
    return DriverError(
        "CUDA was used before this process was forked, and the driver does not survive that",
        remedy='use CUDA in child processes only, or start them with multiprocessing.get_context("spawn")',
    )


def _after_fork() -> None:
    global lock, _outcome, _process
    held_by_another_thread = not lock.acquire(blocking=False)
    if isinstance(_outcome, Driver) or held_by_another_thread:
        _outcome = _forked()
    _process = object()
    lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
