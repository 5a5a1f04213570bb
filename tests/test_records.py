"""The named tuples of records are those of ``typing``, and the reader's annotations mean the same."""

from __future__ import annotations

import copy
import pickle
import typing

import pytest

from cuda_ext import records
from cuda_ext.fields import FixedLaunch, ImageKind, Text
from cuda_ext.manifest import Compression, Options, Source


class Point(records.NamedTuple):
    x: int
    label: str = ""

    @property
    def title(self) -> str:
        return f"{self.label}: {self.x}"


class Typed(typing.NamedTuple):
    x: int
    label: str = ""


@pytest.mark.parametrize(
    "use",
    [
        lambda kind: kind(1),
        lambda kind: kind(1, label="a")._replace(x=2),
        lambda kind: kind(label="a", x=1)._asdict(),
        lambda kind: (kind._fields, kind._field_defaults, kind.__match_args__),
        lambda kind: kind._make([1, "b"]).label,
        lambda kind: (hash(kind(1)), kind(1) == kind(1, ""), kind(1) == (1, ""), kind(1) < kind(2)),
        lambda kind: repr(kind(1)).partition("(")[2],
        lambda kind: copy.deepcopy(kind(1)),
        lambda kind: type(kind(1)._replace(x=3)) is kind,
        lambda kind: hasattr(kind(1), "__dict__"),
    ],
)
def test_a_record_is_a_named_tuple(use):
    assert use(Point) == use(Typed)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda kind: kind(),
        lambda kind: kind(1, "a", 2),
        lambda kind: kind(1, x=2),
        lambda kind: kind(1, color=2),
        lambda kind: kind(label="a"),
    ],
)
def test_a_record_takes_its_fields_alone(misuse):
    for kind in (Point, Typed):
        with pytest.raises(TypeError):
            misuse(kind)


def test_a_record_is_immutable_has_properties_and_is_pickled():
    point = Point(3, "a")
    assert pickle.loads(pickle.dumps(point)) == point
    assert point.title == "a: 3"
    assert point.__replace__(x=4) == Point(4, "a")  # what copy.replace calls, since Python 3.13
    with pytest.raises(AttributeError):
        point.x = 4


def test_annotations_are_evaluated_by_the_standard_library_too():
    hints = typing.get_type_hints(Source, include_extras=True)
    assert list(hints) == list(Source._fields)
    assert hints["options"] is Options
    assert typing.get_type_hints(FixedLaunch, include_extras=True)["tensor_maps"].__args__[0] == Text


def test_a_literal_has_its_texts():
    assert records.choices(Compression) == ("none", "speed", "balance", "size")
    assert records.choices(records.Literal["one"]) == ("one",)
    assert records.choices(ImageKind) == ("cubin", "ptx", "ltoir", "tileir")
