"""Arrays in device memory: tensors, arrays, buffers, and everything with DLPack.

:func:`device_memory` gives their address and device, and :func:`array_layout` the layout of their elements.
"""

from __future__ import annotations

import math
import operator
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeAlias

from cuda_ext.errors import ArgumentError
from cuda_ext.runtime.arrays import dlpack
from cuda_ext.runtime.arrays.dtypes import dtype_of_typestr


class HasDataPtr(Protocol):
    """A tensor of PyTorch: ``data_ptr()``, and optionally ``dtype`` and ``is_cuda``."""

    def data_ptr(self) -> int: ...


class HasCudaArrayInterface(Protocol):
    """An array of CuPy or Numba."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


class HasDLPackDevice(Protocol):
    """An array of JAX, a buffer of cuda.core, and others with DLPack."""

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


DeviceArray: TypeAlias = HasDataPtr | HasCudaArrayInterface | HasDLPackDevice


class DeviceMemory(NamedTuple):
    """An address in device memory.

    ``dtype`` is empty and ``device``, the ordinal of the GPU, is ``None`` if they are not known. ``stream``
    returns the handle of the library's current stream on a device; it is ``None`` for plain addresses.
    """

    address: int
    dtype: str = ""
    read_only: bool = False
    device: int | None = None
    stream: Callable[[int], int] | None = None


def device_memory(value: object) -> DeviceMemory | None:
    """Return the device memory of `value`, or ``None`` if it is not an array.

    Raises :class:`ArgumentError` for arrays in other memory, and for memory that has been freed.
    """
    if callable(getattr(value, "data_ptr", None)):
        return _read_tensor(value)
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
    except Exception as error:
        raise ArgumentError(f"expected an array that can be read: {error}") from None
    if interface is not None:
        return _read_array(value, interface)
    if hasattr(type(value), "is_device_accessible") and hasattr(type(value), "handle"):
        return _read_buffer(value)
    if hasattr(value, "__dlpack_device__") and dlpack.device_of(value)[0] != dlpack.CPU:
        return _read_borrowed(dlpack.borrow(value))
    return None


def _read_tensor(tensor: Any) -> DeviceMemory:
    if not getattr(tensor, "is_cuda", True):
        raise ArgumentError(
            f"expected device memory, found a tensor on {getattr(tensor, 'device', 'the host')}",
            remedy='move it with .to("cuda")',
        )
    try:
        address = tensor.data_ptr()
    except Exception as error:
        raise ArgumentError(
            f"expected a tensor with memory of its own: {str(error).partition(chr(10))[0]}"
        ) from None
    if not address and getattr(tensor, "numel", int)():
        raise ArgumentError(
            "the memory of this tensor has been freed", remedy="keep it until the kernel has run"
        )
    if getattr(tensor, "is_conj", bool)() or getattr(tensor, "is_neg", bool)():
        raise ArgumentError(
            "expected a tensor as it lies in memory, found a conjugated or negated view",
            remedy="resolve it with .resolve_conj() or .resolve_neg()",
        )
    dtype = str(getattr(tensor, "dtype", "")).rpartition(".")[2]
    device = tensor.get_device() if hasattr(tensor, "get_device") else None
    return DeviceMemory(address, dtype, device=device, stream=_torch_stream)


def _torch_stream(device: int) -> int:
    torch = sys.modules.get("torch")
    return int(torch._C._cuda_getCurrentRawStream(device)) if torch else 0


def _read_array(array: object, interface: Any) -> DeviceMemory:
    if hasattr(array, "block_until_ready"):
        array.block_until_ready()  # JAX uses its own streams
    cupy = sys.modules.get("cupy")
    of_cupy = cupy is not None and isinstance(array, cupy.ndarray)
    try:
        address, read_only = interface["data"]
        # The address of an empty array may be None.
        return DeviceMemory(
            operator.index(address or 0),
            dtype_of_typestr(interface["typestr"]),
            read_only,
            array.data.device_id if of_cupy else None,  # type: ignore[attr-defined]
            _cupy_stream if of_cupy else _interface_stream(interface.get("stream")),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"expected a __cuda_array_interface__ with data and typestr ({error!r})"
        ) from None


def _cupy_stream(device: int) -> int:
    cupy: Any = sys.modules["cupy"]
    return int(cupy.cuda.get_current_stream(device).ptr)


def _interface_stream(stream: int | None) -> Callable[[int], int]:
    # The array is ready after the work in this stream.
    return lambda _: stream or 0


def _read_buffer(buffer: Any) -> DeviceMemory:
    """Read the memory of a ``Buffer`` of cuda.core, which has no dtype."""
    try:
        address, accessible, device = buffer.handle, buffer.is_device_accessible, buffer.device_id
    except RuntimeError:  # it has been closed
        address, accessible, device = None, True, -1
    if not address:
        raise ArgumentError(
            "the memory of this buffer has been freed", remedy="keep it until the kernel has run"
        )
    if not accessible:
        raise ArgumentError("expected device memory, found a buffer in host memory")
    return DeviceMemory(int(address), device=device if device >= 0 else None, stream=lambda _: 0)


def _read_borrowed(borrowed: dlpack.Borrowed) -> DeviceMemory:
    tensor = borrowed.tensor
    address = (tensor.data or 0) + tensor.byte_offset
    return DeviceMemory(address, borrowed.dtype, borrowed.read_only, tensor.device.id, borrowed.stream)


class ArrayLayout(NamedTuple):
    """A layout; ``strides`` and ``item``, the size of an element, are in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item: int

    @property
    def size(self) -> int:
        """The size of all elements in bytes."""
        return self.item * math.prod(self.shape)

    @property
    def reach(self) -> range:
        """The bytes from the lowest to the highest element, counted from the first element."""
        if not self.size:
            return range(0)
        steps = [(extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True)]
        below = sum(step for step in steps if step < 0)
        return range(below, sum(steps) - below + self.item)

    @property
    def contiguous(self) -> bool:
        """True if the elements are contiguous in C order."""
        in_order = _c_order(self.shape, self.item)
        axes = zip(self.shape, self.strides, in_order, strict=True)
        return self.size == 0 or all(extent == 1 or stride == ordered for extent, stride, ordered in axes)


def array_layout(value: Any) -> ArrayLayout | None:
    """Return the layout of an array in device memory, or ``None`` for an address.

    Raises :class:`ArgumentError` for arrays that do not provide it.
    """
    if callable(getattr(value, "data_ptr", None)):
        return _tensor_layout(value)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return _interface_layout(interface)
    if hasattr(type(value), "is_device_accessible") and hasattr(type(value), "handle"):
        return ArrayLayout((int(value.size),), (1,), 1)
    if hasattr(value, "__dlpack_device__"):
        borrowed = dlpack.borrow(value)
        tensor = borrowed.tensor
        strides = tensor.strides[: tensor.ndim] if tensor.strides else None
        return _layout(tensor.shape[: tensor.ndim], strides, -(-tensor.bits * tensor.lanes // 8))
    return None


def _tensor_layout(tensor: Any) -> ArrayLayout:
    try:
        return _layout(tensor.shape, tensor.stride(), int(tensor.element_size()))
    except (AttributeError, TypeError) as error:
        raise ArgumentError(f"expected a tensor with shape, stride and element_size ({error})") from None


def _interface_layout(interface: Any) -> ArrayLayout:
    try:
        shape = tuple(map(int, interface["shape"]))
        item = int(re.findall(r"\d+", interface["typestr"])[0])
        strides = interface.get("strides")
        return ArrayLayout(shape, tuple(strides), item) if strides else c_layout(shape, item)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"expected a __cuda_array_interface__ with shape and typestr ({error!r})"
        ) from None


def c_layout(shape: tuple[int, ...], item: int) -> ArrayLayout:
    """Return the layout of a contiguous array in C order, with elements of `item` bytes."""
    return ArrayLayout(shape, _c_order(shape, item), item)


def _layout(shape: Iterable[int], strides: Iterable[int] | None, item: int) -> ArrayLayout:
    """Return the layout with `strides` in items, or in C order if they are ``None``."""
    extents = tuple(shape)
    if strides is None:
        return c_layout(extents, item)
    return ArrayLayout(extents, tuple(stride * item for stride in strides), item)


def _c_order(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    return tuple(item * math.prod(shape[axis:]) for axis in range(1, len(shape) + 1))
