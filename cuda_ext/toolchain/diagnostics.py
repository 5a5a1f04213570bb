"""Errors and time traces, as compilers write them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from cuda_ext.compiler.products import Span
from cuda_ext.errors import CompilationError, shorten


def read_time_trace(content: bytes) -> tuple[Span, ...]:
    """Read the output of ``-fdevice-time-trace``: Chrome's trace format, in microseconds.

    Raises :class:`~cuda_ext.errors.CompilationError` for output that the compiler did not write properly.
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
            f"the compiler's time trace is damaged ({error})",
            remedy="check whether the disk is full, or a header has a name that is not text",
        ) from None
    return tuple(spans)


def read_phases(table: str, earlier: Sequence[Span] = ()) -> tuple[Span, ...]:
    """Read the output of ``--time``: a line for each phase, which begins when the previous one ends.

    The first begins when the last of `earlier` ends.
    """
    spans = []
    start = max((span.start + span.duration for span in earlier), default=0.0)
    for match in re.finditer(r"(?m)^[^,\n]*,\s*([^,\s][^,\n]*?)\s*,(?:.*,)?\s*([\d.]+)\s*,\s*ms\s*$", table):
        seconds = float(match[2]) / 1000
        spans.append(Span(match[1], "", start, seconds))
        start += seconds
    return tuple(spans)


def split_messages(log: str) -> list[str]:
    """Split NVRTC's `log` into messages, which empty lines separate."""
    return re.split(r"\n\s*\n", log)


def without_warnings_in(log: str, directories: Iterable[Path]) -> str:
    """Return NVRTC's `log` without warnings about files in `directories`, which no project can fix."""
    inside = tuple(f"{directory}/" for directory in directories)
    blocks = split_messages(log)
    kept = [b for b in blocks if not (b.startswith(inside) and "): warning " in b.partition("\n")[0])]
    if not any(": warning " in block for block in kept):
        kept = [block for block in kept if not block.startswith("Remark: The warnings can be suppressed")]
    return "\n\n".join(kept)


def name_map_lines(log: str) -> list[int]:
    """List the numbers of the lines that `log` rejects in the name map after a source."""
    return [int(line) for line in re.findall(r"(?m)^__nv_name_map\((\d+)\): error", log)]


def shorten_output(text: str) -> str:
    """Shorten a tool's output for an error: 200 lines, and 500 characters of each."""
    lines = text.splitlines()
    more = [f"… and {len(lines) - 200:,} more lines"] if len(lines) > 200 else []
    return "\n".join([*(shorten(line, 500) for line in lines[:200]), *more])
