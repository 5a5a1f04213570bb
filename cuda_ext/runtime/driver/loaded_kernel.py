"""A kernel that the driver has loaded on one device: its attributes, limits and occupancy."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

from cuda_ext.errors import ArgumentError
from cuda_ext.runtime.driver import cuda_h
from cuda_ext.runtime.driver import driver as cuda
from cuda_ext.runtime.driver.driver import Device
from cuda_ext.runtime.driver.functions import OUT

if TYPE_CHECKING:
    from cuda_ext.facts.launches import Attributes, FixedLaunch

# The largest cluster that every GPU with clusters supports, in blocks; larger ones need an opt-in.
PORTABLE_CLUSTER = 8

# The static and dynamic shared memory of a block that a kernel may use without an opt-in, in bytes.
_DEFAULT_SHARED_MEMORY = 48 << 10


class LoadedKernel:
    """A kernel on `device`, whose context must be current; `handle` is its ``CUkernel``.

    ``fixed`` is the launch configuration that its image fixes, or ``None``.
    """

    def __init__(self, device: Device, handle: int, fixed: FixedLaunch | None = None) -> None:
        self.device = device
        self.fixed = fixed
        self._handle = handle
        # The function of the primary context. A launch of it cannot run on another device.
        self.function = device.driver.query("cuKernelGetFunction", OUT, handle)
        self.static_shared = self.attribute(cuda_h.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        self.most_threads = self.attribute(cuda_h.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
        # The dynamic shared memory that a launch may use now, in bytes.
        self.allowed = max(0, _DEFAULT_SHARED_MEMORY - self.static_shared)
        # The last result of best_block, and the shared memory that it is for.
        self.latest_best_block = 0, 0
        self._best_block = cache(self._find_best_block)
        self.blocks_per_multiprocessor = cache(self._count_resident_blocks)
        if fixed:
            self.allow_shared(fixed.shared)
            if math.prod(fixed.cluster) > PORTABLE_CLUSTER:
                self.allow_large_clusters()

    def allow_shared(self, shared: int) -> None:
        """Allow launches with `shared` bytes of dynamic shared memory.

        Raises :class:`ArgumentError` if the device has less.
        """
        if shared <= self.allowed:
            return
        device = self.device
        if shared > (most := device.shared_memory_limit - self.static_shared):
            raise ArgumentError(
                f"expected at most {most} bytes, found {shared}",
                where="shared",
                remedy=f"a block on this GPU, {device}, has {device.shared_memory_limit}, of which the "
                f"kernel's own variables take {self.static_shared}",
            )
        with cuda.lock:
            # Another thread may have allowed more in the meantime.
            if shared > self.allowed:
                self._set(cuda_h.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
                self.allowed = shared

    def allow_large_clusters(self) -> None:
        """Allow clusters of more than eight blocks, which not all GPUs support."""
        self._set(cuda_h.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)

    @property
    def most_blocks_of_a_cluster(self) -> int:
        """The largest number of blocks in a cluster."""
        import struct

        config = struct.pack(cuda_h.LAUNCH_CONFIG, 1, 1, 1, self.most_threads, 1, 1, 0, 0, 0, 0)
        with self.device.current():
            return self.device.driver.query("cuOccupancyMaxPotentialClusterSize", OUT, self.function, config)

    def best_block(self, shared: int) -> int:
        """Return the block size with the highest occupancy, for `shared` bytes of dynamic shared memory."""
        threads = self._best_block(shared)
        self.latest_best_block = threads, shared
        return threads

    def _find_best_block(self, shared: int) -> int:
        with self.device.current():
            function = "cuOccupancyMaxPotentialBlockSize"
            _, threads = self.device.driver.call(function, OUT, OUT, self.function, 0, shared, 0)
        return threads

    def _count_resident_blocks(self, threads: int, shared: int) -> int:
        """Return the number of blocks of `threads` threads that are resident on a multiprocessor at once."""
        function = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        with self.device.current():
            return self.device.driver.query(function, OUT, self.function, threads, shared)

    def attributes(self) -> Attributes:
        """Ask the driver for the attributes of the kernel."""
        from cuda_ext.facts.launches import Attributes  # few launches need this module

        return Attributes(
            self.attribute(cuda_h.CU_FUNC_ATTRIBUTE_NUM_REGS),
            self.attribute(cuda_h.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
            self.static_shared,
            self.attribute(cuda_h.CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES),
            self.most_threads,
            self.attribute(cuda_h.CU_FUNC_ATTRIBUTE_PTX_VERSION),
            self.attribute(cuda_h.CU_FUNC_ATTRIBUTE_BINARY_VERSION),
        )

    def attribute(self, attribute: int) -> int:
        device = self.device
        return device.driver.query("cuKernelGetAttribute", OUT, attribute, self._handle, device.ordinal)

    def _set(self, attribute: int, value: int) -> None:
        device = self.device
        device.driver.call("cuKernelSetAttribute", attribute, value, self._handle, device.ordinal)
