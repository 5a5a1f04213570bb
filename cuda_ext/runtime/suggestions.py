"""The nearest known name, for errors."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'axpy'?``, or nothing where no known name is near."""
    import difflib  # takes longer than looking up a kernel

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
