"""Format numbers for people: sizes, durations, counts."""

from __future__ import annotations


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
    >>> format_duration(0), format_duration(0.9996), format_duration(59.96), format_duration(4000)
    ('0 s', '1.0 s', '1 min 0 s', '1 h 6 min')
    """
    if not seconds:
        return "0 s"
    if seconds < 0.00095:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def format_seconds(seconds: float) -> str:
    """Format a duration for a column of comparable durations.

    >>> format_seconds(1234.5), format_seconds(0.25), format_seconds(0.001), format_seconds(0)
    ('1,234.50 s', '0.25 s', '<0.01 s', '0.00 s')
    """
    return f"{seconds:,.2f} s" if seconds >= 0.005 or not seconds else "<0.01 s"


def format_clock(seconds: float) -> str:
    """Format a duration that is counted up or down.

    >>> format_clock(7.9), format_clock(3661)
    ('0:07', '1:01:01')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Format a number of things.

    >>> format_count(1, "entry", "entries"), format_count(1200, "file")
    ('1 entry', '1,200 files')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
