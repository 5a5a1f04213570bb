"""Stream handles from the stream objects of all libraries."""

from __future__ import annotations

import operator
from typing import NamedTuple, Protocol, Self, SupportsIndex, TypeAlias

from cuda_ext.errors import ArgumentError

__all__ = ["BoundStream", "Stream", "stream_handle"]


class _HasCudaStream(Protocol):
    """A stream of PyTorch."""

    @property
    def cuda_stream(self) -> int: ...


class _HasPtr(Protocol):
    """A stream of CuPy."""

    @property
    def ptr(self) -> int: ...


class _StreamProtocol(Protocol):
    """A stream of cuda.core: the protocol's version, 0, and the handle."""

    def __cuda_stream__(self) -> tuple[int, int]: ...


Stream: TypeAlias = SupportsIndex | _StreamProtocol | _HasCudaStream | _HasPtr


def stream_handle(stream: object) -> int:
    """The handle of `stream`. Raises :class:`ArgumentError` for objects that are no stream."""
    if protocol := getattr(stream, "__cuda_stream__", None):
        version, handle = protocol()
        if version != 0:
            raise ArgumentError(f"expected version 0 of __cuda_stream__, found {version}", where="stream")
    else:
        handle = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
    try:
        number = -1 if isinstance(handle, bool) else operator.index(handle)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 64:
        raise ArgumentError(f"expected a stream or its handle, found {stream!r}", where="stream")
    return number


class BoundStream(NamedTuple):
    """A stream whose handle was read once; it keeps the object that it was read from."""

    handle: int
    stream: object

    @classmethod
    def of(cls, stream: object) -> Self:
        """Read the handle of `stream`. Raises as :func:`stream_handle` does."""
        return cls(stream_handle(stream), stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle
