"""Report a mistake in the project through a build tool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cuda_ext.errors import BuildError

__all__ = ["exit_with_error"]


@contextmanager
def exit_with_error() -> Iterator[None]:
    """Turn a :class:`BuildError` into one message and exit status 1."""
    # Build tools and their front ends let SystemExit pass as it is.
    try:
        yield
    except BuildError as error:
        raise SystemExit(f"cuda-ext: error: {error}") from None
