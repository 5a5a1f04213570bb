"""The trace of a build: events are valid and nested, and no two jobs in a lane overlap."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from cuda_ext.builder.report.build_record import BuildRecord, JobRecord
from cuda_ext.builder.report.chrome_trace import assign_lanes, chrome_trace
from cuda_ext.builder.report.compile_times import CompileTime, header_of, nest_spans, sum_times
from cuda_ext.compiler.products import HEADER, Span


def job(start: float, duration: float, *spans: Span, worker: str = "1", **changes: Any) -> JobRecord:
    values: dict[str, Any] = {
        "module": "p.kernels",
        "unit": "device/axpy.cu",
        "architecture": "sm_90",
        "action": "compile",
        "ending": "compiled",
        **changes,
    }
    return JobRecord(**values, worker=worker, start=start, duration=duration, spans=spans)


def build(*jobs: JobRecord) -> BuildRecord:
    return BuildRecord("p", "2026-11-21T10:00:00+01:00", 9.0, 2, ("nvrtc 13.5",), jobs, {}, {}, {})


def events(*jobs: JobRecord) -> list[dict[str, Any]]:
    trace = json.loads(chrome_trace(build(*jobs)))
    assert trace["displayTimeUnit"] == "ms"
    assert trace["otherData"]["compilers"] == ["nvrtc 13.5"]
    found: list[dict[str, Any]] = trace["traceEvents"]
    return found


def named(events: list[dict[str, Any]]) -> dict[int, str]:
    """The names of the lanes by thread."""
    return {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}


def assert_nested(events: list[dict[str, Any]]) -> None:
    """Assert that complete events of one thread do not overlap partly, as trace viewers require."""
    for thread in {event["tid"] for event in events}:
        ends: list[int] = []
        for event in (e for e in events if e["tid"] == thread and e["ph"] == "X"):
            assert event["dur"] >= 0
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            assert not ends or event["ts"] + event["dur"] <= ends[-1], event
            ends.append(event["ts"] + event["dur"])


def test_a_job_is_an_event_with_its_phases_inside():
    front = Span("CUDA C++ Front-End", "device/axpy.cu", 0.25, 0.5)
    header = Span(HEADER, "späße.h", 0.3, 0.1)
    found = events(job(1.0, 1.0, header, front, worker="2"))
    assert named(found) == {1: "worker 2"}
    complete = [(e["name"], e["ts"], e["dur"]) for e in found if e["ph"] == "X"]
    assert complete == [
        ("device/axpy.cu sm_90", 1_000_000, 1_000_000),
        ("CUDA C++ Front-End", 1_250_000, 500_000),
        (HEADER, 1_300_000, 100_000),
    ]
    first, *_, last = (e["args"] for e in found if e["ph"] == "X")
    assert first == {
        "module": "p.kernels",
        "architecture": "sm_90",
        "action": "compile",
        "outcome": "compiled",
    }
    assert last == {"detail": "späße.h"}


def test_the_process_has_the_name_of_the_project():
    (process,) = (e for e in events() if e["name"] == "process_name")
    assert process["args"] == {"name": "cuda_ext: p"}


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (Span("before", "", -0.5, 1.0), (1.0, 0.5)),
        (Span("after", "", 0.5, 9.0), (1.5, 0.5)),
        (Span("around", "", -1.0, 9.0), (1.0, 1.0)),
    ],
)
def test_spans_end_within_their_job(span, expected):
    _, found = (e for e in events(job(1.0, 1.0, span)) if e["ph"] == "X")
    assert (found["ts"] / 1e6, found["dur"] / 1e6) == expected


def test_spans_outside_their_job_are_left_out():
    assert nest_spans(job(1.0, 1.0, Span("late", "", 1.5, 1.0), Span("early", "", -2.0, 1.0))) == []


def test_spans_end_within_their_parent():
    outer, inner = nest_spans(job(0, 9, Span("b", "", 2, 4), Span("a", "", 1, 3)))
    assert (outer.name, inner.name) == ("a", "b")
    assert (inner.start, inner.duration) == (2, 2)


def test_cached_jobs_are_marks_in_a_lane_of_their_own():
    found = events(job(0.5, 0.001, ending="cached", worker=""), job(1.0, 1.0))
    assert named(found) == {1: "worker 1", 2: "cache"}
    (mark,) = (e for e in found if e["ph"] == "i")
    assert (mark["tid"], mark["ts"], mark["s"]) == (2, 500_000, "t")


def test_a_worker_with_two_jobs_at_once_has_two_lanes():
    found = assign_lanes([job(0, 2), job(1, 2), job(2, 1), job(5, 1, worker="10"), job(5, 1, worker="2")])
    assert {lane: [each.start for each in jobs] for lane, jobs in found.items()} == {
        "1": [0, 2],
        "2": [5],
        "10": [5],
        "1 (2)": [1],
    }


def test_events_nest_for_any_times():
    """Times that rounding could push into each other, and spans in any order and overlap."""
    chance = random.Random(7)
    jobs = []
    for _ in range(60):
        duration = chance.random() * 1e-3
        spans = [
            Span(f"s{i}", "", chance.uniform(-1e-4, 1e-3), chance.choice([0.0, chance.random() * 1e-3]))
            for i in range(40)
        ]
        jobs.append(job(chance.random() * 0.01, duration, *spans, worker=chance.choice(["1", "tcp://h:1"])))
    assert_nested(events(*jobs))


def test_the_order_of_jobs_does_not_matter():
    jobs = [job(n % 7, 0.5, worker=str(n % 3), unit=f"u{n}.cu") for n in range(30)]
    assert chrome_trace(build(*jobs)) == chrome_trace(build(*reversed(jobs)))


# A front end of 10 s: a.h (6 s) includes b.h (4 s), where a template takes 1 s and includes c.h (0.5 s);
# then c.h again for 1 s.
NESTED = (
    Span("CUDA C++ Front-End", "", 0, 10),
    Span(HEADER, "a.h", 1, 6),
    Span(HEADER, "b.h", 2, 4),
    Span("Instantiating Template Class", "T", 3, 1),
    Span(HEADER, "c.h", 3.25, 0.5),
    Span(HEADER, "c.h", 8, 1),
)


def test_the_time_of_a_header_leaves_out_what_it_includes():
    twice = [nest_spans(job(0, 12, *NESTED)), nest_spans(job(20, 12, *NESTED[:2]))]
    assert sum_times(twice, header_of) == (
        CompileTime("a.h", exclusive=2 + 6, inclusive=12, jobs=2),
        CompileTime("b.h", exclusive=3.5, inclusive=4, jobs=1),
        CompileTime("c.h", exclusive=1.5, inclusive=1.5, jobs=1),
    )


def test_a_header_that_includes_itself_is_not_counted_twice():
    spans = (Span(HEADER, "x.h", 0, 8), Span(HEADER, "y.h", 1, 6), Span(HEADER, "x.h", 2, 3))
    assert sum_times([nest_spans(job(0, 9, *spans))], header_of) == (
        CompileTime("x.h", exclusive=2 + 3, inclusive=8, jobs=1),
        CompileTime("y.h", exclusive=3, inclusive=6, jobs=1),
    )


def test_the_time_of_a_phase_leaves_out_the_phases_within_it():
    times = sum_times([nest_spans(job(0, 12, *NESTED))])
    found = {time.name: time.exclusive for time in times}
    assert found == {"CUDA C++ Front-End": 3, HEADER: 2 + 3 + 0.5 + 1, "Instantiating Template Class": 0.5}
    assert sum(found.values()) == 10
