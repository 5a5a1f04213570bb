"""The trace of a build for Chrome and Perfetto: a lane for each worker, the compilers' own phases inside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count

from cuda_ext.builder.report.build_record import BuildRecord, JobRecord
from cuda_ext.builder.report.compile_times import nest_spans

# The lane of the jobs that came from the cache.
CACHE = "cache"
_PROCESS = 1


def chrome_trace(record: BuildRecord) -> bytes:
    """Return `record` in the JSON that ``chrome://tracing`` and ui.perfetto.dev open.

    The same record gives the same bytes, whatever the order of its jobs.
    """
    trace = {
        "displayTimeUnit": "ms",
        "otherData": {"project": record.project, "started": record.started, "compilers": record.compilers},
        "traceEvents": list(_events(record)),
    }
    return json.dumps(trace, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def is_trace(content: bytes) -> bool:
    """Return True if `content` begins like the output of :func:`chrome_trace`."""
    return content.startswith(b'{"displayTimeUnit":"ms","otherData":{"project":')


def assign_lanes(jobs: Sequence[JobRecord]) -> dict[str, list[JobRecord]]:
    """Return the jobs of each worker by start; no two in a lane overlap.

    A worker that runs several jobs at once has several lanes. Jobs from the cache come last, in a lane of
    their own, and take no time there.
    """
    lanes: dict[str, list[JobRecord]] = {}
    cached = sorted((job for job in jobs if job.ending == "cached"), key=_order)
    for job in sorted((job for job in jobs if job.ending != "cached"), key=_order):
        for number in count(1):
            lane = lanes.setdefault(job.worker if number == 1 else f"{job.worker} ({number})", [])
            if not lane or _microseconds(lane[-1].start + lane[-1].duration) <= _microseconds(job.start):
                lane.append(job)
                break
    ordered = dict(sorted(lanes.items(), key=lambda item: (len(item[0]), item[0])))
    return {**ordered, CACHE: cached} if cached else ordered


def _events(record: BuildRecord) -> Iterator[dict[str, object]]:
    yield _metadata("process_name", 0, name=f"cuda_ext: {record.project}")
    for thread, (lane, jobs) in enumerate(assign_lanes(record.jobs).items(), 1):
        yield _metadata("thread_name", thread, name=lane if lane == CACHE else f"worker {lane}")
        yield _metadata("thread_sort_index", thread, sort_index=thread)
        for job in jobs:
            yield from _job_events(job, thread)


def _metadata(kind: str, thread: int, **arguments: object) -> dict[str, object]:
    return {"ph": "M", "pid": _PROCESS, "tid": thread, "name": kind, "args": arguments}


def _job_events(job: JobRecord, thread: int) -> Iterator[dict[str, object]]:
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
            "outcome": job.ending,
        },
    }
    if job.ending == "cached":
        yield {**event, "ph": "i", "s": "t"}
        return
    ends = [_microseconds(job.start + job.duration)]
    yield {**event, "ph": "X", "dur": ends[0] - _microseconds(job.start)}
    for span in nest_spans(job):
        start = _microseconds(job.start + span.start)
        while len(ends) > 1 and ends[-1] <= start:
            ends.pop()
        # Rounding must not move the end of a span beyond that of the one around it.
        end = min(_microseconds(job.start + span.start + span.duration), ends[-1])
        ends.append(end)
        yield {
            "name": span.name,
            "cat": "compiler",
            "ph": "X",
            "pid": _PROCESS,
            "tid": thread,
            "ts": min(start, end),
            "dur": max(end - start, 0),
            "args": {"detail": span.detail} if span.detail else {},
        }


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _order(job: JobRecord) -> tuple[object, ...]:
    return (job.start, job.module, job.unit, job.architecture, job.action, job.duration)
