"""The report of a build: one HTML page that needs no other file and no network.

It carries its own record, so that the page of the next build can show what changed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cuda_ext.builder.report.build_record import BuildRecord, JobRecord, decode_record, encode_record
from cuda_ext.builder.report.chrome_trace import CACHE, assign_lanes
from cuda_ext.builder.report.compile_times import CompileTimes, HeaderTime, compile_times
from cuda_ext.builder.report.difference import (
    Change,
    Place,
    architecture_order,
    compare,
    find_changes,
    growth,
)
from cuda_ext.formats.quantities import format_count, format_duration, format_seconds, format_size

__all__ = ["Totals", "html_page", "is_report", "read_record"]

# In the head of every report, whatever version wrote it.
_MARK = '<meta name="generator" content="cuda-ext">'
# Changed whenever BuildRecord changes: a record of another version is ignored.
_SCHEMA = 2
# Rows that a page holds: the most expensive headers, and the largest changes.
_LIMITS = {"headers": 60, "changes": 300, "jobs": 12}
# Phases in the tooltip of a job.
_TOP_PHASES = 5
# Two compilations never take the same time: below this, in seconds and as a share, there is no difference.
_NOISE_SECONDS, _NOISE_SHARE = 0.05, 0.1


@dataclass(frozen=True, slots=True)
class Totals:
    """What a build sums up to. ``seconds`` are those of all compilers, ``spilling`` counts kernels."""

    wall: float
    seconds: float
    compiled: int
    images: int
    shipped: int
    code: int
    spilled: int
    spilling: int
    kernels: int

    @classmethod
    def of(cls, record: BuildRecord) -> Totals:
        names = {(k.module, k.unit, k.kernel): False for k in record.kernels}
        names |= {(k.module, k.unit, k.kernel): True for k in record.kernels if k.usage.spilled}
        return cls(
            wall=record.duration,
            seconds=sum(job.duration for job in record.jobs if job.outcome != "cached"),
            compiled=sum(job.outcome == "compiled" for job in record.jobs),
            images=sum(image.size for image in record.images),
            shipped=sum(record.fatbins.values()),
            code=sum(kernel.usage.code for kernel in record.kernels),
            spilled=sum(kernel.usage.spilled or 0 for kernel in record.kernels),
            spilling=sum(names.values()),
            kernels=len(names),
        )


def html_page(record: BuildRecord, previous: BuildRecord | None) -> str:
    """Return the page of a build, compared with the `previous` one if there is any.

    The same input gives the same text.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    def breakable(name: str) -> Markup:
        """Allow line breaks in a long name where a reader would put them."""
        return Markup("<wbr>").join(map(escape, re.split("(?<=[/,:<])", name)))

    loader = PackageLoader("cuda_ext.builder.report")
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True
    )
    environment.filters |= {
        "breakable": breakable,
        "count": format_count,
        "duration": format_duration,
        "percent": _percent,
        "seconds": format_seconds,
        "signed": _signed,
        "size": format_size,
    }
    environment.globals |= {
        "growth": growth,
        "limits": _LIMITS,
        "duration": format_duration,
        "size": format_size,
    }
    style, script = (loader.get_source(environment, f"report.{kind}")[0] for kind in ("css", "js"))
    times = compile_times(record.jobs)
    now, then = Totals.of(record), Totals.of(previous) if previous else None
    return environment.get_template("report.html.j2").render(
        record=record,
        previous=previous,
        now=now,
        then=then,
        # Times are comparable only if both builds compiled as much.
        comparable=then is not None and now.compiled == then.compiled,
        difference=compare(previous.build, record.build, int) if previous else None,
        changed_jobs=_changed_jobs(previous.jobs, record.jobs) if previous else (),
        outcomes=Counter(job.outcome for job in record.jobs),
        failed=sorted((job for job in record.jobs if job.outcome == "failed"), key=_job_order),
        times=times,
        headers=_expensive_headers(times.headers),
        style=Markup(style),  # noqa: S704 - both are files of this package
        script=Markup(script),  # noqa: S704
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        schema=_SCHEMA,
        encoded_record=encode_record(record),
        view_json=Markup(_escape_json(_view(record, times))),  # noqa: S704 - holds no markup
    )


def is_report(content: bytes) -> bool:
    """Whether `content` is a report, of this or another version."""
    return _MARK.encode() in content


def read_record(html: str) -> BuildRecord | None:
    """Read the record in a report, without spans; ``None`` if `html` is damaged or another page."""
    carried = re.search(rf'<script type="text/plain" id="cuda-ext-record-{_SCHEMA}">([^<]*)</script>', html)
    try:
        return decode_record(carried[1]) if carried else None
    except ValueError:
        return None


def _view(record: BuildRecord, times: CompileTimes) -> dict[str, Any]:
    """Return what the script of the page shows."""
    index = {id(job): i for i, job in enumerate(record.jobs)}
    units: dict[tuple[str, str], dict[str, int]] = {}
    for image in record.images:
        units.setdefault((image.module, image.unit), {})[image.architecture] = image.size
    kernels: dict[tuple[str, str, str], dict[str, object]] = {}
    for kernel in record.kernels:
        usage = {**asdict(kernel.usage), "spilled": kernel.usage.spilled}
        kernels.setdefault((kernel.module, kernel.unit, kernel.kernel), {})[kernel.architecture] = usage
    return {
        "duration": record.duration,
        "cache": CACHE,
        "architectures": sorted(
            {job.architecture for job in record.jobs}
            | {image.architecture for image in record.images}
            | {kernel.architecture for kernel in record.kernels},
            key=_column_order,
        ),
        "lanes": [
            {"name": name, "jobs": [index[id(job)] for job in jobs]}
            for name, jobs in assign_lanes(record.jobs).items()
        ],
        "jobs": [_job_view(job, times.of_jobs.get(i, {})) for i, job in enumerate(record.jobs)],
        "units": [
            {"module": module, "unit": unit, "sizes": sizes} for (module, unit), sizes in units.items()
        ],
        "kernels": [
            {"module": module, "unit": unit, "name": name, "usage": usage}
            for (module, unit, name), usage in kernels.items()
        ],
    }


def _job_view(job: JobRecord, phases: Mapping[str, float]) -> dict[str, object]:
    top = sorted(phases.items(), key=lambda item: -item[1])[:_TOP_PHASES]
    return {
        "module": job.module,
        "unit": job.unit,
        "architecture": job.architecture,
        "action": job.action,
        "outcome": job.outcome,
        "worker": job.worker,
        "start": round(job.start, 6),
        "duration": round(job.duration, 6),
        "took": format_duration(job.duration),
        "phases": [[name, format_duration(seconds)] for name, seconds in top],
    }


def _escape_json(value: object) -> str:
    """Return JSON in which no HTML parser finds an end tag or a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _expensive_headers(headers: Sequence[HeaderTime]) -> list[HeaderTime]:
    """Choose the most expensive headers, both by themselves and with all that they include."""
    most = _LIMITS["headers"]
    inclusive = sorted(headers, key=lambda header: (-header.inclusive, header.name))
    chosen = {*headers[:most], *inclusive[:most]}
    return [header for header in headers if header in chosen]


def _changed_jobs(before: Sequence[JobRecord], after: Sequence[JobRecord]) -> list[Change[float]]:
    """Find what both builds compiled, in times that differ by more than noise."""

    def compiled(jobs: Sequence[JobRecord]) -> dict[Place, float]:
        return {
            (job.module, job.unit, job.architecture, job.action): job.duration
            for job in jobs
            if job.outcome == "compiled"
        }

    return [
        change
        for change in find_changes(compiled(before), compiled(after), float)
        if change.before is not None
        and change.after is not None
        and abs(change.after - change.before) > max(_NOISE_SECONDS, _NOISE_SHARE * change.before)
    ]


def _column_order(architecture: str) -> tuple[object, ...]:
    """Cubins come before PTX and LTO-IR."""
    return not architecture.startswith("sm_"), architecture_order(architecture)


def _job_order(job: JobRecord) -> tuple[object, ...]:
    return job.module, job.unit, _column_order(job.architecture), job.action


def _percent(share: float, sign: bool = False) -> str:
    digits = 1 if 0 < abs(share) < 0.0995 else 0
    return f"{share * 100:{'+' if sign else ''},.{digits}f} %".replace("-", "\N{MINUS SIGN}")


def _signed(number: float) -> str:
    return f"{number:+,.0f}".replace("-", "\N{MINUS SIGN}")
