"""The conversion of arguments, and the arguments that are refused."""

from __future__ import annotations

import ctypes
import enum
import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cuda_ext.errors import ArgumentError
from cuda_ext.facts.kernels import Kernel, Parameter
from cuda_ext.runtime.arrays.device_memory import DeviceMemory
from cuda_ext.runtime.arrays.dtypes import accepted_dtypes
from cuda_ext.runtime.launch.arguments import make_fields, order_arguments, pack_layout
from cuda_ext.runtime.launch.python_arguments import flatten_tuples
from tests.fixtures.loader import (
    AXPY,
    signature,
)


class Level(enum.IntEnum):
    HIGH = 3


class Point(ctypes.Structure):
    _fields_ = (("x", ctypes.c_float), ("y", ctypes.c_float), ("z", ctypes.c_float))


class Tensor:
    """The interface of a torch tensor."""

    def __init__(self, dtype: str, address: int = 0x7F00, device: str = "cuda:0") -> None:
        self.dtype = f"torch.{dtype}"
        self.device = device
        self.is_cuda = device.startswith("cuda")
        self._address = address

    def data_ptr(self) -> int:
        return self._address

    def __index__(self) -> int:
        raise AssertionError("would wait for the GPU")

    __float__ = __index__


class Array:
    """The interface of a CuPy array."""

    def __init__(
        self, typestr: str, address: int | None = 0x7F00, read_only: bool = False, **more: Any
    ) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": (3,),
            "typestr": typestr,
            "data": (address, read_only),
            **more,
        }


def pack(parameters: Any, arguments: Any, named: Any) -> bytes:
    converted = make_fields(parameters)
    ordered = order_arguments(parameters, arguments, named)
    values = [field.value(argument) for field, argument in zip(converted, ordered, strict=True)]
    layout_, _ = pack_layout(converted, ())
    return layout_.pack(*(v.address if isinstance(v, DeviceMemory) else v for v in values))


def packed(parameter: str, value: object) -> bytes:
    return pack(signature(parameter), (value,), {})


ADDRESS = struct.pack("<Q", 0x7F00)


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        ("integer 1 char v", -128, b"\x80"),
        ("integer 2 short v", np.int16(-2), b"\xfe\xff"),
        ("integer 4 int v", -2, struct.pack("<i", -2)),
        ("integer 4 int v", True, struct.pack("<i", 1)),
        ("integer 4 int v", np.array(7), struct.pack("<i", 7)),
        ("integer 4 int v", np.uint64(7), struct.pack("<i", 7)),
        ("integer 8 long long v", -(2**63), struct.pack("<q", -(2**63))),
        ("unsigned 1 unsigned char v", 255, b"\xff"),
        ("unsigned 4 unsigned int v", 2**32 - 1, b"\xff" * 4),
        ("unsigned 8 unsigned long v", 2**64 - 1, b"\xff" * 8),
        ("float 4 float v", 2.5, struct.pack("<f", 2.5)),
        ("float 4 float v", 0.1, struct.pack("<f", 0.1)),
        ("float 4 float v", 3, struct.pack("<f", 3)),
        ("float 4 float v", np.float64(2.5), struct.pack("<f", 2.5)),
        ("float 4 float v", np.float16(2.5), struct.pack("<f", 2.5)),
        ("float 4 float v", Fraction(5, 2), struct.pack("<f", 2.5)),
        ("float 4 float v", math.inf, struct.pack("<f", math.inf)),
        ("float 8 double v", 0.1, struct.pack("<d", 0.1)),
        ("float 8 double v", np.int64(3), struct.pack("<d", 3)),
        ("struct 2 __half v", 2.5, struct.pack("<e", 2.5)),
        ("struct 2 __half v", np.float16(0.1), np.float16(0.1).tobytes()),
        ("struct 2 __half v", b"\x01\x02", b"\x01\x02"),
        ("struct 2 __nv_bfloat16 v", 2.5, b"\x20\x40"),
        ("struct 2 __nv_bfloat16 v", -0.0, b"\x00\x80"),
        ("struct 2 __nv_bfloat16 v", math.inf, b"\x80\x7f"),
        ("struct 2 __nv_bfloat16 v", 1 + 2**-8, b"\x80\x3f"),  # a tie goes to the even neighbour
        ("struct 2 __nv_bfloat16 v", 1 + 3 * 2**-8, b"\x82\x3f"),
        ("struct 2 __nv_bfloat16 v", 1 + 2**-8 + 2**-40, b"\x81\x3f"),  # not rounded twice
        ("struct 2 __nv_bfloat16 v", 2.0**-133, b"\x01\x00"),  # the least subnormal number
        ("struct 2 __nv_bfloat16 v", 2.0**-140, b"\x00\x00"),
        ("bool 1 bool v", True, b"\x01"),
        ("bool 1 bool v", 0, b"\x00"),
        ("bool 1 bool v", np.True_, b"\x01"),
        ("enum 4 Level v", Level.HIGH, struct.pack("<i", 3)),
        ("enum 4 Level v", -1, b"\xff" * 4),
        ("enum 1 Level v", 255, b"\xff"),
        ("struct 12 Point v", Point(1, 2, 3), struct.pack("<3f", 1, 2, 3)),
        ("struct 12 Point v", bytearray(range(12)), bytes(range(12))),
        ("struct 12 Point v", np.array([1, 2, 3], "f4"), struct.pack("<3f", 1, 2, 3)),
        ("struct 8 float2 v", np.complex64(1 + 2j), struct.pack("<2f", 1, 2)),
        ("struct 8 Pair v", np.array([(1, 2)], "i4,i4")[0], struct.pack("<2i", 1, 2)),
        ("pointer 8 float* v", 0, bytes(8)),
        ("pointer 8 float* v", None, bytes(8)),
        ("pointer 8 float* v", 2**64 - 1, b"\xff" * 8),
        ("pointer 8 float* v", np.uint64(0x7F00), ADDRESS),
        ("pointer 8 float* v", Tensor("float32"), ADDRESS),
        ("pointer 8 void* v", Tensor("float64"), ADDRESS),
        ("pointer 8 Particle* v", Tensor("uint8"), ADDRESS),
        ("pointer 8 __nv_bfloat16* v", Tensor("bfloat16"), ADDRESS),
        ("pointer 8 float* v", Array("<f4"), ADDRESS),
        ("pointer 8 float* v", Array("<f4", None), bytes(8)),
        ("pointer 8 const float* v", Array("<f4", read_only=True), ADDRESS),
        ("pointer 8 float2* v", Array("<c8"), ADDRESS),
        ("pointer 8 float4* v", Array("<f4"), ADDRESS),
        ("pointer 8 bool* v", Array("|b1"), ADDRESS),
        ("pointer 8 char* v", Array("|u1"), ADDRESS),
        ("pointer 8 float** v", Array("<u8"), ADDRESS),
        ("pointer 8 __half2* v", Array("<f2"), ADDRESS),
        ("opaque 8 unsigned_char[8] v", Tensor("float32"), ADDRESS),
        ("opaque 8 unsigned_char[8] v", Array("<f4"), ADDRESS),
        ("opaque 8 unsigned_char[8] v", Array("<f4", read_only=True), ADDRESS),
        ("opaque 8 unsigned_char[8] v", 0x7F00, ADDRESS),
        ("opaque 8 unsigned_char[8] v", None, bytes(8)),
        ("opaque 8 unsigned_char[8] v", np.float64(2.5), struct.pack("<d", 2.5)),
        ("opaque 4 unsigned_char[4] v", np.float32(2.5), struct.pack("<f", 2.5)),
        ("opaque 4 unsigned_char[4] v", ctypes.c_float(2.5), struct.pack("<f", 2.5)),
        ("opaque 4 unsigned_char[4] v", -1, b"\xff" * 4),
        ("opaque 12 unsigned_char[12] v", Point(1, 2, 3), struct.pack("<3f", 1, 2, 3)),
    ],
)
def test_arguments_become_the_bytes_of_their_parameter(
    parameter: str, value: object, expected: bytes
) -> None:
    assert packed(parameter, value) == expected


INT = "int from -2147483648 to 2147483647"
ARRAY = "an array in device memory or an address (float*)"


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("integer 4 int v", 2**31, f"expected {INT}, found 2147483648"),
        ("integer 4 int v", -(2**31) - 1, f"expected {INT}, found -2147483649"),
        ("integer 4 int v", np.int64(2**40), f"expected {INT}, found np.int64(1099511627776)"),
        ("integer 4 int v", 3.0, "expected int, found 3.0"),
        ("integer 4 int v", "3", "expected int, found '3'"),
        ("integer 4 int v", None, "expected int, found None"),
        ("integer 4 int v", np.array([3]), "expected int, found numpy.ndarray in host memory"),
        (
            "integer 4 int v",
            Tensor("int32"),
            f"expected int, found {__name__}.Tensor",
        ),
        ("unsigned 4 unsigned int v", -1, "expected unsigned int from 0 to 4294967295, found -1"),
        ("unsigned 1 unsigned char v", 256, "expected unsigned char from 0 to 255, found 256"),
        ("float 4 float v", "2.5", "expected float, found '2.5'"),
        ("float 4 float v", 1j, "expected float, found 1j"),
        ("float 4 float v", 1e39, "1e+39 is out of the range of float"),
        ("float 8 double v", 2**1024, "is out of the range of double"),
        ("float 4 float v", np.array([1.0]), "expected float, found numpy.ndarray in host memory"),
        (
            "float 4 float v",
            Tensor("float32"),
            f"expected float, found {__name__}.Tensor",
        ),
        ("struct 2 __half v", 1e6, "1000000.0 is out of the range of __half"),
        ("struct 2 __nv_bfloat16 v", 1e39, "1e+39 is out of the range of __nv_bfloat16"),
        ("struct 2 __half v", b"123", "expected the 2 bytes of __half, found 3"),
        ("bool 1 bool v", 2, "expected bool, found 2"),
        ("bool 1 bool v", None, "expected bool, found None"),
        ("enum 1 Level v", 256, "expected Level from -128 to 255, found 256"),
        ("enum 1 Level v", "HIGH", "expected Level, found 'HIGH'"),
        ("struct 12 Point v", b"123", "expected the 12 bytes of Point, found 3"),
        ("struct 12 Point v", (1, 2, 3), "(bytes, a ctypes.Structure or a numpy scalar), found tuple"),
        ("struct 12 Point v", 5, "found 5"),
        ("pointer 8 float* v", -1, "expected an address, found -1"),
        ("pointer 8 float* v", 2**64, "expected an address, found 18446744073709551616"),
        ("pointer 8 float* v", True, f"expected {ARRAY}, found True"),
        ("pointer 8 float* v", 1.5, f"expected {ARRAY}, found 1.5"),
        ("pointer 8 float* v", [1.0], f"expected {ARRAY}, found list"),
        ("pointer 8 float* v", np.zeros(3, "f4"), f"expected {ARRAY}, found numpy.ndarray in host memory"),
        ("pointer 8 float* v", np.array(3), f"expected {ARRAY}, found numpy.ndarray in host memory"),
        ("pointer 8 float* v", Tensor("float64"), "expected float32 (float), found float64"),
        (
            "pointer 8 float* v",
            Tensor("float32", device="cpu"),
            'expected device memory, found a tensor on cpu; move it with .to("cuda")',
        ),
        ("pointer 8 float* v", Array("<f8"), "expected float32 (float), found float64"),
        ("pointer 8 float* v", Array(">f4"), "expected float32 (float), found >f4"),
        ("pointer 8 float* v", Array("<c8"), "expected float32 (float), found complex64"),
        ("pointer 8 unsigned int* v", Array("<i4"), "expected uint32 (unsigned int), found int32"),
        ("pointer 8 __half* v", Tensor("bfloat16"), "expected float16 (__half), found bfloat16"),
        ("pointer 8 float* v", Array("<f4", read_only=True), "(float*), found a read-only array"),
        ("opaque 4 unsigned_char[4] v", 2.5, "a value that knows its size, such as numpy.float32(2)"),
        ("opaque 4 unsigned_char[4] v", np.float64(2), "expected the 4 bytes of unsigned_char[4], found 8"),
        ("opaque 4 unsigned_char[4] v", Tensor("float32"), "expected 4 bytes: a value that knows its size"),
        ("opaque 8 unsigned_char[8] v", np.zeros(1), "found numpy.ndarray in host memory"),
        ("opaque 8 unsigned_char[8] v", Tensor("float32", device="cpu"), "found a tensor on cpu"),
    ],
)
def test_unfit_values_are_refused(parameter: str, value: object, message: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        packed(parameter, value)
    assert str(raised.value).startswith("argument 'v': ")
    assert message in str(raised.value)


def test_arguments_are_packed_at_their_offsets() -> None:
    parameters = signature("bool 1 bool a", "float 8 double b", "struct 3 Rgb c", "integer 2 short d")
    content = pack(parameters, (True, 1.0, b"rgb", -1), {})
    assert content == b"\x01" + bytes(7) + struct.pack("<d", 1.0) + b"rgb\0" + b"\xff\xff"


def test_arguments_may_be_named() -> None:
    by_position = pack(AXPY.parameters, (3, 2.0, 16, 32), {})
    assert pack(AXPY.parameters, (3,), {"y": 32, "x": 16, "a": 2.0}) == by_position


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ((1, 2.0, 0), {}, "expected 4 arguments, found 3"),
        ((1, 2.0, 0, 0, 0), {}, "expected 4 arguments, found 5"),
        ((1, 2.0), {"x": 0, "yy": 0}, "no parameter is called 'yy'; did you mean 'y'?"),
        ((1, 2.0, 0), {"x": 0, "y": 0}, "the parameter 'x' is given by position, too"),
        ((1,), {"x": 0}, "missing: a, y; pass a value for each parameter"),
    ],
)
def test_every_parameter_is_given_once(arguments: Any, named: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        pack(AXPY.parameters, arguments, named)
    assert str(raised.value) == message


def test_kernels_without_parameters_accept_no_arguments() -> None:
    assert pack((), (), {}) == b""
    with pytest.raises(ArgumentError, match="expected no arguments, found 1"):
        pack((), (1,), {})


def test_element_types_are_known_by_their_dtypes() -> None:
    assert accepted_dtypes("unsigned long long") == ("uint64",)
    assert accepted_dtypes("ulonglong2") == ("uint64",)
    assert accepted_dtypes("uchar4") == ("uint8",)
    assert accepted_dtypes("char3") == ("int8",)
    assert accepted_dtypes("double2") == ("complex128", "float64")
    assert accepted_dtypes("int[4][4]") == ("int32",)
    assert accepted_dtypes("void") == accepted_dtypes("Particle") == ()


def test_tuples_are_given_once() -> None:
    names = "xs_0_0", "xs_0_1", "xs_1"
    parameters = tuple(Parameter(name, "int", "integer", 4, 0) for name in names)
    kernels = [Kernel("nest", "nest", 0, parameters)]
    assert flatten_tuples(kernels, (((1, 2), 3),), {}) == ([1, 2, 3], {})
    assert flatten_tuples(kernels, (), {"xs_0": (1, 2)}) == ([], {"xs_0_0": 1, "xs_0_1": 2})
    for wrong in ({"xs_1": 4}, {"xs_0": (4, 5)}):
        with pytest.raises(ArgumentError, match="is given twice"):
            flatten_tuples(kernels, (), {"xs": ((1, 2), 3), **wrong})
