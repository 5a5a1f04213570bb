"""A kernel in the driver."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from cuda_ext.errors import ArgumentError
from cuda_ext.runtime.driver import driver as cuda
from cuda_ext.runtime.driver.driver import Device

__all__ = ["Attributes", "LoadedKernel"]

# What a block gets of shared memory, static and dynamic together, unless the kernel is allowed more.
_DEFAULT_SHARED_MEMORY = 48 << 10


@dataclass(frozen=True, slots=True)
class Attributes:
    """What one image of a kernel takes on one GPU: ``registers`` and bytes of ``local`` memory per thread,
    bytes of static ``shared`` and of ``constant`` memory, and the most threads that a block may have.

    ``ptx`` and ``binary`` are the architectures (``90``) of the PTX and of the machine code.
    """

    registers: int
    local: int
    shared: int
    constant: int
    most_threads: int
    ptx: int
    binary: int


class LoadedKernel:
    """A kernel on one device, whose context is current; `handle` is its ``CUkernel``."""

    def __init__(self, device: Device, handle: Any) -> None:
        self.device = device
        self._handle = handle
        # That of the primary context, so that a launch cannot land on another device.
        self.function = device.driver.call("cuKernelGetFunction", handle)
        self.address = int(self.function)
        self._static = self._get("SHARED_SIZE_BYTES")
        self.most_threads = self._get("MAX_THREADS_PER_BLOCK")
        self.most_blocks = device.largest_grid[0]
        # Bytes of dynamic shared memory that need no further leave.
        self.allowed = max(0, _DEFAULT_SHARED_MEMORY - self._static)
        self.best_block = cache(self._best_block)
        self.blocks_at_once = cache(self._blocks_at_once)

    @property
    def attributes(self) -> Attributes:
        return Attributes(
            self._get("NUM_REGS"),
            self._get("LOCAL_SIZE_BYTES"),
            self._static,
            self._get("CONST_SIZE_BYTES"),
            self.most_threads,
            self._get("PTX_VERSION"),
            self._get("BINARY_VERSION"),
        )

    def allow_shared(self, shared: int) -> None:
        """Have as much dynamic shared memory allowed.

        Raises :class:`ArgumentError` if the device has not that much.
        """
        if shared <= self.allowed:
            return
        device = self.device
        if shared > (most := device.shared_memory_limit - self._static):
            raise ArgumentError(
                f"shared: expected at most {most} bytes, found {shared}; a block on this GPU, {device}, has "
                f"{device.shared_memory_limit}, of which the kernel's own variables take {self._static}"
            )
        with cuda.lock:
            # Never less than another thread needs.
            if shared > self.allowed:
                self._set("MAX_DYNAMIC_SHARED_SIZE_BYTES", shared)
                self.allowed = shared

    def allow_large_clusters(self) -> None:
        """Have clusters allowed that other GPUs may not have."""
        self._set("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)

    @property
    def most_blocks_of_a_cluster(self) -> int:
        config = self.device.driver.api.CUlaunchConfig()
        config.gridDimX = config.gridDimY = config.gridDimZ = 1
        config.blockDimX, config.blockDimY, config.blockDimZ = self.most_threads, 1, 1
        with self.device.current():
            return int(self.device.driver.call("cuOccupancyMaxPotentialClusterSize", self.function, config))

    def _best_block(self, shared: int) -> int:
        """The threads per block with which the most threads run at once, given `shared` bytes per block."""
        with self.device.current():
            _, threads = self.device.driver.call(
                "cuOccupancyMaxPotentialBlockSize", self.function, None, shared, 0
            )
        return int(threads)

    def _blocks_at_once(self, threads: int, shared: int) -> int:
        """How many blocks of `threads` threads the GPU runs at once."""
        return self.blocks_per_multiprocessor(threads, shared) * self.device.multiprocessors

    def blocks_per_multiprocessor(self, threads: int, shared: int) -> int:
        function = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        with self.device.current():
            return int(self.device.driver.call(function, self.function, threads, shared))

    def _get(self, name: str) -> int:
        device = self.device
        return int(device.driver.call("cuKernelGetAttribute", self._name(name), self._handle, device.ordinal))

    def _set(self, name: str, value: int) -> None:
        device = self.device
        device.driver.call("cuKernelSetAttribute", self._name(name), value, self._handle, device.ordinal)

    def _name(self, name: str) -> Any:
        return getattr(self.device.driver.api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
