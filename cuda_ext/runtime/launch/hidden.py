"""The values of hidden parameters, which a launch derives: shapes and strides of arrays, and zeros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cuda_ext.errors import ArgumentError
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.launches import HiddenParameter
from cuda_ext.runtime.arrays.device_memory import ArrayLayout, array_layout, c_layout
from cuda_ext.runtime.arrays.host_arrays import Out, is_host_array
from cuda_ext.runtime.arrays.tensor_map import array_of


def measure_arrays(kernel: Kernel, arguments: Sequence[object]) -> dict[str, int]:
    """Read the shapes and strides of `arguments` that hidden parameters of `kernel` take, by their source.

    Raises :class:`ArgumentError` for arrays with too few axes, and for arguments that are not arrays.
    """
    by_name = {p.name: each for p, each in zip(kernel.parameters, arguments, strict=True)}
    layouts: dict[str, ArrayLayout] = {}
    extents = {}
    for hidden in kernel.hidden:
        if extent := hidden.extent:
            name, what, axis = extent
            if name not in layouts:
                layouts[name] = _layout(name, array_of(by_name[name]))
            extents[hidden.source] = _extent(name, layouts[name], what, axis)
    return extents


def pack_values(parameters: Sequence[HiddenParameter], extents: Mapping[str, int]) -> list[bytes | None]:
    """Pack the values of hidden `parameters`; ``None`` for scratch memory.

    Raises :class:`ArgumentError` for extents that are too large.
    """
    values: list[bytes | None] = []
    for hidden in parameters:
        number = extents.get(hidden.source, 0)
        try:
            value = number.to_bytes(hidden.size, "little", signed=True)
        except OverflowError:
            name, _, what = hidden.source.partition(".")
            raise ArgumentError(
                f"expected {what} of at most {8 * hidden.size} bits, found {number}",
                where=f"argument {name!r}",
            ) from None
        values.append(None if hidden.source == "scratch" else value)
    return values


def _layout(name: str, array: Any) -> ArrayLayout:
    if isinstance(array, Out):
        array = array.array
    # Copies of host arrays are contiguous.
    layout = c_layout(array.shape, array.itemsize) if is_host_array(array) else array_layout(array)
    if layout is None:
        raise ArgumentError("expected an array, since the kernel takes its shape", where=f"argument {name!r}")
    return layout


def _extent(name: str, layout: ArrayLayout, what: str, axis: int) -> int:
    if axis >= len(layout.shape):
        raise ArgumentError(
            f"expected an array with at least {axis + 1} axes, found the shape {layout.shape}",
            where=f"argument {name!r}",
        )
    if what == "shape":
        return layout.shape[axis]
    stride, rest = divmod(layout.strides[axis], layout.item)
    if rest:
        raise ArgumentError(
            f"expected a stride of whole elements of {layout.item} bytes, found {layout.strides[axis]} bytes",
            where=f"argument {name!r}",
        )
    return stride
