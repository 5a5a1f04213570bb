"""Dataclasses as bytes: encoded values are decoded, and all other bytes are refused."""

from __future__ import annotations

import hashlib
import runpy
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import pytest

from cuda_ext.facts import codec
from cuda_ext.facts.codec import DecodingError, decode, encode


class Corner(NamedTuple):
    x: int
    y: float


@dataclass(frozen=True)
class Shape:
    name: str
    kind: Literal["line", "area"]
    corners: tuple[Corner, ...]
    colours: Mapping[str, bytes]
    tags: frozenset[str]
    closed: bool
    note: str | None
    label: bytes | None
    centre: Corner | None


SHAPES = [
    Shape("", "line", (), {}, frozenset(), False, None, None, None),
    Shape(
        "a b\0\N{GREEK SMALL LETTER ALPHA}",
        "area",
        (Corner(-3, 0.1), Corner(1 << 60, -1e300)),
        {"red": b"\xff\0", "": b""},
        frozenset({"b", "a"}),
        True,
        "",
        b"",
        Corner(0, 2.0),
    ),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_encoded_values_are_decoded(shape):
    assert decode(Shape, encode(shape)) == shape


def test_equal_values_have_equal_bytes():
    assert encode(Shape(*vars(SHAPES[1]).values())) == encode(SHAPES[1])


@pytest.mark.parametrize("shape", SHAPES)
def test_cut_and_lengthened_bytes_are_refused(shape):
    data = encode(shape)
    for end in range(len(data)):
        with pytest.raises(DecodingError):
            decode(Shape, data[:end])
    for more in (b"0:", b"-", b"x"):
        with pytest.raises(DecodingError):
            decode(Shape, data + more)


@pytest.mark.parametrize("shape", SHAPES)
def test_damaged_bytes_are_refused_or_another_shape(shape):
    data = encode(shape)
    for position in range(len(data)):
        for byte in b"-09:x\xff":
            damaged = data[:position] + bytes([byte]) + data[position + 1 :]
            try:
                assert encode(decode(Shape, damaged)) is not None
            except DecodingError:
                continue


@pytest.mark.parametrize(
    "data",
    [b"", b"1:x", b"1:11:2-", b"3:0x11:1", b"21:1111111111111111111111:1", b"-1:1", b"1:13:nan", b"1:13:inf"],
)
def test_values_that_violate_the_annotations_are_refused(data):
    with pytest.raises(DecodingError):
        decode(Corner, data)


@pytest.mark.parametrize("lacking", [(), ("_sha2", "_sha256"), ("hashlib",)])
@pytest.mark.parametrize("content", [b"", b"abc", memoryview(bytes(5 << 20))], ids=len)
def test_sha256_is_that_of_hashlib(
    monkeypatch: pytest.MonkeyPatch, lacking: tuple[str, ...], content: bytes
) -> None:
    """Some distributions build Python without its own SHA-256."""
    expected = hashlib.sha256(content).digest()
    for name in lacking:
        if name == "hashlib":  # not imported yet
            monkeypatch.delitem(sys.modules, name)
        else:
            monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    assert runpy.run_path(codec.__file__)["sha256"](content) == expected
