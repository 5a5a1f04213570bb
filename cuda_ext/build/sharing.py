"""Which tasks begin with the same headers, so that these are precompiled once for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from cuda_ext.build.task import Task
from cuda_ext.compiler.job import UnitJob
from cuda_ext.compiler.preamble import preambles

__all__ = ["share_headers"]

# Precompiling takes a third longer than compiling, and saves three quarters each time. What NVRTC has built
# in is read in a moment, so that it takes more tasks until it pays.
_WORTH = 3
_WORTH_BUILT_IN = 12


def share_headers(tasks: Sequence[Task]) -> list[Task]:
    """`tasks`, each with the longest beginning of its source that it is worthwhile to precompile."""
    beginnings = [_beginnings(task) for task in tasks]
    counts = Counter(beginning for of_task in beginnings for beginning in of_task)
    shared = []
    for task, of_task in zip(tasks, beginnings, strict=True):
        worth = [b for b in of_task if counts[b] >= (_WORTH if b[1] else _WORTH_BUILT_IN)]
        affinity, preamble = worth[-1] if worth else ("", None)
        name = f"{affinity} {preamble!r}" if preamble is not None else ""
        shared.append(replace(task, preamble=preamble, affinity=name))
    return shared


def _beginnings(task: Task) -> Iterable[tuple[str, bytes]]:
    """The beginnings of `task`'s source, from none to all its leading includes, with what they are for."""
    job = task.jobs[0]
    if not isinstance(job, UnitJob) or not task.compiler.precompiles:
        return []
    setting = f"{task.compiler.identity} {job.action} {job.architecture} {job.unit.options}"
    return [(setting, preamble) for preamble in preambles(job.unit.source)]
