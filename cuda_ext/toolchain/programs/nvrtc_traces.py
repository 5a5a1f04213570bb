"""Traces of NVRTC's compilations: the headers that it opens, and the time of each phase."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cuda_ext.compiler.products import Span
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.toolchain.diagnostics import read_phases, read_time_trace
from cuda_ext.toolchain.programs.nvrtc_program import NvrtcProgram, knows_option
from cuda_ext.toolchain.programs.recorded_commands import recorded_commands

if TYPE_CHECKING:
    from pathlib import Path

_OPTION = "-fdevice-time-trace="
_FILE = "trace.json"
_LINE = re.compile(rb"(?m)^[ \t]*#[ \t]*(?:line\b|\d)")
_has_failed = False


def is_untraced(log: str) -> bool:
    """Return True if a compilation failed because it was traced. Then no other one is traced."""
    global _has_failed
    if f"{_FILE}\"' could not be opened" not in log:
        return False
    _has_failed = True  # ptxas of CUDA 12.5 and 12.6 puts the name into quotes
    return True


@contextmanager
def trace_headers(scratch: Path, unit: TranslationUnit) -> Iterator[tuple[list[str], list[Span]]]:
    """Yield the options for a time trace, if there is one, and a list that receives its spans at the end.

    Traces contain the spans of headers since CUDA 13.0. A text with ``#line`` is not traced: for sm_100 and
    later, NVRTC 13.5 crashes in the compilation after one with three such directives for different files.
    """
    spans: list[Span] = []
    texts = (unit.source, *unit.headers.values())
    if _has_failed or not knows_option(_OPTION) or any(map(_LINE.search, texts)):
        yield [], spans
        return
    file = scratch / _FILE
    option = f"{_OPTION}{file.with_suffix('')}"
    try:
        yield [option], spans
    finally:
        if not file.exists():
            # The compilation failed. NVRTC 13.5 writes its trace with that of the next one, or to a file
            # ".json" in the working directory if that is not traced.
            empty = NvrtcProgram(TranslationUnit("empty.cu", b""))
            with recorded_commands():
                empty.compile(["--minimal", "-fdevice-syntax-only", option])
        content = file.read_bytes() if file.exists() else b""
        file.unlink(missing_ok=True)  # NVRTC would append to it
    spans += read_time_trace(content) if content else ()


def traces_headers(options: Sequence[str]) -> bool:
    """Return True if `options` are those for a time trace, and not those that only measure phases."""
    return any(option.startswith(_OPTION) for option in options)


@contextmanager
def measure_phases(scratch: Path) -> Iterator[tuple[list[str], list[Span]]]:
    """Yield the options to measure only phases, and a list that receives their spans at the end."""
    spans: list[Span] = []
    file = scratch / "phases"
    try:
        yield [f"--time={file}"], spans
    finally:
        if file.exists():
            spans += read_phases(file.read_text(errors="replace"))
            file.unlink()  # NVRTC would append to it
