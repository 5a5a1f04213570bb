"""Build tools: each module calls ``builder`` in the way that its tool expects."""

from __future__ import annotations

from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def exit_with_error() -> Iterator[None]:
    """Turn every error but those of the build tool itself into one message and exit status 1."""
    # Build tools and their front ends let SystemExit pass as it is.
    try:
        yield
    except Exception as error:
        if _raised_in(error) in ("setuptools", "distutils", "hatchling"):
            raise
        # An unchanged editable package needs none of these.
        from cuda_ext.errors import BuildError, describe_error
        from cuda_ext.integrations.config_settings import find_setting

        if isinstance(error, BuildError):
            error.where = find_setting(error.where) or error.where
        raise SystemExit(f"cuda-ext: error: {describe_error(error)}") from None


def _raised_in(error: Exception) -> str:
    """Return the top-level package whose code raised `error`."""
    frame = error.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    name: str = frame.tb_frame.f_globals.get("__name__", "") if frame else ""
    return name.partition(".")[0]
