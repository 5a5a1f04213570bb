"""What a compiler tells of its own work: the headers that it opened, and how long each phase took."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cuda_ext.errors import CompilationError

__all__ = ["HEADER", "NO_TRACE", "Span", "Trace", "headers_of", "read_time_trace"]

# The name of the spans in which NVRTC and nvcc read a header.
HEADER = "Processing Header File"
_BUILT_IN = "__nv_nvrtc_builtin_header.h"


@dataclass(frozen=True, slots=True)
class Span:
    """One phase of a compilation, in seconds since it began.

    ``detail`` is the header or function that it was about, if any.
    """

    name: str
    detail: str
    start: float
    duration: float


@dataclass(frozen=True, slots=True)
class Trace:
    """How a compiler came to its result, which is not part of the result.

    ``reads`` are the headers that it opened, and the names that it asked ``__has_include`` about: canonical
    names of the project, and absolute paths of all others. ``spans`` are empty unless they were asked for.
    """

    reads: frozenset[str] = frozenset()
    spans: tuple[Span, ...] = ()


NO_TRACE = Trace()


def read_time_trace(content: bytes) -> tuple[Span, ...]:
    """The spans of what ``-fdevice-time-trace`` writes, which is Chrome's trace format in microseconds.

    Raises :class:`~cuda_ext.errors.CompilationError` for what the compiler could not write properly.
    """
    spans = []
    try:
        for event in json.loads(content, strict=False)["traceEvents"]:
            if event.get("ph") == "X":
                about = event.get("args", {})
                detail = about.get("detail") or about.get("name") or ""
                spans.append(Span(event["name"], detail, event["ts"] / 1e6, event["dur"] / 1e6))
    except (KeyError, TypeError, ValueError) as error:
        raise CompilationError(
            f"the compiler's account of what it read is damaged ({error}); is the disk full, or has a header "
            "a name that is no text?"
        ) from None
    return tuple(spans)


def headers_of(spans: Iterable[Span]) -> Iterator[str]:
    """The headers that were read, without the one that NVRTC has within itself."""
    return (span.detail for span in spans if span.name == HEADER and span.detail != _BUILT_IN)
