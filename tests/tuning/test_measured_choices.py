"""Conditions made of measured sizes: which configuration a size takes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cuda_ext.builder.sources.measured_choices import Point, choose_few, divide
from cuda_ext.compiler.tuned_kernels import Label
from cuda_ext.formats.variant_conditions import holds


def taken(points: dict[Point, str], sizes: Point) -> str:
    """Return the only label whose condition holds for `sizes`."""
    names = [f"n{axis}" for axis in range(len(sizes))]
    numbers = dict(zip(names, sizes, strict=True))
    labels: dict[Point, Label] = {point: (("L", label),) for point, label in points.items()}
    parts = [
        label
        for label, condition, _ in divide(labels, names)
        if all(holds(term, numbers[term.name]) for term in condition)
    ]
    ((_, found),) = [entry for (entry,) in parts]
    return found


def test_sizes_that_are_no_multiples_of_16_take_what_was_measured_for_such_sizes() -> None:
    points: dict[Point, str] = {(1 << n,): "vectors" for n in range(8, 13)}
    points |= {(300,): "single", (1300,): "single", (3300,): "single"}
    assert [taken(points, (n,)) for n in (640, 2560, 4096, 250, 900, 2500)] == ["vectors"] * 3 + [
        "single"
    ] * 3


def test_the_nearest_size_is_of_the_same_kind() -> None:
    points: dict[Point, str] = {(768,): "a", (1024,): "b", (700,): "c", (1300,): "d", (2048,): "b"}
    # 900 is nearer to 700 than to 1300, though it is nearer to 1024 than to 768.
    assert [taken(points, (n,)) for n in (900, 960, 802, 896, 4096)] == ["c", "b", "c", "b", "b"]


def test_sizes_of_either_kind_take_the_nearest_if_their_choices_do_not_differ() -> None:
    points: dict[Point, str] = {(1000,): "small", (1024,): "small", (4096,): "large", (4100,): "large"}
    assert [taken(points, (n,)) for n in (16, 900, 2048, 2049, 3000, 5000)] == ["small"] * 3 + ["large"] * 3
    assert [taken({(100,): "a", (16000,): "b"}, (n,)) for n in (16, 1264, 1266, 99999)] == [
        "a",
        "a",
        "b",
        "b",
    ]


def test_of_equal_times_the_first_is_chosen_in_each_process() -> None:
    labels: list[Label] = [(("L", str(number)),) for number in range(40)]
    assert choose_few({(1,): dict.fromkeys(labels, 1.0)}) == {(1,): labels[0]}


_SIZES = st.integers(0, 1 << 40)


_POINTS = st.tuples(_SIZES, _SIZES)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(_POINTS, st.sampled_from("abc"), min_size=1, max_size=8), _POINTS)
def test_each_measured_size_takes_its_choice_and_each_other_takes_one(
    points: dict[Point, str], other: Point
) -> None:
    assert {point: taken(points, point) for point in points} == points
    assert taken(points, other) in points.values()
