"""One Chrome or Perfetto trace of a whole build: a lane for each worker, the compilers' own phases inside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from cuda_ext.builder.report.record import BuildRecord, JobRecord
from cuda_ext.builder.report.spans import nested

__all__ = ["CACHE", "chrome_trace", "is_trace", "lanes"]

# The lane of what was not compiled.
CACHE = "cache"
_PROCESS = 1


def chrome_trace(record: BuildRecord) -> bytes:
    """`record` in the JSON that ``chrome://tracing`` and ui.perfetto.dev open.

    The same record gives the same bytes, whatever the order of its jobs.
    """
    trace = {
        "displayTimeUnit": "ms",
        "otherData": {"project": record.project, "started": record.started, "compilers": record.compilers},
        "traceEvents": list(_events(record)),
    }
    return json.dumps(trace, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def is_trace(content: bytes) -> bool:
    """Whether that begins as a trace of ours does."""
    return content.startswith(b'{"displayTimeUnit":"ms","otherData":{"project":')


def lanes(jobs: Sequence[JobRecord]) -> dict[str, list[JobRecord]]:
    """The jobs of each worker by start; no two in a lane overlap.

    A worker that runs several jobs at once has several lanes. What the cache had comes last, in a lane of its
    own, and takes no time there.
    """
    found: dict[str, list[JobRecord]] = {}
    cached = sorted((job for job in jobs if job.outcome == "cached"), key=_order)
    for job in sorted((job for job in jobs if job.outcome != "cached"), key=_order):
        number = 1
        while True:
            name = job.worker if number == 1 else f"{job.worker} ({number})"
            lane = found.setdefault(name, [])
            if not lane or _microseconds(lane[-1].start + lane[-1].duration) <= _microseconds(job.start):
                lane.append(job)
                break
            number += 1
    ordered = dict(sorted(found.items(), key=lambda item: (len(item[0]), item[0])))
    return {**ordered, CACHE: cached} if cached else ordered


def _events(record: BuildRecord) -> Iterator[dict[str, object]]:
    yield _metadata("process_name", 0, name=f"cuda_ext: {record.project}")
    for thread, (lane, jobs) in enumerate(lanes(record.jobs).items(), 1):
        yield _metadata("thread_name", thread, name=lane if lane == CACHE else f"worker {lane}")
        yield _metadata("thread_sort_index", thread, sort_index=thread)
        for job in jobs:
            yield from _job(job, thread)


def _metadata(kind: str, thread: int, **arguments: object) -> dict[str, object]:
    return {"ph": "M", "pid": _PROCESS, "tid": thread, "name": kind, "args": arguments}


def _job(job: JobRecord, thread: int) -> Iterator[dict[str, object]]:
    event = {
        "name": f"{job.unit} {job.architecture}",
        "cat": job.action,
        "pid": _PROCESS,
        "tid": thread,
        "ts": _microseconds(job.start),
        "args": {
            "module": job.module,
            "architecture": job.architecture,
            "action": job.action,
            "outcome": job.outcome,
        },
    }
    if job.outcome == "cached":
        yield {**event, "ph": "i", "s": "t"}
        return
    end = _microseconds(job.start + job.duration)
    yield {**event, "ph": "X", "dur": end - _microseconds(job.start)}
    ends: list[int] = []
    for each in nested(job):
        span = each.span
        start = _microseconds(job.start + span.start)
        # Rounding must not carry a span over the end of what it lies in.
        limit = end if each.parent is None else ends[each.parent]
        ends.append(min(_microseconds(job.start + span.start + span.duration), limit))
        yield {
            "name": span.name,
            "cat": "compiler",
            "ph": "X",
            "pid": _PROCESS,
            "tid": thread,
            "ts": min(start, ends[-1]),
            "dur": max(ends[-1] - start, 0),
            "args": {"detail": span.detail} if span.detail else {},
        }


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _order(job: JobRecord) -> tuple[object, ...]:
    return (job.start, job.module, job.unit, job.architecture, job.action, job.duration)
