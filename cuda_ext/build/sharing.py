"""Which tasks begin with the same headers, so that these are precompiled once for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from cuda_ext.build.task import Task
from cuda_ext.compiler.job import UnitJob
from cuda_ext.compiler.preamble import beginnings
from cuda_ext.compiler.translation_unit import Options

__all__ = ["LONG", "share_headers"]

# Seconds from which on a task's own length counts for more than what it shares with others.
LONG = 10.0

# Precompiling takes a third longer than compiling, and saves three quarters each time. What NVRTC has built
# in is read in a moment, so that it takes more tasks until it pays.
_WORTH = 3
_WORTH_BUILT_IN = 12


def share_headers(tasks: Sequence[tuple[Task, bytes | None]]) -> list[Task]:
    """The tasks, each with the longest beginning of its source that it is worthwhile to precompile.

    Each comes with its source as the compiler gets it, or ``None`` if it does not precompile.
    """
    found = [_beginnings(task, source) for task, source in tasks]
    counts = Counter(beginning for of_task in found for beginning in of_task)
    shared = []
    affinities: dict[tuple[str, bytes], str] = {}
    for (task, _), of_task in zip(tasks, found, strict=True):
        worth = [b for b in of_task if counts[b] >= (_WORTH if b[1] else _WORTH_BUILT_IN)]
        if worth:
            affinity = affinities.setdefault(worth[-1], str(len(affinities) + 1))
            task = replace(task, preamble=worth[-1][1], affinity=affinity)
        shared.append(task)
    return shared


def _beginnings(task: Task, source: bytes | None) -> list[tuple[str, bytes]]:
    """What `task` may begin with, from nothing to all its leading includes, and what it is compiled for."""
    job = task.jobs[0]
    if not isinstance(job, UnitJob) or source is None:
        return []
    setting = f"{task.compiler.identity} {job.action} {job.architecture} {_spelled(job.unit.options)}"
    return [(setting, beginning) for beginning in beginnings(source)]


@cache
def _spelled(options: Options) -> str:
    return repr(options)
