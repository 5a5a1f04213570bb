"""Read streams of all libraries: handles and GPUs."""

from __future__ import annotations

import operator
import sys
from typing import Any, NamedTuple, Protocol, SupportsIndex, TypeAlias

from cuda_ext.errors import ArgumentError


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


# The attribute with the ordinal of the GPU in streams of PyTorch and of CuPy, where -1 stands for any. The
# handle of a default stream does not tell the GPU; other handles and streams of other libraries do.
_ORDINALS = ("device_index", "device_id")


class GivenStream(NamedTuple):
    """A stream of a call: its handle, and the ordinal of its GPU, or ``None`` if the handle tells it.

    ``owner`` keeps the stream alive.
    """

    handle: int
    device: int | None
    owner: object

    @classmethod
    def of(cls, stream: object) -> GivenStream:
        """Read `stream`. Raises :class:`ArgumentError` for objects that are not streams."""
        if isinstance(stream, GivenStream):
            return stream
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
        return cls(number, _device_of(stream), stream)


def _device_of(stream: object) -> int | None:
    for name in _ORDINALS:
        ordinal = getattr(stream, name, None)
        if isinstance(ordinal, int) and ordinal >= 0:
            return ordinal
    return None


def current_stream_to_give() -> tuple[str, str] | None:
    """Return a library with a current stream in this process, and the Python expression for the stream."""
    torch: Any = sys.modules.get("torch")
    # Without CUDA, or before its first use, PyTorch has no stream and no memory on a GPU.
    if (is_initialized := getattr(getattr(torch, "cuda", None), "is_initialized", None)) and is_initialized():
        return "PyTorch", "torch.cuda.current_stream()"
    if hasattr(sys.modules.get("cupy"), "cuda"):
        return "CuPy", "cupy.cuda.get_current_stream()"
    return None
