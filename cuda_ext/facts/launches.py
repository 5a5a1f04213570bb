"""Launches as images fix them: configuration, hidden parameters and tensor maps; and resources of kernels."""

from collections.abc import Mapping, Set
from typing import NamedTuple

# The options of Triton that decide on the code, with what they are if nobody gives others.
TRITON_OPTIONS = {"num_warps": "4", "num_stages": "3", "num_ctas": "1", "maxnreg": "None"}
_ADDRESS = 8
_MOST_AXES = 3


class HiddenParameter(NamedTuple):
    """A kernel parameter that is not an argument of a call, since a launch derives its value.

    ``position`` is its position among all parameters of the kernel, ``size`` is in bytes. ``source`` is
    ``zero``, ``scratch`` for the address of the memory of :class:`FixedLaunch`, or ``x.shape[0]`` or
    ``x.stride[0]`` of the array argument ``x``. A stride counts elements.
    """

    position: int
    size: int
    source: str

    def is_derivable(self, arrays: Set[str]) -> bool:
        """Return True if a launch can derive the value from arguments with the names `arrays`."""
        if self.source in ("zero", "scratch"):
            return self.source == "zero" or self.size == _ADDRESS
        return self.extent is not None and self.extent[0] in arrays

    @property
    def extent(self) -> tuple[str, str, int] | None:
        """For ``x.shape[0]``: the argument, ``shape`` or ``stride``, and the axis; else ``None``."""
        name, _, extent = self.source.partition(".")
        what, _, axis = extent.partition("[")
        digits = axis.removesuffix("]")
        is_axis = len(digits) == len(axis) - 1 < 3 and digits.isascii() and digits.isdecimal()
        return (name, what, int(digits)) if what in ("shape", "stride") and is_axis else None


class TensorMap(NamedTuple):
    """The settings of a ``CUtensorMap`` that an image fixes; a launch makes the map of an array.

    ``data_type`` and ``swizzle`` have the values of cuda.h, ``item`` is the size of an element in bytes, and
    ``box`` are the elements on each axis that are copied at once.
    """

    data_type: int
    item: int
    box: tuple[int, ...]
    swizzle: int = 0


class FixedLaunch(NamedTuple):
    """The launch configuration that a kernel was compiled for, which leaves only the grid to a call.

    ``shared`` is the dynamic shared memory of a block, and ``scratch`` the global memory that a launch
    allocates for each block, in bytes. The grid of a call counts clusters if ``cluster`` is not empty.
    ``tensor_maps`` are the maps that a launch makes, by parameter.
    """

    block: tuple[int, ...]
    shared: int = 0
    cluster: tuple[int, ...] = ()
    cooperative: bool = False
    dependent: bool = False
    scratch: int = 0
    tensor_maps: Mapping[str, TensorMap] = {}

    @property
    def is_possible(self) -> bool:
        """True if a driver can be asked for it. Launches of damaged data may be others."""
        maps = self.tensor_maps.values()
        sizes = [*self.block, *self.cluster]
        numbers = [self.shared, *sizes, *(n for m in maps for n in (m.data_type, m.item, m.swizzle, *m.box))]
        return (
            1 <= len(self.block) <= _MOST_AXES
            and len(self.cluster) <= _MOST_AXES
            and min(sizes) > 0
            and min(numbers) >= 0
            and max(numbers) < 1 << 31
            and 0 <= self.scratch < 1 << 40
        )

    def __str__(self) -> str:
        extents = [*self.block]
        while len(extents) > 1 and extents[-1] == 1:
            extents.pop()
        parts = [f"{' x '.join(map(str, extents))} {'thread' if extents == [1] else 'threads'}"]
        parts += [f"{self.shared:,} bytes of shared memory"] if self.shared else []
        parts += [f"clusters of {' x '.join(map(str, self.cluster))}"] if self.cluster else []
        parts += [word for word in ("cooperative", "dependent") if getattr(self, word)]
        parts += [f"{self.scratch:,} bytes of scratch memory"] if self.scratch else []
        return ", ".join(parts)


class Attributes(NamedTuple):
    """The resources that a kernel uses on one GPU.

    ``registers`` and ``local`` memory are per thread, static ``shared`` memory is per block; memory sizes,
    also of ``constant`` memory, are in bytes. ``most_threads`` is the largest number of threads in a block.
    ``ptx`` and ``binary`` are the architectures (``90``) of the PTX and of the machine code.
    """

    registers: int
    local: int
    shared: int
    constant: int
    most_threads: int
    ptx: int
    binary: int
