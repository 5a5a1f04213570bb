"""The CUDA driver and its devices.

The driver is opened at its first use, never at import. The outcome is cached, a failure too: later calls
raise the same error without trying again.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from typing import Any, TypeVar

from cuda_ext.errors import DriverCallError, DriverError, DriverTooOldError, NoDeviceError, NoDriverError

__all__ = ["Device", "Driver", "ProcessCache", "gpu_available", "lock", "open_driver"]

_K = TypeVar("_K")
_T = TypeVar("_T")

# Held while the driver is opened and while images are loaded. A single lock for both, so that a forked child
# can tell whether another thread was doing either.
lock = threading.RLock()

_OLDEST = (12, 0)  # the first driver with cuLibraryLoadData

# Errors of an earlier kernel that leave the context unusable: CUDA_ERROR_CONTAINED, _ILLEGAL_ADDRESS,
# _LAUNCH_TIMEOUT, _ASSERT, _HARDWARE_STACK_ERROR to _LAUNCH_FAILED, and _TENSOR_MEMORY_LEAK.
_STICKY = {226, 700, 702, 710, *range(714, 720), 721}

# The handles of the default streams, which exist in every context.
_DEFAULT_STREAMS = {0, 1, 2}

_FORKED = DriverError(
    "CUDA was used before this process was forked, and the driver does not survive that",
    remedy='use CUDA in child processes only, or start them with multiprocessing.get_context("spawn")',
)


# What to do about errors of cuInit.
_INIT_REMEDIES = {
    # CUDA_ERROR_SYSTEM_NOT_READY
    802: "the machine is still starting, or a service that the GPUs need (Fabric Manager) is down",
    # CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
    803: "the driver's library and its kernel module have different versions; reboot",
    # CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
    804: "this GPU does not take CUDA's compatibility package; remove it, or upgrade the driver",
}


def _attribute(name: str) -> cached_property[int]:
    return cached_property(lambda device: device.attribute(name))


class Device:
    """A GPU.

    ``capability`` is the compute capability (``90`` for 9.0). ``largest_grid`` is in blocks,
    ``largest_block`` and ``most_threads`` are in threads per block, and ``shared_memory_limit`` is the most
    shared memory that a block may have, in bytes.
    """

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver = driver
        self.ordinal = ordinal
        major, minor = (self.attribute(f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
        self.capability = 10 * major + minor

    shared_memory_limit = _attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
    most_threads = _attribute("MAX_THREADS_PER_BLOCK")
    multiprocessors = _attribute("MULTIPROCESSOR_COUNT")
    threads_per_multiprocessor = _attribute("MAX_THREADS_PER_MULTIPROCESSOR")
    supports_cooperative_launches = _attribute("COOPERATIVE_LAUNCH")
    supports_clusters = _attribute("CLUSTER_LAUNCH")
    has_memory_pools = _attribute("MEMORY_POOLS_SUPPORTED")

    @cached_property
    def largest_block(self) -> tuple[int, int, int]:
        return self._extents("BLOCK")

    @cached_property
    def largest_grid(self) -> tuple[int, int, int]:
        return self._extents("GRID")

    def attribute(self, name: str) -> int:
        """A device attribute, such as ``MULTIPROCESSOR_COUNT``."""
        attribute = getattr(self.driver.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.driver.call("cuDeviceGetAttribute", attribute, self.ordinal))

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the primary context current within the block, and restore the previous one after it."""
        if int(self.driver.call("cuCtxGetCurrent")) == int(self.context):
            yield
            return
        self.driver.call("cuCtxPushCurrent", self.context)
        try:
            yield
        finally:
            self.driver.call("cuCtxPopCurrent")

    @cached_property
    def context(self) -> Any:
        """The primary context, which all libraries in this process share."""
        with lock:
            return self.driver.call("cuDevicePrimaryCtxRetain", self.driver.call("cuDeviceGet", self.ordinal))

    def create_event(self) -> Any:
        """Create an event without timing. The context must be current."""
        return self.driver.call("cuEventCreate", self.driver.api.CUevent_flags.CU_EVENT_DISABLE_TIMING)

    def _extents(self, name: str) -> tuple[int, int, int]:
        x, y, z = (self.attribute(f"MAX_{name}_DIM_{axis}") for axis in "XYZ")
        return x, y, z

    def __str__(self) -> str:
        return f"sm_{self.capability}"


class Driver:
    """The opened driver. ``version`` is the newest CUDA version that it supports, ``(13, 0)``.

    ``fault`` is the error, if there was one, after which all driver calls in this process fail.
    """

    def __init__(self, api: Any) -> None:
        self.api = api
        self.fault: DriverCallError | None = None
        self._devices: dict[int, Device] = {}

    def call(self, function: str, *arguments: Any) -> Any:
        """Call `function` of ``cuda.bindings.driver``; return its result, or the tuple of its results.

        Raises :class:`DriverCallError` with the driver's name and description of the error.
        """
        try:
            status, *results = getattr(self.api, function)(*arguments)
        except (OSError, RuntimeError) as error:
            first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise NoDriverError(
                f"there is no CUDA driver on this machine ({first_line})",
                remedy="launching kernels takes an NVIDIA GPU and its driver",
            ) from None
        except ValueError as error:
            # The driver is newer than cuda-bindings, which does not know the error code.
            raise self._record(DriverCallError(f"{function} failed: {error}")) from None
        if int(status):
            raise self.error(function, status)
        return results[0] if len(results) == 1 else tuple(results)

    def error(self, function: str, status: Any) -> DriverCallError:
        """The error for the `status` that `function` returned."""
        _, text = self.api.cuGetErrorString(status)
        description = text.decode(errors="replace") if text else "no description"
        code = int(status)
        return self._record(
            DriverCallError(f"{function} failed: {status.name} ({code}): {description}", code)
        )

    def _record(self, error: DriverCallError) -> DriverCallError:
        """Record `error` if it ends all work on the GPU; name the recorded error in all later ones."""
        if self.fault:
            return DriverCallError(
                f"{error}; no work on the GPU succeeds in this process any more since {self.fault}",
                error.code,
                remedy="start another",
            )
        if error.code in _STICKY:
            self.fault = error
        return error

    @cached_property
    def version(self) -> tuple[int, int]:
        return divmod(int(self.call("cuDriverGetVersion")) // 10, 100)

    @cached_property
    def count(self) -> int:
        """The number of GPUs that are visible to this process."""
        return int(self.call("cuDeviceGetCount"))

    def device(self, ordinal: int) -> Device:
        """The GPU with that CUDA ordinal. Raises :class:`NoDeviceError` if there is none."""
        if ordinal not in self._devices:
            if not 0 <= ordinal < self.count:
                raise NoDeviceError(
                    f"there is no GPU {ordinal}", remedy=f"this process sees {self.count}, counted from 0"
                )
            # Of two threads that get here, one stores its device.
            self._devices.setdefault(ordinal, Device(self, ordinal))
        return self._devices[ordinal]

    def current_device(self) -> Device:
        """The GPU of the current context, or the first where there is none."""
        if self.count == 1 or not int(self.call("cuCtxGetCurrent")):
            return self.device(0)
        return self.device(int(self.call("cuCtxGetDevice")))

    def device_of_stream(self, stream: int) -> Device:
        """The GPU of the stream with that handle; for a default stream, the current one."""
        if self.count == 1 or stream in _DEFAULT_STREAMS:
            return self.current_device()
        self.call("cuCtxPushCurrent", self.call("cuStreamGetCtx", stream))
        try:
            return self.device(int(self.call("cuCtxGetDevice")))
        finally:
            self.call("cuCtxPopCurrent")

    def pointer_attribute(self, name: str, address: int) -> int:
        """An attribute of the memory at `address`, such as ``DEVICE_ORDINAL``."""
        attribute = getattr(self.api.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")
        return int(self.call("cuPointerGetAttribute", attribute, address))


class ProcessCache(dict[_K, _T]):
    """A dictionary of driver objects. A forked child starts with an empty one."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        _caches.add(self)

    def get_or_create(self, key: _K, create: Callable[[], _T]) -> _T:
        """The value of `key`. One thread creates it while others wait."""
        if key not in self:
            with lock:
                if key not in self:
                    self[key] = create()
        return self[key]


_caches: weakref.WeakSet[ProcessCache[Any, Any]] = weakref.WeakSet()

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
        raise copy(_outcome)
    return _outcome


def gpu_available() -> bool:
    """Whether kernels can be launched in this process: there is a usable driver, and a GPU."""
    try:
        open_driver()
    except DriverError:
        return False
    return True


def _open() -> Driver:
    try:
        from cuda.bindings import driver as api
    except ImportError as error:
        if sys.platform == "darwin":
            raise NoDriverError(
                "there is no CUDA driver for macOS: kernels can be built and inspected here, and launched "
                "under Linux and Windows"
            ) from None
        raise NoDriverError(
            f"the CUDA driver is reached through cuda-bindings: {error}", remedy="install cuda-bindings"
        ) from None
    driver = Driver(api)
    try:
        # cuInit comes first, since the other functions assume that there is a driver.
        driver.call("cuInit", 0)
    except DriverCallError as error:
        raise _explain_refusal(error) from None
    if driver.version < _OLDEST:
        raise DriverTooOldError(
            f"the NVIDIA driver supports CUDA up to {'.'.join(map(str, driver.version))}, and launching "
            f"takes {'.'.join(map(str, _OLDEST))} or newer",
            remedy="upgrade the driver",
        )
    if driver.count == 0:
        raise _no_device()
    return driver


def _explain_refusal(error: DriverCallError) -> DriverError:
    """The error to raise for an `error` of ``cuInit``, with a remedy."""
    match error.code:
        case 3:  # CUDA_ERROR_NOT_INITIALIZED
            return copy(_FORKED)
        case 34:  # CUDA_ERROR_STUB_LIBRARY
            return NoDriverError(
                "the CUDA library that was found is a stub for linking, not a driver",
                remedy="take the toolkit's stubs directory out of LD_LIBRARY_PATH",
            )
        case 100 | 101:  # CUDA_ERROR_NO_DEVICE, CUDA_ERROR_INVALID_DEVICE
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


def _after_fork() -> None:
    global lock, _outcome
    held_by_another_thread = not lock.acquire(blocking=False)
    if isinstance(_outcome, Driver) or held_by_another_thread:
        _outcome = _FORKED
    for cache in list(_caches):
        cache.clear()
    lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
