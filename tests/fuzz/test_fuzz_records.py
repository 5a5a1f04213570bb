"""Damaged records of each kind are refused, or are other records of that kind."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from cuda_ext.builder.report.build_record import (
    BuildRecord,
    JobRecord,
    decode_record,
    encode_record,
)
from cuda_ext.cache.dependencies import DependencyCache, FileDigests
from cuda_ext.cache.store import pack, unpack
from cuda_ext.facts.codec import DecodingError, decode, decode_fields, encode, encode_fields
from cuda_ext.formats.cubin import Resources
from cuda_ext.formats.image_content import ImageContent
from cuda_ext.runtime.jit.request import Entry
from tests.fuzz import strategies
from tests.fuzz.strategies import damaged_bytes

KEY = "ab" * 32
REPORT = BuildRecord(
    "p",
    "2026-01-01T00:00:00+01:00",
    1.5,
    2,
    ("nvrtc 13.5",),
    (JobRecord("p.k", "a.cu", "sm_90", "compile", "compiled", "1", 0.0, 0.5),),
    {("p.k", "a.cu", "sm_90"): ImageContent("sm_90", "cubin", "zstd", 60, 100, {"code": 100})},
    {("p.k", "a.cu", "k", "sm_90"): Resources(100, 32, 0, 0, 0, 16, 4)},
    {("p/k/a.fatbin",): 60},
)


@functools.cache
def records() -> list[Any]:
    """A record of each kind."""
    kernels, symbols = strategies.MANIFEST.kernels, strategies.MANIFEST.symbols
    entry = Entry("sm_90", b"image", (*kernels,), (*symbols,))
    image = strategies.compiled("compute_90")
    return [REPORT, strategies.library(), image, strategies.signatures(), entry]


@st.composite
def damaged_records(draw: Any, values: list[Any]) -> tuple[type, bytes]:
    """The kind of a record, and its bytes with other fields or other bytes."""
    value = draw(st.sampled_from(values))
    data = encode(value)
    if draw(st.booleans()):
        return type(value), draw(
            damaged_bytes([data], [b"-", b"0:", b"1:9", b"20:99999999999999999999", b"3:1e9"])
        )
    fields = decode_fields(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(fields) - 1))
        other = draw(
            st.sampled_from([None, b"", b"0", b"1", b"-1", b"00", b"99999999999999999999", b"\xff", b"../x"])
        )
        match draw(st.sampled_from(["other", "swap", "drop", "repeat"])):
            case "other":
                fields[at] = other
            case "swap":
                fields[at] = draw(st.sampled_from(fields))
            case "drop" if len(fields) > 1:
                del fields[at]
            case _:
                fields[at:at] = fields[at : at + 3]
    return type(value), encode_fields(fields)


@given(st.deferred(lambda: damaged_records(records())))
def test_damaged_bytes_are_refused_or_another_record(damaged: tuple[type, bytes]) -> None:
    kind, data = damaged
    try:
        value = decode(kind, data)
    except DecodingError:
        return
    assert decode(kind, encode(value)) == value


class Inner(NamedTuple):
    number: int
    text: str | None


@dataclass(frozen=True)
class Outer:
    text: str
    data: bytes | None
    kind: Literal["a", "b"]
    ratio: float
    items: tuple[Inner, ...]
    table: Mapping[str, Inner]
    names: frozenset[str]
    inner: Inner | None
    flag: bool


_numbers = st.integers(-(10**18), 10**18)
# What os.fsdecode returns.
_texts = st.one_of(
    st.text(max_size=8), st.binary(max_size=8).map(lambda b: b.decode("utf-8", "surrogateescape"))
)
_inner = st.builds(Inner, _numbers, st.none() | _texts)


@example(Outer("", None, "a", 0.0, (Inner(1, "\udc80"),), {}, frozenset(), None, False))
@given(
    st.builds(
        Outer,
        _texts,
        st.none() | st.binary(max_size=8),
        st.sampled_from(["a", "b"]),
        st.floats(allow_nan=False, allow_infinity=False),
        st.lists(_inner, max_size=3).map(tuple),
        st.dictionaries(_texts, _inner, max_size=3),
        st.frozensets(_texts, max_size=3),
        st.none() | _inner,
        st.booleans(),
    )
)
def test_a_record_is_read_back(record: Outer) -> None:
    data = encode(record)
    assert decode(Outer, data) == record
    assert encode(decode(Outer, data)) == data


@given(damaged_bytes([encode_fields(["axpy", None, "", b"x" * 50])], [b"-", b":", b"0", b"1:", b"01:a"]))
def test_fields_are_refused_or_written_alike(data: bytes) -> None:
    try:
        fields = decode_fields(data)
    except DecodingError:
        return
    assert encode_fields(fields) == data


@given(damaged_bytes([encode_record(REPORT).encode()]))
def test_the_record_of_a_report_is_read_or_refused(data: bytes) -> None:
    try:
        decode_record(data.decode("latin-1"))
    except ValueError:
        return


@given(damaged_bytes([pack(KEY, b"content")]), st.binary(max_size=4))
def test_an_entry_of_a_store_is_whole_or_none(entry: bytes, more: bytes) -> None:
    is_whole = entry == pack(KEY, b"content")
    assert unpack(KEY, entry) == (b"content" if is_whole else None)
    assert unpack("cd" * 32, pack(KEY, more)) is None


class DamagedStore:
    """A store that returns `damage` of what was put into it."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.contents.get(key)

    def put(self, key: str, content: bytes) -> None:
        self.contents[key] = content


@given(st.data())
def test_what_the_cache_lost_is_a_miss(data: st.DataObject) -> None:
    store: Any = DamagedStore()
    cache, digests = DependencyCache(store), FileDigests(store)
    cache.keep(KEY, ("a.h", "b.h"), str.upper, b"content")
    cache.keep("cd" * 32, (), str.upper, b"content")
    digests(__file__)
    digests.save()
    chosen = data.draw(st.sampled_from(sorted(store.contents)))
    store.contents[chosen] = data.draw(damaged_bytes([store.contents[chosen]]))
    for key in (KEY, "cd" * 32):
        found = cache.find(key, str.upper, bytes)
        assert found is None or found.content is not None
    assert FileDigests(store)(__file__)
