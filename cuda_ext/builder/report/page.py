"""The report of a build: one HTML page that needs nothing else, neither files nor a network.

A page holds its own record as JSON, so that the next build's page can show what changed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cuda_ext.builder.report import record as record_file
from cuda_ext.builder.report.comparison import Pair, compare, natural, spills
from cuda_ext.builder.report.record import BuildRecord, JobRecord
from cuda_ext.builder.report.spans import Header, NestedSpan, headers, nested, phases
from cuda_ext.builder.report.trace import CACHE, lanes

__all__ = ["html_report", "is_report", "previous_record"]

Tone = Literal["good", "bad", ""]

_RECORD = "cuda-ext-record"
_BEFORE_RECORD = f'<script type="application/json" id="{_RECORD}">'
# Rows that a page holds. The dearest headers come first, and the worst changes.
_HEADERS, _CHANGES, _SLOWER = 60, 300, 12


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the numbers on top; ``tone`` says whether its change against the previous build is good."""

    label: str
    value: str
    detail: str
    change: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Total:
    """One number of both builds."""

    label: str
    before: str
    after: str
    change: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class Phase:
    """The seconds of one phase without the phases within it, over ``jobs`` compilations."""

    name: str
    seconds: float
    jobs: int


@dataclass(frozen=True, slots=True)
class Times:
    """Where the compilers' time went.

    ``jobs`` has the phases of each traced job by its index. ``header_count`` and ``header_seconds`` cover all
    headers, of which ``headers`` are the dearest.
    """

    jobs: Mapping[int, Mapping[str, float]]
    phases: tuple[Phase, ...]
    headers: tuple[Header, ...]
    header_count: int
    header_seconds: float


def html_report(record: BuildRecord, previous: BuildRecord | None) -> str:
    """The page of a build, against the `previous` one if there is any. The same input gives the same text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    def breakable(name: str) -> Markup:
        """A long name that may be broken where people would break it."""
        return Markup("<wbr>").join(map(escape, re.split("(?<=[/,:<])", name)))

    loader = PackageLoader("cuda_ext.builder.report")
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True
    )
    environment.filters.update(
        {
            "breakable": breakable,
            "seconds": _seconds,
            "duration": _duration,
            "size": _size,
            "signed": _signed,
            "percent": _percent,
        }
    )
    style, script = (loader.get_source(environment, f"report.{kind}")[0] for kind in ("css", "js"))
    times = _times(record)
    now, then = Sums.of(record), Sums.of(previous) if previous is not None else None
    comparison = compare(previous, record) if previous is not None else None
    return environment.get_template("report.html.j2").render(
        record=record,
        record_id=_RECORD,
        previous=previous,
        comparison=comparison,
        limits={"changes": _CHANGES, "slower": _SLOWER},
        figures=_figures(record, now, then),
        outcomes=Counter(job.outcome for job in record.jobs),
        failed=sorted((job for job in record.jobs if job.outcome == "failed"), key=_name),
        times=times,
        traced=sum(record.jobs[index].duration for index in times.jobs),
        alike=then is not None and _comparable(now, then),
        totals=_totals(now, then) if then else (),
        spills=spills,
        Pair=Pair,
        style=Markup(style),  # noqa: S704 - both are files of ours
        script=Markup(script),  # noqa: S704
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        record_json=Markup(_inert(record_file.dumps(record))),  # noqa: S704 - holds no markup
        view_json=Markup(_inert(_view(record, times))),  # noqa: S704
    )


def is_report(content: bytes) -> bool:
    """Whether that is a page of ours, be it of an older or a newer version."""
    return _BEFORE_RECORD.encode() in content


def previous_record(html: str) -> BuildRecord | None:
    """The record in a page of ours, without spans; ``None`` if `html` is damaged or another page."""
    found = re.search(rf"{_BEFORE_RECORD}(.*?)</script>", html, re.DOTALL)
    try:
        return record_file.loads(found[1]) if found else None
    except ValueError:
        return None


def _inert(text: str) -> str:
    """JSON that no HTML parser finds an end tag or a comment in."""
    return re.sub("[<>&\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _view(record: BuildRecord, times: Times) -> str:
    """What the page's script shows besides the record: lanes and phases, with jobs by index."""
    index = {id(job): i for i, job in enumerate(record.jobs)}
    names = [phase.name for phase in times.phases]
    number = {name: i for i, name in enumerate(names)}
    found: dict[str, object] = {
        "cache": CACHE,
        "lanes": [[name, [index[id(job)] for job in jobs]] for name, jobs in lanes(record.jobs).items()],
        "architectures": sorted(
            {item.architecture for items in (record.jobs, record.images, record.kernels) for item in items},
            key=natural,
        ),
        "phases": names,
        "jobs": {
            job: [[number[name], round(seconds, 6)] for name, seconds in found.items()]
            for job, found in times.jobs.items()
        },
    }
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def _times(record: BuildRecord) -> Times:
    of_jobs: dict[int, dict[str, float]] = {}

    def traced() -> Iterator[Sequence[NestedSpan]]:
        for index, job in enumerate(record.jobs):
            if job.spans:
                spans = nested(job)
                of_jobs[index] = phases(spans)
                yield spans

    found = headers(traced())
    names = sorted({name for of_job in of_jobs.values() for name in of_job})
    totals = (
        Phase(name, sum(of_job.get(name, 0) for of_job in of_jobs.values()), _having(name, of_jobs))
        for name in names
    )
    inclusive = sorted(found, key=lambda header: (-header.inclusive, header.name))
    shown = {*found[:_HEADERS], *inclusive[:_HEADERS]}
    return Times(
        jobs=of_jobs,
        phases=tuple(sorted(totals, key=lambda phase: (-phase.seconds, phase.name))),
        headers=tuple(header for header in found if header in shown),
        header_count=len(found),
        header_seconds=sum(header.exclusive for header in found),
    )


def _having(name: str, jobs: Mapping[int, Mapping[str, float]]) -> int:
    return sum(name in job for job in jobs.values())


@dataclass(frozen=True, slots=True)
class Sums:
    """What a build adds up to. ``seconds`` are those of all compilers, ``spilling`` counts kernels."""

    wall: float
    seconds: float
    compiled: int
    images: int
    shipped: int
    code: int
    spills: int
    spilling: int

    @classmethod
    def of(cls, record: BuildRecord) -> Sums:
        return cls(
            wall=record.duration,
            seconds=sum(job.duration for job in record.jobs if job.outcome != "cached"),
            compiled=sum(job.outcome == "compiled" for job in record.jobs),
            images=sum(image.size for image in record.images),
            shipped=sum(record.fatbins.values()),
            code=sum(kernel.code_size for kernel in record.kernels),
            spills=sum(spills(kernel) or 0 for kernel in record.kernels),
            spilling=len({(k.module, k.unit, k.kernel) for k in record.kernels if spills(k)}),
        )


def _figures(record: BuildRecord, now: Sums, then: Sums | None) -> list[Figure]:
    """The headline, each number with its change where there are two builds."""
    parallel = f"{now.seconds / now.wall:.2f} \N{MULTIPLICATION SIGN}" if now.wall and now.seconds else "none"
    ratio = f", {_percent(now.shipped / now.images)}" if now.images and now.shipped else ""
    kernels = len({(k.module, k.unit, k.kernel) for k in record.kernels})
    spilling = now.spilling - then.spilling if then else 0
    wall = _change(then.wall, now.wall, _comparable(now, then)) if then else ("", "")
    return [
        Figure("Wall time", _duration(now.wall), _plural(len(record.jobs), "compilation"), *wall),
        Figure("Compiler time", _duration(now.seconds), "over all compilations"),
        Figure("Parallelism", parallel, f"on {_plural(record.workers, 'worker')}"),
        Figure(
            "Images",
            _size(now.images),
            f"{_plural(len(record.images), 'image')}, raw",
            *(_change(then.images, now.images) if then else ()),
        ),
        Figure(
            "Shipped",
            _size(now.shipped),
            _plural(len(record.fatbins), "fatbin") + ratio,
            *(_change(then.shipped, now.shipped) if then else ()),
        ),
        Figure(
            "Spilling kernels",
            f"{now.spilling:,}",
            f"of {_plural(kernels, 'kernel')}",
            _signed(spilling),
            "bad" if spilling > 0 else "good",
        ),
    ]


def _totals(now: Sums, then: Sums) -> list[Total]:
    alike = _comparable(now, then)
    return [
        Total("Wall time", _duration(then.wall), _duration(now.wall), *_change(then.wall, now.wall, alike)),
        Total(
            "Compiler time",
            _duration(then.seconds),
            _duration(now.seconds),
            *_change(then.seconds, now.seconds, alike),
        ),
        Total(
            "Compiled",
            f"{then.compiled:,}",
            f"{now.compiled:,}",
            *_change(then.compiled, now.compiled, verdict=False),
        ),
        *(
            Total(label, _size(before), _size(after), *_change(before, after))
            for label, before, after in (
                ("Images", then.images, now.images),
                ("Shipped", then.shipped, now.shipped),
                ("Machine code", then.code, now.code),
                ("Spills, all kernels", then.spills, now.spills),
            )
        ),
    ]


def _comparable(now: Sums, then: Sums) -> bool:
    """Whether times say something: a build that found more in the cache is not one that compiles faster."""
    return now.compiled == then.compiled


def _change(before: float, after: float, verdict: bool = True) -> tuple[str, Tone]:
    """How much more or less `after` is, and whether that is good."""
    if before == after:
        return "", ""
    tone: Tone = "" if not verdict else "bad" if after > before else "good"
    return (_percent(after / before - 1, sign=True) if before else "+ new"), tone


def _name(job: JobRecord) -> tuple[object, ...]:
    return (job.module, job.unit, natural(job.architecture), job.action)


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds >= 59.95:
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
    if not seconds:
        return "0 s"
    return f"{seconds:.1f} s" if seconds >= 0.9995 else f"{seconds * 1000:.0f} ms"


def _seconds(seconds: float) -> str:
    """Seconds as a column of them is aligned."""
    return f"{seconds:,.2f} s" if seconds >= 0.005 or seconds == 0 else "<0.01 s"


def _size(count: float) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale * 0.9995:
            return f"{count / scale:.{2 if count < 9.995 * scale else 1}f} {unit}"
    return f"{count:.0f} B"


def _percent(share: float, sign: bool = False) -> str:
    digits = 1 if 0 < abs(share) < 0.0995 else 0
    return f"{share * 100:{'+' if sign else ''},.{digits}f} %".replace("-", "\N{MINUS SIGN}")


def _signed(number: float) -> str:
    return "" if not number else f"{number:+,.0f}".replace("-", "\N{MINUS SIGN}")
