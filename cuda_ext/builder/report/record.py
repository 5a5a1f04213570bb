"""What a build did, as plain data: its compilations, images and kernels.

The engine fills a :class:`BuildRecord`; :mod:`~cuda_ext.builder.report.trace` and the report's page show it.
:func:`dumps` and :func:`loads` carry it from one build's report to the next, without the spans.
"""

from __future__ import annotations

import json
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, TypeVar

from cuda_ext.toolchain.time_trace import Span

__all__ = ["Action", "BuildRecord", "ImageRecord", "JobRecord", "KernelRecord", "Span", "dumps", "loads"]

SCHEMA = 1

Action = Literal["compile", "survey", "link"]


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One compilation: a translation unit for one architecture.

    A ``survey`` is the pass that asks the compiler for names and types. ``worker`` is ``1``, ``2``, or a Dask
    worker's address, and empty for what the cache had. ``start`` counts seconds since the build began.
    """

    module: str
    unit: str
    architecture: str
    action: Action
    outcome: Literal["compiled", "cached", "failed"]
    worker: str
    start: float
    duration: float
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """A kernel in one cubin. Sizes count bytes; ``None`` is what is not known.

    ``code_size`` is the machine code, ``stack`` a thread's stack frame, ``shared`` static shared memory.
    """

    module: str
    unit: str
    kernel: str
    architecture: str
    code_size: int
    registers: int | None
    spill_stores: int | None
    spill_loads: int | None
    stack: int | None
    shared: int | None
    constant: int | None


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """One image; ``size`` counts its bytes before compression."""

    module: str
    unit: str
    architecture: str
    size: int


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """One build of a project.

    ``started`` is ISO 8601, local time with its offset; ``compilers`` are names with versions
    (``nvrtc 13.5``); ``fatbins`` maps paths to bytes as shipped.
    """

    project: str
    started: str
    duration: float
    workers: int
    compilers: tuple[str, ...]
    jobs: tuple[JobRecord, ...]
    images: tuple[ImageRecord, ...]
    kernels: tuple[KernelRecord, ...]
    fatbins: Mapping[str, int]


_T = TypeVar("_T", JobRecord, ImageRecord, KernelRecord)


def dumps(record: BuildRecord) -> str:
    """Write `record` as compact JSON: a table of strings, and rows that refer to it.

    Spans are left out, and times are kept to the microsecond. The same record gives the same text.
    """
    strings: dict[str, int] = {}

    def cell(value: object) -> object:
        if isinstance(value, str):
            return strings.setdefault(value, len(strings))
        return round(value, 6) if isinstance(value, float) else value

    def rows(kind: Callable[..., _T], items: Sequence[_T]) -> list[list[object]]:
        return [[cell(getattr(item, name)) for name in _columns(kind)] for item in items]

    data = {
        "schema": SCHEMA,
        "project": record.project,
        "started": record.started,
        "duration": round(record.duration, 6),
        "workers": record.workers,
        "compilers": record.compilers,
        "fatbins": dict(record.fatbins),
        "jobs": rows(JobRecord, record.jobs),
        "images": rows(ImageRecord, record.images),
        "kernels": rows(KernelRecord, record.kernels),
        "strings": list(strings),
    }
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def loads(text: str) -> BuildRecord:
    """Read what :func:`dumps` wrote. Raises :class:`ValueError` if it is anything else."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ValueError(f"not a build record of schema {SCHEMA}")
    strings = tuple(_checked(str, value, ()) for value in _array(data.get("strings")))

    def rows(kind: Callable[..., _T], name: str) -> tuple[_T, ...]:
        return tuple(_row(kind, _array(row), strings) for row in _array(data.get(name)))

    fatbins = data.get("fatbins")
    if not isinstance(fatbins, dict):
        raise ValueError(f"fatbins are {fatbins!r}")
    return BuildRecord(
        project=_checked(str, data.get("project"), ()),
        started=_checked(str, data.get("started"), ()),
        duration=_checked(float, data.get("duration"), ()),
        workers=_checked(int, data.get("workers"), ()),
        compilers=tuple(_checked(str, value, ()) for value in _array(data.get("compilers"))),
        jobs=rows(JobRecord, "jobs"),
        images=rows(ImageRecord, "images"),
        kernels=rows(KernelRecord, "kernels"),
        fatbins={path: _checked(int, size, ()) for path, size in fatbins.items()},
    )


@cache
def _columns(kind: Any) -> Mapping[str, Any]:
    """What a row of `kind` holds: the types of its fields, by name."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.name != "spans"}


def _row(kind: Callable[..., _T], row: Sequence[object], strings: Sequence[str]) -> _T:
    values = []
    for column, value in zip(_columns(kind).values(), row, strict=True):
        if column is str or typing.get_origin(column) is Literal:
            index: int = _checked(int, value, ())
            if index >= len(strings):
                raise ValueError(f"{index} is not one of {len(strings)} strings")
            value = strings[index]
        values.append(_checked(column, value, typing.get_args(column)))
    return kind(*values)


def _checked(kind: Any, value: object, choices: Sequence[object]) -> Any:
    """`value`, if it is a `kind`: text, one of the `choices`, or a number that is not negative."""
    if kind is str and isinstance(value, str):
        # A lone surrogate could be read but never be written into the next report.
        value.encode()
        return value
    if typing.get_origin(kind) is Literal and value in choices:
        return value
    if value is None and type(None) in choices:
        return None
    if type(value) is int and value >= 0 and (kind in (int, float) or int in choices):
        return value
    if type(value) is float and kind is float and math.isfinite(value) and value >= 0:
        return value
    raise ValueError(f"{value!r} is not {kind}")


def _array(value: object) -> Sequence[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not an array")
    return value
