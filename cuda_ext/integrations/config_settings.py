"""Settings that a front end passes with ``-C``, as in ``pip install -C architectures=sm_90``.

PEP 517 hands them to the backend, and no backend hands them on: setuptools translates a few of its own, and
hatchling ignores all. A backend of this package could, but a project has one backend, and names its own.
So :func:`_passed_to_backend` reads them from the frame of the backend's hook, where PEP 517 fixes their name.
"""

from __future__ import annotations

import os
import sys

# The settings, and the variables that they replace.
_SETTINGS = {
    "architectures": "CUDAARCHS",
    "jobs": "MAX_JOBS",
    "report": "CUDA_EXT_REPORT",
    "trace": "CUDA_EXT_TRACE",
}


def build_environment() -> dict[str, str]:
    """Return the environment of a build, with the settings that its front end was given.

    Raises :class:`~cuda_ext.errors.ConfigError` for what looks like a setting of this package, and is none.
    """
    environ = dict(os.environ)
    for name, value in _passed_to_backend().items():
        if variable := _SETTINGS.get(name):
            environ[variable] = ";".join(value) if isinstance(value, list) else str(value)
            continue
        from cuda_ext.errors import ConfigError, did_you_mean  # an unchanged editable package needs none

        if remedy := did_you_mean(name, _SETTINGS):
            raise ConfigError("unknown setting", where=f"-C {name}", remedy=remedy)
        if any(part in name.lower() for part in ("cuda", "arch")) and name.replace("-", "_").isidentifier():
            raise ConfigError("unknown setting", where=f"-C {name}", remedy=f"use {', '.join(_SETTINGS)}")
    return environ


def find_setting(variable: str) -> str:
    """Return the setting that replaces `variable`, as it was given; empty if it was not."""
    settings = _passed_to_backend()
    return next((f"-C {name}" for name, own in _SETTINGS.items() if own == variable and name in settings), "")


def _passed_to_backend() -> dict[str, object]:
    """Return the ``config_settings`` of the build backend's hook that is running."""
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_globals.get("__name__") in ("setuptools.build_meta", "hatchling.build"):
            settings = frame.f_locals.get("config_settings")
            if isinstance(settings, dict):
                return settings
    return {}
