"""How a kernel is launched, apart from its arguments."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Protocol, SupportsIndex, TypeAlias

from cuda_ext.errors import ArgumentError

__all__ = ["Dim", "Launch", "Stream"]

Dim: TypeAlias = (
    SupportsIndex
    | tuple[SupportsIndex]
    | tuple[SupportsIndex, SupportsIndex]
    | tuple[SupportsIndex, SupportsIndex, SupportsIndex]
)


class _HasCudaStream(Protocol):
    """A stream as PyTorch's."""

    @property
    def cuda_stream(self) -> int: ...


class _HasPtr(Protocol):
    """A stream as CuPy's."""

    @property
    def ptr(self) -> int: ...


class _StreamProtocol(Protocol):
    """A stream as cuda.core's: a version, which is 0, and the handle."""

    def __cuda_stream__(self) -> tuple[int, int]: ...


Stream: TypeAlias = SupportsIndex | _StreamProtocol | _HasCudaStream | _HasPtr

# The same for every GPU that the driver still serves.
_LARGEST_GRID = ((1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1)
_LARGEST_BLOCK = (1024, 1024, 64)
_MOST_THREADS = 1024


@dataclass(frozen=True, slots=True)
class Launch:
    """A checked configuration: ``shared`` counts bytes of dynamic shared memory, ``stream`` is a handle."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    stream: int
    shared: int
    cooperative: bool

    @classmethod
    def checked(
        cls, grid: Dim, block: Dim, stream: Stream, shared: SupportsIndex, cooperative: bool
    ) -> Launch:
        """Raises :class:`ArgumentError` for what no GPU can do."""
        blocks = _extents("grid", grid, _LARGEST_GRID)
        threads = _extents("block", block, _LARGEST_BLOCK)
        if (count := threads[0] * threads[1] * threads[2]) > _MOST_THREADS:
            raise ArgumentError(f"block: expected at most {_MOST_THREADS} threads, found {count}: {threads}")
        return cls(blocks, threads, _handle(stream), _bytes(shared), bool(cooperative))

    def __str__(self) -> str:
        memory = f", {self.shared} bytes of dynamic shared memory" if self.shared else ""
        return f"grid {self.grid}, block {self.block}{memory}{', cooperative' if self.cooperative else ''}"


def _extents(name: str, value: Dim, largest: tuple[int, int, int]) -> tuple[int, int, int]:
    given = value if isinstance(value, (tuple, list)) else (value,)
    try:
        extents = [operator.index(extent) for extent in given]
    except TypeError:
        extents = []
    if not 1 <= len(extents) <= 3:
        raise ArgumentError(f"{name}: expected an int or up to three, found {value!r}")
    x, y, z = (*extents, 1, 1)[:3]
    if not all(1 <= extent <= limit for extent, limit in zip((x, y, z), largest, strict=True)):
        raise ArgumentError(f"{name}: expected at least 1 and at most {largest}, found {value!r}")
    return x, y, z


def _bytes(shared: SupportsIndex) -> int:
    try:
        size = operator.index(shared)
    except TypeError:
        size = -1
    if size < 0:
        raise ArgumentError(f"shared: expected a number of bytes, found {shared!r}")
    return size


def _handle(stream: object) -> int:
    if protocol := getattr(stream, "__cuda_stream__", None):
        version, handle = protocol()
        if version != 0:
            raise ArgumentError(f"stream: expected version 0 of __cuda_stream__, found {version}")
    else:
        handle = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
    try:
        number = operator.index(handle)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 64:
        raise ArgumentError(f"stream: expected a stream or its handle, found {stream!r}")
    return number
