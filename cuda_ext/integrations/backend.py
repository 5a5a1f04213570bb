"""The steps that setuptools and hatchling share: settings of the front end, builds, and errors."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from cuda_ext.builder.package.generate import Package
    from cuda_ext.builder.project import Project

# What a front end may pass, as in ``pip install -C architectures=sm_90``, and the variables that it replaces.
_SETTINGS = {
    "architectures": "CUDAARCHS",
    "jobs": "MAX_JOBS",
    "report": "CUDA_EXT_REPORT",
    "trace": "CUDA_EXT_TRACE",
}


def build_packages(
    project: Project,
    show: Callable[[str], None],
    environ: Mapping[str, str],
    directory_of: Callable[[str], Path],
    *,
    editable: bool,
) -> list[Package]:
    """Build the packages; those of an editable install know the state of their sources.

    `directory_of` gives the directory of a package in the source tree. Raises
    :class:`~cuda_ext.errors.BuildError`.
    """
    from functools import partial

    from cuda_ext.builder.session import build_project

    build = partial(build_project, project, show, environ)
    if not editable:
        return build()
    from cuda_ext.builder.editable_package import build_editable

    return build_editable(project, directory_of, build, environ.get("CUDAARCHS", ""))


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
    """Return the ``config_settings`` of the build backend's hook that is running.

    PEP 517 hands them to the backend, and no backend hands them on: setuptools translates a few of its own,
    and hatchling ignores all. A backend of this package could, but a project has one backend, and names its
    own. So they are read from the frame of the backend's hook, where PEP 517 fixes their name.
    """
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_globals.get("__name__") in ("setuptools.build_meta", "hatchling.build"):
            settings = frame.f_locals.get("config_settings")
            if isinstance(settings, dict):
                return settings
    return {}
