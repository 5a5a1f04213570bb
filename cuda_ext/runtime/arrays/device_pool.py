"""Device memory that is taken and given back in the order of a stream."""

from __future__ import annotations

from typing import Any

from cuda_ext.runtime.driver.driver import Device, Prepared

__all__ = ["DevicePool", "device_pool"]

# So many bytes stay with a pool when nobody uses them: new memory costs more time than filling it does.
_KEPT = 1 << 30


class DevicePool:
    """A memory pool of `device`, apart from the default one, whose settings are others' business."""

    def __init__(self, device: Device) -> None:
        self._call = device.driver.call
        self._handle = _pool(device)

    def allocate(self, size: int, stream: int) -> int:
        """The address of `size` bytes, which work in `stream` may use from now on."""
        if self._handle is None:
            return int(self._call("cuMemAlloc", size))
        return int(self._call("cuMemAllocFromPoolAsync", size, self._handle, stream))

    def free(self, address: int, stream: int) -> None:
        """Give memory back as soon as all work in `stream` so far is done."""
        if self._handle is None:
            self._call("cuStreamSynchronize", stream)
            self._call("cuMemFree", address)
        else:
            self._call("cuMemFreeAsync", address, stream)


def _pool(device: Device) -> Any:
    """The driver's handle; ``None`` on GPUs without pools."""
    if not device.has_memory_pools:
        return None
    driver, api = device.driver, device.driver.api
    properties = api.CUmemPoolProps()
    properties.allocType = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device.ordinal
    handle = driver.call("cuMemPoolCreate", properties)
    threshold = api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    driver.call("cuMemPoolSetAttribute", handle, threshold, api.cuuint64_t(_KEPT))
    return handle


_pools: Prepared[int, DevicePool] = Prepared()


def device_pool(device: Device) -> DevicePool:
    """That of `device`, whose context is current; the same for everybody."""
    return _pools.once(device.ordinal, lambda: DevicePool(device))
