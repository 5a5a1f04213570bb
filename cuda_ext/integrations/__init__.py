"""Build tools: each module calls ``builder`` in the way that its tool expects."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["build_environment", "exit_with_error"]

# What front ends take with -C, and the variables that these settings replace.
_SETTINGS = {
    "architectures": "CUDAARCHS",
    "jobs": "MAX_JOBS",
    "report": "CUDA_EXT_REPORT",
    "trace": "CUDA_EXT_TRACE",
}
# No backend hands settings on. So they are taken from where a front end calls it, by PEP 517.
_BACKENDS = ("setuptools.build_meta", "hatchling.build")


@contextmanager
def exit_with_error() -> Iterator[None]:
    """Turn every error but those of the build tool itself into one message and exit status 1."""
    # Build tools and their front ends let SystemExit pass as it is.
    try:
        yield
    except Exception as error:
        if _raised_in(error) in ("setuptools", "distutils", "hatchling"):
            raise
        from cuda_ext.errors import BuildError, describe_error  # an unchanged editable package needs none

        if isinstance(error, BuildError) and (name := _setting_of(error.where)):
            error.where = name
        raise SystemExit(f"cuda-ext: error: {describe_error(error)}") from None


def build_environment() -> dict[str, str]:
    """The environment of a build, with the settings that its front end was given.

    Raises :class:`~cuda_ext.errors.ConfigError` for what looks like a setting of this package, and is none.
    """
    environ = dict(os.environ)
    for name, value in _config_settings().items():
        if variable := _SETTINGS.get(name):
            environ[variable] = ";".join(value) if isinstance(value, list) else str(value)
            continue
        from cuda_ext.errors import ConfigError, did_you_mean

        if remedy := did_you_mean(name, _SETTINGS):
            raise ConfigError("unknown setting", where=f"-C {name}", remedy=remedy)
        if any(part in name.lower() for part in ("cuda", "arch")) and name.replace("-", "_").isidentifier():
            raise ConfigError("unknown setting", where=f"-C {name}", remedy=f"use {', '.join(_SETTINGS)}")
    return environ


def _config_settings() -> dict[str, object]:
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_globals.get("__name__") in _BACKENDS:
            settings = frame.f_locals.get("config_settings")
            if isinstance(settings, dict):
                return settings
    return {}


def _setting_of(variable: str) -> str:
    """How the setting that replaces `variable` was given; empty if it was not."""
    settings = _config_settings()
    return next((f"-C {name}" for name, own in _SETTINGS.items() if own == variable and name in settings), "")


def _raised_in(error: Exception) -> str:
    """The top-level package whose code raised `error`."""
    frame = error.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    name: str = frame.tb_frame.f_globals.get("__name__", "") if frame else ""
    return name.partition(".")[0]
