"""Arrays of any library through DLPack: address, dtype, device, stream and layout."""

from __future__ import annotations

import ctypes
import gc
import re
from typing import Any

import numpy as np
import pytest

from cuda_ext.errors import ArgumentError
from cuda_ext.facts.kernels import Kernel, Parameter
from cuda_ext.runtime.arrays.device_memory import ArrayLayout, DeviceMemory, array_layout, device_memory
from cuda_ext.runtime.overloads import OverloadIndex
from tests.fixtures.device_arrays import Exchanged, Lent, exchange_capsule, exchange_table

FLOATS = np.arange(12, dtype="f4").reshape(3, 4)
ADDRESS = FLOATS.ctypes.data
KINDS = {"unversioned": {"versioned": False}, "versioned": {}}


def seen(array: Any) -> DeviceMemory:
    memory = device_memory(array)
    assert memory is not None
    return memory


@pytest.mark.parametrize("how", KINDS.values(), ids=KINDS)
def test_a_capsule_is_read_and_released(how: Any) -> None:
    array = Lent(FLOATS, device=3, **how)
    memory = seen(array)
    assert (memory.address, memory.dtype, memory.read_only, memory.device) == (ADDRESS, "float32", False, 3)
    assert memory.stream is not None
    assert memory.stream(3) == 0
    # The producer makes the legacy default stream wait, in which the launch then is.
    assert [request["stream"] for request in array.requests] == [1] * len(array.requests)
    gc.collect()
    assert array.freed == 1


def test_the_newer_capsule_is_requested_first() -> None:
    new, old = Lent(FLOATS), Lent(FLOATS, versioned=False)
    seen(new)
    seen(old)
    newest = {"stream": 1, "max_version": (1, 0), "copy": False}
    assert new.requests == [newest]
    assert old.requests == [newest, {"stream": 1, "max_version": (1, 0)}, {"stream": 1}]


@pytest.mark.parametrize("how", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    ("array", "fields", "dtype"),
    [
        (np.zeros(2, "f2"), {}, "float16"),
        (np.zeros(2, "f8"), {}, "float64"),
        (np.zeros(2, "i1"), {}, "int8"),
        (np.zeros(2, "u8"), {}, "uint64"),
        (np.zeros(2, "c8"), {}, "complex64"),
        (np.zeros(2, "?"), {}, "bool"),
        (np.zeros(2, "u2"), {"code": 4}, "bfloat16"),
        (np.zeros(2, "u1"), {"code": 10}, "DLPack type 10 of 8"),
    ],
)
def test_types_are_named(how: Any, array: Any, fields: Any, dtype: str) -> None:
    assert seen(Lent(array, **how, **fields)).dtype == dtype


@pytest.mark.parametrize("how", KINDS.values(), ids=KINDS)
def test_data_may_begin_later(how: Any) -> None:
    assert seen(Lent(FLOATS, byte_offset=16, **how)).address == ADDRESS + 16
    assert seen(Lent(np.zeros(0, "f4"), data=None, **how)).address == 0


def test_a_flag_marks_read_only_arrays() -> None:
    assert seen(Lent(FLOATS, flags=1)).read_only
    assert not seen(Lent(FLOATS, flags=0)).read_only


def test_a_capsule_of_a_copy_is_refused() -> None:
    with pytest.raises(ArgumentError, match="found one that gives a copy"):
        seen(Lent(FLOATS, flags=2))


@pytest.mark.parametrize("kind", [3, 13])
def test_memory_that_a_gpu_can_access_is_accepted(kind: int) -> None:
    assert seen(Lent(FLOATS, kind)).address == ADDRESS


@pytest.mark.parametrize("kind", [4, 7, 8, 10, 14])
@pytest.mark.parametrize("made", [Lent, Exchanged])
def test_other_devices_are_refused(kind: int, made: Any) -> None:
    with pytest.raises(
        ArgumentError, match=f"^expected device memory of CUDA, found DLPack's device type {kind}"
    ):
        device_memory(made(FLOATS, kind))


def test_host_memory_is_no_device_memory() -> None:
    assert device_memory(Lent(FLOATS, kind=1)) is None
    assert device_memory(Exchanged(FLOATS, kind=1)) is None


@pytest.mark.parametrize("error", [BufferError, KeyError, RuntimeError, ValueError])
def test_a_refused_export_gives_the_reason(error: type[Exception]) -> None:
    class Refusing(Lent):
        def __dlpack__(self, **keywords: Any) -> object:
            raise error("it is in use")

    class Old(Refusing):
        def __dlpack__(self, *, stream: int) -> object:
            raise error("it is in use")

    for refusing in (Refusing(FLOATS), Old(FLOATS)):
        with pytest.raises(
            ArgumentError, match=r"^expected an array that DLPack can lend: '?it is in use'?$"
        ):
            device_memory(refusing)


@pytest.mark.parametrize(
    ("method", "result", "reason"),
    [
        ("__dlpack__", None, "__dlpack__ returned None, which is not a capsule"),
        ("__dlpack__", exchange_capsule(exchange_table()), "__dlpack__ returned a capsule called b'dl"),
        ("__dlpack_device__", None, "__dlpack_device__: TypeError("),
        ("__dlpack_device__", (2,), "__dlpack_device__: ValueError("),
    ],
)
def test_a_broken_method_is_named(
    method: str, result: object, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lent, method, lambda *_, **__: result)
    with pytest.raises(ArgumentError, match=f"^expected an array that DLPack can lend: {re.escape(reason)}"):
        device_memory(Lent(FLOATS))
    floats, doubles = (Parameter("x", f"{t}*", "pointer", 8, 0, t) for t in ("float", "double"))
    index = OverloadIndex([Kernel(f"k<{p.element}>", str(p.element), 0, (p,)) for p in (floats, doubles)])
    with pytest.raises(ArgumentError, match=f"^argument 'x': .*{re.escape(reason)}"):
        index.choose([Lent(FLOATS)], {})


def test_the_exchange_table_is_preferred_to_a_capsule() -> None:
    array = Exchanged(FLOATS, device=2, byte_offset=4)
    memory = seen(array)
    assert (memory.address, memory.dtype, memory.device) == (ADDRESS + 4, "float32", 2)
    assert memory.stream is not None
    assert memory.stream(0) == 7
    assert memory.stream(2) == 2007
    assert array.requests == []


def with_table(table: int) -> Exchanged:
    kind: Any = type("Other", (Exchanged,), {"__dlpack_c_exchange_api__": exchange_capsule(table)})
    array: Exchanged = kind(FLOATS)
    return array


def test_a_newer_table_links_to_the_known_version() -> None:
    array = with_table(exchange_table(major=2, lend=None, previous=exchange_table()))
    assert seen(array).address == ADDRESS
    assert array.requests == []


@pytest.mark.parametrize("table", [{"major": 2}, {"lend": None}, {"stream": None}])
def test_without_a_usable_table_the_capsule_is_used(table: Any) -> None:
    array = with_table(exchange_table(**table))
    assert seen(array).address == ADDRESS
    assert len(array.requests) == 1


def test_a_failing_table_gives_the_reason() -> None:
    # A C function that takes the object, raises TypeError and returns -1.
    failing = with_table(exchange_table(lend=ctypes.pythonapi.PyObject_Size))
    with pytest.raises(ArgumentError, match=r"^expected an array that DLPack can lend: .* has no len\(\)"):
        device_memory(failing)


@pytest.mark.parametrize("made", [Lent, Exchanged])
def test_layouts_count_bytes(made: Any) -> None:
    assert array_layout(made(FLOATS)) == ArrayLayout((3, 4), (16, 4), 4)
    assert array_layout(made(FLOATS.T)) == ArrayLayout((4, 3), (4, 16), 4)
    assert array_layout(made(FLOATS[::2])) == ArrayLayout((2, 4), (32, 4), 4)
    # No strides are those of C's order.
    assert array_layout(made(FLOATS, strides=None)) == ArrayLayout((3, 4), (16, 4), 4)
