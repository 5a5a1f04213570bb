"""Reports about builds: an HTML page, a trace for Chrome and Perfetto, and the difference of two builds.

A build imports nothing else of this folder unless a page or a trace is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cuda_ext.builder.report.build_log import BuildLog

__all__ = ["open_build_log"]


def open_build_log(project: str, report: Path | None, trace: Path | None, workers: int) -> BuildLog | None:
    """Start the log of a build of `project`, unless neither a `report` nor a `trace` is asked for.

    Raises :class:`~cuda_ext.errors.BuildError` if one of them is a file that no build wrote.
    """
    if not report and not trace:
        return None
    from cuda_ext.builder.report.build_log import BuildLog

    return BuildLog(project, report, trace, workers)
