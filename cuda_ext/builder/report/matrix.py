"""Tables with units or kernels down and architectures across; each cell has a number for every metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from cuda_ext.builder.report.difference import Place, architecture_order
from cuda_ext.formats.cubin import Resources


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that is shown of an image or a kernel; ``of`` returns it, or ``None`` if it is not known.

    ``total`` combines the numbers of a row. ``most`` is the number that fills a cell, ``widest`` the total
    that fills a bar. ``spell`` writes a number other than 0 in its parts.
    """

    label: str
    of: Callable[[Any], int | None]
    total: Callable[[Iterable[int]], int] = max
    unit: str = ""
    scale: int = 0
    digits: int = 0
    most: int = 0
    widest: int = 0
    marks_spills: bool = False
    spell: Callable[[Any], str] | None = None

    def total_of(self, row: Mapping[str, Any]) -> int | None:
        """Return the total of a row; ``None`` if no number in it is known."""
        known = [number for thing in row.values() if (number := self.of(thing)) is not None]
        return self.total(known) if known else None

    def text(self, number: int | None) -> str:
        """Format a number without its unit."""
        return "\N{EN DASH}" if number is None else f"{number / self.scale:,.{self.digits}f}"

    def spill_text(self, thing: Any) -> str:
        """Format the number of a kernel that spills registers; empty for all others."""
        value = self.of(thing)
        if not (value and self.marks_spills and thing.spilled):
            return ""
        return f"\N{BLACK UP-POINTING TRIANGLE} {self.spell(thing) if self.spell else self.text(value)}"

    def fit(self, rows: Iterable[Mapping[str, Any]]) -> Metric:
        """Return this metric with what fills a bar in `rows`, and the unit that suits them."""
        rows = list(rows)
        most = max((self.of(thing) or 0 for row in rows for thing in row.values()), default=0)
        widest = max((self.total_of(row) or 0 for row in rows), default=0)
        fitted = replace(self, most=self.most or most or 1, widest=self.widest or widest or 1)
        if self.scale:
            return fitted
        for unit, scale, digits in (("MiB", 1 << 20, 2), ("KiB", 1 << 10, 1)):
            if most >= 10 * scale:
                return replace(fitted, unit=unit, scale=scale, digits=digits)
        return replace(fitted, unit="bytes", scale=1)


IMAGES = (Metric("Size", int, total=sum),)
KERNELS = (
    Metric("Code size", attrgetter("code")),
    Metric("Registers", attrgetter("registers"), scale=1, most=255, widest=255, marks_spills=True),
    Metric(
        "Spills",
        attrgetter("spilled"),
        unit="bytes stored + loaded",
        scale=1,
        marks_spills=True,
        spell=lambda resources: f"{resources.spill_stores:,} + {resources.spill_loads:,}",
    ),
    Metric("Stack", attrgetter("stack")),
    Metric("Shared memory", attrgetter("shared")),
    Metric("Constant memory", attrgetter("constant")),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One unit or kernel: an image or resources for each architecture."""

    name: str
    where: str
    things: Mapping[str, Any]

    @property
    def spills(self) -> bool:
        return any(isinstance(thing, Resources) and thing.spilled for thing in self.things.values())


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows, the largest first, with architectures as columns."""

    metrics: Sequence[Metric]
    columns: Sequence[str]
    rows: Sequence[Row]

    @property
    def data(self) -> Mapping[str, Any]:
        """Return the data from which the script of the page draws the rows.

        A row is a name with its place, then the numbers for each architecture (``None`` if there is nothing),
        then the totals. The number of a kernel that spills comes with its text.
        """

        def numbers(thing: Any) -> list[Any]:
            return [
                (metric.of(thing), text) if (text := metric.spill_text(thing)) else metric.of(thing)
                for metric in self.metrics
            ]

        def cells(row: Row) -> list[Any]:
            things = (row.things.get(column) for column in self.columns)
            totals = [metric.total_of(row.things) for metric in self.metrics]
            return [(row.name, row.where), *(thing and numbers(thing) for thing in things), totals]

        fields = ("scale", "digits", "most", "widest")
        return {
            "metrics": [{field: getattr(metric, field) for field in fields} for metric in self.metrics],
            "rows": [cells(row) for row in self.rows],
        }

    def sum_of(self, column: str) -> int:
        """Return the size of all images for an architecture."""
        return sum(row.things.get(column, 0) for row in self.rows)


def arrange(things: Mapping[Place, Any], metrics: Sequence[Metric]) -> Matrix:
    """Arrange images or resources, whose places end with an architecture."""
    by_row: dict[Place, dict[str, Any]] = {}
    for (*place, architecture), thing in things.items():
        by_row.setdefault(tuple(place), {})[architecture] = thing
    has_modules = len({place[0] for place in by_row}) > 1
    rows = []
    for (module, unit, *kernel), of_row in by_row.items():
        *around, name = dict.fromkeys([*([module] if has_modules else []), unit, *kernel])
        rows.append(Row(name, " · ".join(around), of_row))
    fitted = [metric.fit([row.things for row in rows]) for metric in metrics]
    rows.sort(key=lambda row: (-(fitted[0].total_of(row.things) or 0), row.name))
    return Matrix(fitted, sorted({place[-1] for place in things}, key=column_order), rows)


def column_order(architecture: str) -> tuple[object, ...]:
    """Return the sort key of architectures, where cubins come before PTX and LTO-IR."""
    return not is_cubin(architecture), architecture_order(architecture)


def is_cubin(architecture: str) -> bool:
    """Return True if images for `architecture`, or the first of several, are cubins."""
    return architecture.startswith("sm_")
