"""Numbers as people read them: sizes, durations, counts."""

from __future__ import annotations

__all__ = ["format_count", "format_duration", "format_size"]


def format_size(count: float) -> str:
    """Format a number of bytes, in the units of ``CUDA_EXT_CACHE_SIZE``.

    >>> format_size(1023), format_size(5 << 30), format_size(1_300_000)
    ('1023 B', '5 GiB', '1.2 MiB')
    """
    unit = "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if round(count, 1) < 1024:
            break
        count, unit = count / 1024, larger
    return f"{count:.1f}".removesuffix(".0") + f" {unit}"


def format_duration(seconds: float) -> str:
    """Format a duration with about two digits.

    >>> format_duration(0.0004), format_duration(0.25), format_duration(7.31), format_duration(95)
    ('0.4 ms', '250 ms', '7.3 s', '1 min 35 s')
    """
    if seconds < 0.001:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Format a number of things.

    >>> format_count(1, "entry", "entries"), format_count(1200, "file")
    ('1 entry', '1,200 files')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
