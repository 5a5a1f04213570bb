"""From measured cases to conditions: between two sizes, the choice is that of the nearer one in log2."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from math import isqrt
from typing import NamedTuple, TypeAlias

from cuda_ext.compiler.front_ends.instantiation import DIVISOR
from cuda_ext.compiler.tuned_kernels import Choice, Label
from cuda_ext.facts.candidates import Measured, Operator, Term
from cuda_ext.formats.variant_conditions import Condition, holds, on_gpu, parse

Point: TypeAlias = tuple[int, ...]
# How often a configuration was measured, and its time, by the GPU, the point and the configuration.
Measurements: TypeAlias = Mapping[tuple[int, str], Mapping[Point, Mapping[Label, tuple[int, float]]]]

# A configuration that takes at most so much longer than the best is as good: fewer of them ship.
_ALIKE = 1.01


def longest(own: Mapping[Label, tuple[int, float]]) -> dict[Label, float]:
    """Select the times that were measured longest, those of the last round."""
    most = max(runs for runs, _ in own.values())
    return {label: time for label, (runs, time) in own.items() if runs == most}


def choose_few(times: Mapping[Point, Mapping[Label, float]]) -> dict[Point, Label]:
    """Choose one of the best labels for each point, so that few labels are chosen."""
    good = {p: [each for each, t in of.items() if t <= min(of.values()) * _ALIKE] for p, of in times.items()}
    chosen: dict[Point, Label] = {}
    while open_points := [point for point in good if point not in chosen]:
        counts = Counter(label for point in open_points for label in good[point])
        most = max(counts.values())
        best = min(
            (label for label in counts if counts[label] == most),
            key=lambda label: sum(times[p].get(label, 0) / min(times[p].values()) for p in open_points),
        )
        chosen |= {point: best for point in open_points if best in good[point]}
    return {point: chosen[point] for point in times}


class _Cut(NamedTuple):
    """The opposite terms that divide points at an axis, and how mixed and how near the parts are."""

    axis: int
    terms: tuple[Term, Term]
    mixed: float
    near: float


def divide(
    points: Mapping[Point, Label], names: Sequence[str], bounds: Mapping[tuple[str, Operator, int], Term] = {}
) -> Iterator[tuple[Label, Condition, list[Point]]]:
    """Divide all values of the integers `names` into parts, each for the points of one label.

    A bound lies in the middle of two values, in log2. Multiples of 16, for which compilers load vectors, and
    other values may be parts of their own.
    """
    if len({*points.values()}) <= 1:
        yield next(iter(points.values())), tuple(bounds[each] for each in sorted(bounds)), [*points]
        return

    def parts_of(cut: _Cut) -> Iterator[tuple[Label, Condition, list[Point]]]:
        for term in cut.terms:
            part = {point: label for point, label in points.items() if holds(term, point[cut.axis])}
            yield from divide(part, names, {**bounds, (term.name, term.operator, term.modulus): term})

    cuts = [*_cuts(points, names)]
    best = min(cuts, key=lambda cut: (cut.mixed, cut.near))
    parts = [*parts_of(best)]
    # Where multiples differ from other sizes, each kind has its own nearest sizes: it is divided first.
    apart = {term.name for _, condition, _ in parts for term in condition if term.modulus}
    first = next((cut for cut in cuts if cut.terms[0].modulus and cut.terms[0].name in apart), best)
    yield from parts if first is best else parts_of(first)


def _cuts(points: Mapping[Point, Label], names: Sequence[str]) -> Iterator[_Cut]:
    for axis, name in enumerate(names):
        values: dict[int, list[Label]] = {}
        for point in sorted(points):
            values.setdefault(point[axis], []).append(points[point])
        lower, upper = Counter[Label](), Counter(points.values())
        for low, high in pairwise(sorted(values)):
            lower.update(values[low])
            upper.subtract(values[low])
            middle = isqrt(low * high) if low >= 0 else (low + high) // 2
            terms = Term(name, "<=", middle), Term(name, ">=", middle + 1)
            yield _Cut(axis, terms, _mixed(upper) + _mixed(lower), max(low, 1) / max(high, 1))
        kinds = Counter[Label](), Counter[Label]()
        for value, labels in values.items():
            kinds[value % DIVISOR == 0].update(labels)
        if all(kinds):
            terms = Term(name, "==", 0, DIVISOR), Term(name, "!=", 0, DIVISOR)
            yield _Cut(axis, terms, _mixed(kinds[0]) + _mixed(kinds[1]), 0.5)


def _mixed(labels: Counter[Label]) -> float:
    """Return how mixed `labels` are: 0 for one label."""
    total = labels.total()
    return total - sum(count * count for count in labels.values()) / total


def merge_neighbours(choices: Sequence[Choice]) -> Iterator[Choice]:
    """Unite neighbours with one configuration."""
    for configuration, group in groupby(choices, key=lambda choice: choice.configuration):
        yield Choice(configuration, tuple(condition for choice in group for condition in choice.when))


def exactly(
    points: Mapping[Point, Label], names: Sequence[str]
) -> Iterator[tuple[Label, Condition, list[Point]]]:
    """Yield each of `points` with the condition that the integers `names` are equal."""
    for point, label in points.items():
        yield label, tuple(Term(name, "==", value) for name, value in zip(names, point, strict=True)), [point]


def choose_by_gpu(measured: Measurements, names: Sequence[str], are_exact: bool) -> Iterator[Choice]:
    """Yield the choices for each GPU; those of the last one of a capability hold for all its GPUs.

    If they `are_exact`, they hold for the measured sizes alone.
    """
    part = exactly if are_exact else divide
    gpus = sorted(measured, key=lambda gpu: (gpu[0], is_capability(gpu[1]), gpu[1]))
    last = dict(gpus)
    for sm, device in gpus:
        on_gpus = on_device(f"sm_{sm}" if sm and last[sm] == device else device, sm)
        times = {point: longest(own) for point, own in measured[sm, device].items()}
        regions: dict[Label, list[tuple[Condition, list[Point]]]] = {}
        for label, condition, points in part(choose_few(times), names):
            regions.setdefault(label, []).append((on_gpus + condition, points))
        for label, parts in regions.items():
            cases = tuple(Measured(device, point) for _, points in parts for point in points)
            yield Choice(dict(label), tuple(condition for condition, _ in parts), cases)


def on_device(device: str, sm: int) -> Condition:
    """Return the condition that the GPU is `device`, a capability or a name, whose capability is `sm`."""
    return parse(device) if is_capability(device) else (on_gpu(device), *(parse(f"sm_{sm}") if sm else ()))


def is_capability(device: str) -> bool:
    return re.fullmatch(r"sm_[1-9]\d{1,2}", device) is not None
