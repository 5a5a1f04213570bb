"""From measured cases to conditions: between two sizes, the choice is that of the nearer one in log2."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from math import isqrt
from typing import TypeAlias

from cuda_ext.compiler.tuned_kernels import Choice, Label
from cuda_ext.facts.candidates import Measured, Operator, Term
from cuda_ext.formats.variant_conditions import Condition, holds, on_gpu, parse

Point: TypeAlias = tuple[int, ...]
# How often a configuration was measured, and its time, by the GPU, the point and the configuration.
Measurements: TypeAlias = Mapping[tuple[int, str], Mapping[Point, Mapping[Label, tuple[int, float]]]]

# A configuration that takes at most so much longer than the best is as good: fewer of them ship.
_ALIKE = 1.01
_VECTOR = 16  # front ends of Python functions compile others for multiples of it


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

    def disorder(cut: tuple[int, Term, Term, float]) -> tuple[float, float]:
        sides: tuple[list[Label], list[Label]] = [], []
        for point, label in points.items():
            sides[holds(cut[1], point[cut[0]])].append(label)
        mixed = sum(len(side) - sum(n * n for n in Counter(side).values()) / len(side) for side in sides)
        return mixed, cut[3]

    def parts_of(cut: tuple[int, Term, Term, float]) -> Iterator[tuple[Label, Condition, list[Point]]]:
        axis, *terms, _ = cut
        for term in terms:
            part = {point: label for point, label in points.items() if holds(term, point[axis])}
            yield from divide(part, names, {**bounds, (term.name, term.operator, term.modulus): term})

    cuts = [*_cuts(points, names)]
    best = min(cuts, key=disorder)
    parts = [*parts_of(best)]
    # Where multiples differ from other sizes, each kind has its own nearest sizes: it is divided first.
    apart = {term.name for _, condition, _ in parts for term in condition if term.modulus}
    first = next((cut for cut in cuts if cut[1].modulus and cut[1].name in apart), best)
    yield from parts if first is best else parts_of(first)


def _cuts(points: Collection[Point], names: Sequence[str]) -> Iterator[tuple[int, Term, Term, float]]:
    """Yield the axes and the opposite terms that divide `points`, and how near the parts are."""
    for axis, name in enumerate(names):
        values = sorted({point[axis] for point in points})
        for low, high in pairwise(values):
            middle = isqrt(low * high) if low >= 0 else (low + high) // 2
            yield axis, Term(name, "<=", middle), Term(name, ">=", middle + 1), max(low, 1) / max(high, 1)
        if len({value % _VECTOR == 0 for value in values}) > 1:
            yield axis, Term(name, "==", 0, _VECTOR), Term(name, "!=", 0, _VECTOR), 0.5


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
