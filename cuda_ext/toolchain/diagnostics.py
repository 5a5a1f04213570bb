"""What compilers write: the resources that ptxas reports, warnings, and time traces."""

from __future__ import annotations

import re
from dataclasses import replace

from cuda_ext.compiler.products import CompiledImage, Span, Trace
from cuda_ext.errors import CompilationError, shorten

__all__ = ["VERBOSE", "attach_log", "name_map_lines", "read_time_trace", "shorten_output"]

# Makes ptxas report resources; NVRTC and nvcc pass it on.
VERBOSE = ("-Xptxas", "-v")

# Patterns, which the module re compiles when they are first used.
_ENTRY = r"(?m)^ptxas info\s*: Compiling entry function '([^']+)' for "
_LINE = (
    r"(?m)^(?:ptxas info\s*: .*|"
    r"(?:ptxas\s+\.)?\s+\d+ bytes (?:stack frame, .*|cumulative stack size.*))$\n?"
)
_COUNTS = {
    "registers": r"Used (\d+) registers",
    "stack": r"(\d+) bytes stack frame",
    "spill_stores": r"(\d+) bytes spill stores",
    "spill_loads": r"(\d+) bytes spill loads",
    "shared": r"(\d+) bytes smem",
}
_CONSTANT = r"(\d+) bytes cmem\["


def attach_log(image: CompiledImage, log: str, trace: Trace) -> CompiledImage:
    """Return `image` with its trace, the resources that `log` reports, and the rest of `log` as warnings."""
    usage = dict(image.usage)
    _, *sections = re.split(_ENTRY, log)
    for name, section in zip(sections[::2], sections[1::2], strict=True):
        if name in usage:
            matches = {key: re.search(pattern, section) for key, pattern in _COUNTS.items()}
            usage[name] = replace(
                usage[name],
                **{key: int(match[1]) if match else 0 for key, match in matches.items()},
                # From sm_90 on, ptxas 13 does not report it.
                constant=sum(map(int, re.findall(_CONSTANT, section))) or None,
            )
    return replace(image, log=re.sub(_LINE, "", log).strip(), usage=usage, trace=trace)


def read_time_trace(content: bytes) -> tuple[Span, ...]:
    """Read what ``-fdevice-time-trace`` writes: Chrome's trace format, in microseconds.

    Raises :class:`~cuda_ext.errors.CompilationError` for what the compiler could not write properly.
    """
    import json  # slow to import

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


def name_map_lines(log: str) -> list[int]:
    """The numbers of the lines that `log` rejects in the name map, behind a source."""
    return [int(line) for line in re.findall(r"(?m)^__nv_name_map\((\d+)\): error", log)]


def shorten_output(text: str) -> str:
    """Return what an error shows of a tool's output: 200 lines, and 500 characters of each."""
    lines = text.splitlines()
    more = [f"… and {len(lines) - 200:,} more lines"] if len(lines) > 200 else []
    return "\n".join([*(shorten(line, 500) for line in lines[:200]), *more])
