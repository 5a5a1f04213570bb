"""The report of a build: one HTML page that needs no other file and no network.

It carries its own record, so that the page of the next build can show what changed.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cuda_ext.builder.rendering import templates
from cuda_ext.builder.report.build_record import (
    BuildRecord,
    JobRecord,
    decode_record,
    encode_record,
)
from cuda_ext.builder.report.chrome_trace import CACHE, assign_lanes
from cuda_ext.builder.report.compile_times import CompileTime, header_of, nest_spans, sum_times
from cuda_ext.builder.report.difference import Change, Changes, compare, growth
from cuda_ext.builder.report.matrix import IMAGES, KERNELS, arrange, column_order, is_cubin
from cuda_ext.compiler.module_plan import file_stems
from cuda_ext.compiler.tuned_kernels import Landscape, spell_values
from cuda_ext.facts.codec import sha256
from cuda_ext.formats.image_content import join_images
from cuda_ext.formats.quantities import format_count, format_duration, format_seconds, format_size

# A text in the head of every report, whatever version wrote it.
_MARK = '<meta name="generator" content="cuda-ext">'
_HEAD = 1000
# Changed whenever BuildRecord changes: a record of another version is ignored.
_SCHEMA = 6
# Rows that a page holds: the most expensive headers, and the largest changes.
_LIMITS = {"headers": 60, "changes": 300, "contents": 100}
# The number of rows for which a page has elements; its script draws the other rows, perhaps thousands, from
# data.
_FIRST_ROWS = {"matrix": 25, "jobs": 20}
# Phases in the tooltip of a job.
_TOP_PHASES = 5
# The purposes of the bytes of images, in the order of the columns.
_PARTS = ("code", "constants", "variables", "symbols", "debug", "other", "PTX", "LTO-IR", "Tile IR")
# The resources of kernels that the table of changes shows, by its headings.
_SHOWN_RESOURCES = {
    "Code, bytes": "code",
    "Registers": "registers",
    "Spills, bytes": "spilled",
    "Stack": "stack",
    "Shared": "shared",
    "Constant": "constant",
}


def html_page(record: BuildRecord, previous: BuildRecord | None, landscapes: Sequence[Landscape] = ()) -> str:
    """Return the page of a build, compared with the `previous` one if there is any.

    The same input gives the same text.
    """
    from markupsafe import Markup, escape

    def breakable(name: str) -> Markup:
        """Allow line breaks in a long name where a reader would put them."""
        return Markup("<wbr>").join(map(escape, re.split("(?<=[/,:<])", name)))

    environment = templates("cuda_ext.builder.report", html=True)
    environment.filters |= {
        "breakable": breakable,
        "count": format_count,
        "duration": format_duration,
        "kibibytes": lambda size: f"{size / 1024:,.1f}",
        "percent": _percent,
        "seconds": format_seconds,
        "signed": _signed,
        "size": format_size,
        "spelled": lambda label: spell_values(dict(label)),
        "title_of": lambda part: part[:1].upper() + part[1:],
        "tooltip": _describe_job,
        "whole": "{:,}".format,
    }
    environment.tests["cubin"] = is_cubin
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.globals |= {
        "duration": format_duration,
        "growth": growth,
        "first_rows": _FIRST_ROWS,
        "limits": _LIMITS,
        "size": format_size,
    }
    files = Path(__file__).with_name("templates")
    style, script = (Path(files, f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    spans = [nest_spans(job) for job in record.jobs if job.spans]
    headers = sum_times(spans, header_of)
    everything = join_images(record.images.values())
    now, then = _sum_up(record), _sum_up(previous) if previous else None
    changes = _visible_changes(previous, record) if previous else None
    return environment.get_template("report.html.j2").render(
        record=record,
        landscapes=landscapes,
        previous=previous,
        now=now,
        then=then,
        # Times are comparable only if both builds compiled the same.
        comparable=previous is not None and _compiled(previous.jobs) == _compiled(record.jobs),
        changes=changes,
        resources=_changed_resources(changes["kernels"]) if changes else {},
        contents=sorted(record.images.items(), key=lambda item: (-item[1].size, item[0])),
        all_contents=everything,
        parts=[part for part in _PARTS if part in everything.parts],
        endings=Counter(job.ending for job in record.jobs),
        failed=sorted((job for job in record.jobs if job.ending == "failed"), key=_job_order),
        end=max(record.duration, 1e-3, *(job.start + job.duration for job in record.jobs)),
        lanes=assign_lanes(record.jobs),
        job_data={"rows": _job_rows(record.jobs)},
        cache=CACHE,
        shades=_shades(record),
        stems=file_stems(job.unit for job in record.jobs),
        traced=sum(job.duration for job in record.jobs if job.spans),
        traced_jobs=len(spans),
        phases=sum_times(spans),
        has_nvcc=any(compiler.startswith("nvcc ") for compiler in record.compilers),
        all_headers=headers,
        headers=_expensive_headers(headers),
        images=arrange(record.sizes, IMAGES),
        kernels=arrange(record.kernels, KERNELS),
        style=Markup(style),  # noqa: S704 - both are files of this package
        script=Markup(script),  # noqa: S704
        script_digest=base64.b64encode(sha256(script.encode())).decode(),
        schema=_SCHEMA,
        encoded_record=encode_record(record),
    )


def is_report(content: bytes) -> bool:
    """Return True if `content` begins like a report of this or another version."""
    return _MARK.encode() in content[:_HEAD]


def read_record(html: str) -> BuildRecord | None:
    """Read the record in a report, without spans; ``None`` if `html` is damaged or another page."""
    carried = re.search(rf'<script type="text/plain" id="cuda-ext-record-{_SCHEMA}">([^<]*)</script>', html)
    try:
        return decode_record(carried[1]) if carried else None
    except ValueError:
        return None


def _sum_up(record: BuildRecord) -> Mapping[str, float]:
    """Return the totals of a build; ``seconds`` are those of all compilers, ``spilling`` counts kernels."""
    usages = record.kernels.values()
    return {
        "wall": record.duration,
        "seconds": sum(job.duration for job in record.jobs if job.ending != "cached"),
        "compiled": sum(job.ending == "compiled" for job in record.jobs),
        "images": sum(record.sizes.values()),
        "shipped": sum(record.fatbins.values()),
        "code": sum(usage.code for usage in usages),
        "spilled": sum(usage.spilled or 0 for usage in usages),
        "spilling": len({place[:-1] for place, usage in record.kernels.items() if usage.spilled}),
        "kernels": record.kernel_count,
    }


def _describe_job(job: JobRecord) -> str:
    """Return the tooltip of a job: its name, end and times, and its most expensive phases."""
    did = {"compiled": "compiled in", "failed": "failed after", "cached": "from the cache"}[job.ending]
    took = f" {format_duration(job.duration)}" if job.ending != "cached" else ""
    phases = sum_times([nest_spans(job)])[:_TOP_PHASES]
    lines = [
        job.unit,
        f"{job.module} · {job.architecture}",
        f"{did}{took}, started at {format_seconds(job.start)}",
        *(f"{phase.name}: {format_duration(phase.exclusive)}" for phase in phases),
    ]
    return "\n".join(lines)


def _job_rows(jobs: Sequence[JobRecord]) -> list[list[Any]]:
    """Return the cells of the table of jobs, the longest first. A duration comes with its text."""

    def cells(job: JobRecord) -> list[Any]:
        return [
            job.unit,
            job.architecture,
            job.action,
            "\N{MULTIPLICATION X} failed" if job.ending == "failed" else job.ending,
            job.worker or (CACHE if job.ending == "cached" else ""),
            round(job.start, 6),
            (
                round(job.duration, 6),
                "\N{EN DASH}" if job.ending == "cached" else format_duration(job.duration),
            ),
        ]

    return [cells(job) for job in sorted(jobs, key=lambda job: -job.duration)]


def _shades(record: BuildRecord) -> dict[str, float]:
    """Return the position of each architecture among those of its kind, from 0 to 1, for colours."""
    names = sorted({job.architecture for job in record.jobs}, key=column_order)
    kinds = [[name for name in names if is_cubin(name) == kind] for kind in (True, False)]
    return {
        name: index / (len(alike) - 1) if len(alike) > 1 else 0.5
        for alike in kinds
        for index, name in enumerate(alike)
    }


def _expensive_headers(headers: Sequence[CompileTime]) -> list[CompileTime]:
    """Choose the most expensive headers, both by themselves and with all that they include."""
    most = _LIMITS["headers"]
    inclusive = sorted(headers, key=lambda header: (-header.inclusive, header.name))
    chosen = {*headers[:most], *inclusive[:most]}
    return [header for header in headers if header in chosen]


def _visible_changes(before: BuildRecord, after: BuildRecord) -> Changes:
    """Compare two builds, without kernels for which the page would show no difference."""
    changes = compare(before.build, after.build)
    kernels = tuple(change for change in changes["kernels"] if _changed_resources([change]))
    return {**changes, "kernels": kernels}


def _changed_resources(changes: Sequence[Change]) -> dict[str, str]:
    """Return the columns for the resources that changed anywhere."""

    def has_changed(field: str) -> bool:
        return any(growth(getattr(c.before, field), getattr(c.after, field)) for c in changes)

    return {heading: field for heading, field in _SHOWN_RESOURCES.items() if has_changed(field)}


def _compiled(jobs: Sequence[JobRecord]) -> set[tuple[str, ...]]:
    """Return the jobs that were compiled, without those from the cache."""
    return {(j.module, j.unit, j.architecture, j.action) for j in jobs if j.ending == "compiled"}


def _job_order(job: JobRecord) -> tuple[object, ...]:
    return job.module, job.unit, column_order(job.architecture), job.action


def _percent(share: float, sign: bool = False) -> str:
    if 0 < abs(share) < 0.0005:
        return "<0.1 %"
    digits = 1 if 0 < abs(share) < 0.0995 else 0
    return f"{share * 100:{'+' if sign else ''},.{digits}f} %".replace("-", "\N{MINUS SIGN}")


def _signed(number: float) -> str:
    return f"{number:+,.0f}".replace("-", "\N{MINUS SIGN}")
