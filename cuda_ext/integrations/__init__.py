"""Build tools: each module calls ``builder`` in the way that its tool expects."""

from __future__ import annotations

from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["exit_with_error"]


@contextmanager
def exit_with_error() -> Iterator[None]:
    """Turn a :class:`BuildError` into one message and exit status 1."""
    from cuda_ext.errors import BuildError  # an unchanged editable package does not need it

    # Build tools and their front ends let SystemExit pass as it is.
    try:
        yield
    except BuildError as error:
        raise SystemExit(f"cuda-ext: error: {error}") from None
