"""For each type of parameter what fits and what does not, and all ways to launch a kernel with it.

Everything is made anew for each launch, by the functions in the tables. :func:`tried` runs where the fake
driver is, in a process of its own.
"""

from __future__ import annotations

import ctypes
import datetime
import decimal
import fractions
import io
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuda_ext.errors import ArgumentError
from cuda_ext.manifest import Kernel, Parameter
from cuda_ext.runtime.driver import open_driver
from tests.device_arrays import Array, Buffer, CupyArray, Exchanged, Lent, Tensor

__all__ = ["KERNELS", "TYPES", "Case", "tried"]

Made = Callable[[], Any]
Table = Mapping[str, Made]


@dataclass(frozen=True)
class Case:
    """Arguments for one type of parameter, ``right`` and ``wrong`` ones, by what they are."""

    kind: Any
    size: int
    right: Table
    wrong: Table
    element: str | None = None


class Raising:
    """An array whose library has other troubles."""

    @property
    def __cuda_array_interface__(self) -> Any:
        raise RuntimeError("the array has been deleted")


class RaisingTensor:
    def data_ptr(self) -> int:
        raise ValueError("no storage")


class RaisingIndex:
    def __index__(self) -> int:
        raise ValueError("not now")

    __float__ = __index__
    __complex__ = __index__


class Interface:
    def __init__(self, interface: Any) -> None:
        self.__cuda_array_interface__ = interface


class Small(ctypes.Structure):
    _fields_ = (("x", ctypes.c_byte),)


def released() -> memoryview:
    view = memoryview(bytearray(16))
    view.release()
    return view


def floats(count: int = 4) -> np.ndarray[Any, Any]:
    return np.zeros(count, "f4")


# What fits no parameter at all.
NOTHING: Table = {
    "a string": lambda: "3",
    "a number as text": lambda: np.str_("3"),
    "a list": lambda: [1],
    "an empty list": list,
    "a tuple": lambda: (1, 2),
    "a dict": dict,
    "a set": set,
    "an object": object,
    "a class": lambda: int,
    "a function": lambda: floats,
    "a file": io.BytesIO,
    "a date": lambda: datetime.date(2026, 1, 1),
    "a released buffer": released,
    "an object that fails": RaisingIndex,
    "an ellipsis": lambda: ...,
}
# What fits pointers alone.
ARRAYS: Table = {
    "a tensor": lambda: Tensor(floats()),
    "a tensor of one": lambda: Tensor(np.zeros((), "i4")),
    "a tensor on the host": lambda: Tensor(floats(), device=-1),
    "an array of CuPy": lambda: CupyArray(floats()),
    "an array of an interface": lambda: Array(floats()),
    "an array of one": lambda: Array(np.zeros((), "i4")),
    "a broken interface": Raising,
    "a broken tensor": RaisingTensor,
    "an array of numpy": lambda: np.zeros((3, 19), "i1"),
    "an array of objects": lambda: np.array([None]),
}
NONE: Table = {"None": lambda: None}
BUFFERS: Table = {
    "bytes": lambda: b"12345678901234567",
    "no bytes": lambda: b"",
    "a small structure": Small,
}


def whole(low: int, high: int) -> Case:
    size = (high - low).bit_length() // 8
    right = {"the lowest": lambda: low, "the highest": lambda: high, "of numpy": lambda: np.int8(1)}
    wrong: dict[str, Made] = {
        "one below": lambda: low - 1,
        "one above": lambda: high + 1,
        "huge": lambda: 1 << 200,
        "a real": lambda: 1.0,
        "a real of numpy": lambda: np.float32(1),
        "not a number": lambda: math.nan,
        "infinity": lambda: math.inf,
        "a complex number": lambda: 1j,
        "a fraction": lambda: fractions.Fraction(1, 1),
        "a decimal": lambda: decimal.Decimal(1),
        "of ctypes": lambda: ctypes.c_int(1),
        "an array": lambda: np.array([1, 2]),
        "a real array of one": lambda: np.array(1.0),
    }
    if size < 8:
        wrong["of numpy, one above"] = lambda: np.int64(high + 1)
        wrong["of numpy, one below"] = lambda: np.int64(low - 1)
    return Case(
        "integer" if low else "unsigned", size, right, {**wrong, **NOTHING, **NONE, **ARRAYS, **BUFFERS}
    )


def real(kind: str, size: int, above: float) -> Case:
    right: dict[str, Made] = {
        "a real": lambda: 1.5,
        "an int": lambda: 3,
        "not a number": lambda: math.nan,
        "infinity": lambda: -math.inf,
        "of numpy": lambda: np.float16(1.5),
        "a fraction": lambda: fractions.Fraction(3, 2),
    }
    wrong: dict[str, Made] = {
        "a huge int": lambda: 10**400,
        "a huge fraction": lambda: fractions.Fraction(10**400),
        "a huge negative int": lambda: -(10**400),
        "a complex number": lambda: 1j,
        "a complex number of numpy": lambda: np.complex64(1),
        "a signalling decimal": lambda: decimal.Decimal("sNaN"),
        "an array": lambda: np.array([1.0, 2.0]),
    }
    if above < math.inf:
        wrong["above"] = lambda: above
        wrong["below"] = lambda: -above
        wrong["of numpy, above"] = lambda: np.float64(above)
        wrong["an int above"] = lambda: int(above)
    return Case(kind, size, right, {**wrong, **NOTHING, **NONE, **ARRAYS, **BUFFERS})


def boolean() -> Case:
    right = {"true": lambda: True, "zero": lambda: 0, "of numpy": lambda: np.False_}
    wrong: dict[str, Made] = {
        "two": lambda: 2,
        "minus one": lambda: -1,
        "a real": lambda: 1.0,
        "of numpy, two": lambda: np.int8(2),
        "a complex number": lambda: 1j,
        "an array": lambda: np.array([True, False]),
    }
    return Case("bool", 1, right, {**wrong, **NOTHING, **NONE, **ARRAYS, **BUFFERS})


def enum(size: int) -> Case:
    low, high = -(1 << 8 * size - 1), (1 << 8 * size) - 1
    case = whole(low, high)
    return Case("enum", size, case.right, case.wrong)


def structure(size: int) -> Case:
    right: dict[str, Made] = {
        "bytes": lambda: bytes(size),
        "of ctypes": (ctypes.c_byte * size),
        "of numpy": lambda: np.zeros((), f"V{size}")[()],
    }
    wrong: dict[str, Made] = {
        "a byte less": lambda: bytes(size - 1),
        "a byte more": lambda: bytearray(size + 1),
        "of numpy, a byte more": lambda: np.zeros((), f"V{size + 1}")[()],
        "an int": lambda: 1,
        "a real": lambda: 1.5,
        "true": lambda: True,
        "a complex number": lambda: 1j,
    }
    return Case("struct", size, right, {**wrong, **NOTHING, **NONE, **ARRAYS, **BUFFERS})


def half(above: float) -> Case:
    case = real("struct", 2, above)
    return Case("struct", 2, {**case.right, "bytes": lambda: b"12"}, {**case.wrong, "a byte": lambda: b"1"})


def complex_number(size: int, above: float) -> Case:
    right: dict[str, Made] = {
        "a complex number": lambda: 1 + 2j,
        "a real": lambda: 1.5,
        "an int": lambda: 3,
        "of numpy": lambda: np.complex64(1j),
        "not a number": lambda: complex(math.nan, math.inf),
        "bytes": lambda: bytes(size),
    }
    wrong: dict[str, Made] = {
        "a huge int": lambda: 10**400,
        "a huge fraction": lambda: fractions.Fraction(10**400),
        "a byte less": lambda: bytes(size - 1),
        "a byte more": lambda: bytes(size + 1),
        "an array of one": lambda: Array(np.zeros((), "c8")),
        "a tensor of one": lambda: Tensor(np.zeros((), "c8")),
    }
    if above < math.inf:
        wrong["a real above"] = lambda: above
        wrong["an imaginary part below"] = lambda: complex(0, -above)
        wrong["of numpy, above"] = lambda: np.complex128(above)
    return Case("struct", size, right, {**NOTHING, **NONE, **ARRAYS, **BUFFERS, **wrong})


DTYPES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64 complex128"


def pointer(element: str, *accepted: str, const: bool = False) -> Case:
    """A pointer that takes memory of the dtypes `accepted`, or of any if there are none."""
    right: dict[str, Made] = {
        "an address": lambda: 0x7F00,
        "null": lambda: None,
        "zero": lambda: 0,
        "the last address": lambda: 2**64 - 1,
        "of numpy": lambda: np.uint64(16),
        "a buffer": lambda: Buffer(floats()),
    }
    wrong: dict[str, Made] = {
        "true": lambda: True,
        "false": lambda: False,
        "true of numpy": lambda: np.True_,
        "below": lambda: -1,
        "above": lambda: 2**64,
        "a real": lambda: 16.0,
        "not a number": lambda: math.nan,
        "a complex number": lambda: 16j,
        "of ctypes": lambda: ctypes.c_void_p(16),
        "a tensor on the host": lambda: Tensor(np.zeros(4, some), device=-1),
        "a freed tensor": lambda: Tensor(np.zeros(4, some), address=0),
        "a broken tensor": RaisingTensor,
        "a freed buffer": lambda: Buffer(None),
        "a buffer on the host": lambda: Buffer(floats(), on_the_host=True),
        "memory of others' devices": lambda: Lent(np.zeros(4, some), kind=10),
        "memory of others' devices, exchanged": lambda: Exchanged(np.zeros(4, some), kind=10),
        "host memory that is lent": lambda: Lent(np.zeros(4, some), kind=1),
        "a broken interface": Raising,
        "an interface of nothing": lambda: Interface({}),
        "an interface that is none": lambda: Interface(7),
        "an interface without data": lambda: Interface({"typestr": "<f4", "shape": (1,)}),
        "an interface without type": lambda: Interface({"data": (16, False), "shape": (1,)}),
        "a real address": lambda: Interface({"typestr": "<f4", "shape": (1,), "data": (1.5, False)}),
        "a negative address": lambda: Interface({"typestr": f"|{some}", "shape": (1,), "data": (-1, False)}),
        "an array of objects": lambda: np.array([None]),
        "an array in another byte order": lambda: np.zeros(4, ">i4"),
    }
    some = np.dtype(accepted[0]).str[1:] if accepted and accepted[0] != "bfloat16" else "u1"
    for name in DTYPES.split():
        arrays = right if name in accepted or not accepted else wrong
        for made in (Tensor, CupyArray, Array, Lent, Exchanged):
            arrays[f"{made.__name__} of {name}"] = lambda made=made, name=name: made(np.zeros(4, name))
        if arrays is wrong:
            arrays[f"numpy's {name}"] = lambda name=name: np.zeros(4, name)
    brains = right if "bfloat16" in accepted or not accepted else wrong
    brains["Tensor of bfloat16"] = lambda: Tensor(np.zeros(4, "u2"), dtype="bfloat16")
    brains["Lent of bfloat16"] = lambda: Lent(np.zeros(4, "u2"), code=4)
    read_only = right if const else wrong
    read_only["a read-only interface"] = lambda: Array(np.zeros(4, some), read_only=True)
    read_only["a read-only capsule"] = lambda: Lent(np.zeros(4, some), flags=1)
    return Case("pointer", 8, right, {**NOTHING, **wrong, **BUFFERS}, element)


def opaque(size: int) -> Case:
    right: dict[str, Made] = {
        "bytes": lambda: bytes(size),
        "an int": lambda: -1,
        "of ctypes": (ctypes.c_byte * size),
    }
    wrong: dict[str, Made] = {
        "a byte less": lambda: bytes(size - 1),
        "a byte more": lambda: bytes(size + 1),
        "above": lambda: 1 << 8 * size,
        "below": lambda: -(1 << 8 * size - 1) - 1,
        "a real": lambda: 1.5,
        "a complex number": lambda: 1j,
    }
    arrays = dict(ARRAYS)
    if size == 8:
        right["a tensor"] = lambda: Tensor(floats())
        right["an array"] = lambda: Array(floats())
        right["null"] = lambda: None
        arrays = {name: made for name, made in ARRAYS.items() if "host" in name or "broken" in name}
    else:
        wrong["None"] = lambda: None
    return Case("opaque", size, right, {**NOTHING, **arrays, **wrong, **BUFFERS})


TYPES: dict[str, Case] = {
    "char": whole(-(2**7), 2**7 - 1),
    "signed char": whole(-(2**7), 2**7 - 1),
    "unsigned char": whole(0, 2**8 - 1),
    "short": whole(-(2**15), 2**15 - 1),
    "unsigned short": whole(0, 2**16 - 1),
    "int": whole(-(2**31), 2**31 - 1),
    "unsigned int": whole(0, 2**32 - 1),
    "long": whole(-(2**63), 2**63 - 1),
    "unsigned long": whole(0, 2**64 - 1),
    "long long": whole(-(2**63), 2**63 - 1),
    "unsigned long long": whole(0, 2**64 - 1),
    "__int128": whole(-(2**127), 2**127 - 1),
    "unsigned __int128": whole(0, 2**128 - 1),
    "bool": boolean(),
    "float": real("float", 4, 3.5e38),
    "double": real("float", 8, math.inf),
    "__half": half(65520.0),
    "__nv_bfloat16": half(3.4e38),
    "Byte": enum(1),
    "Level": enum(4),
    "Wide": enum(8),
    "Particle": structure(12),
    "Rgb": structure(3),
    "CUtensorMap": structure(128),
    "__half2": structure(4),
    "complex<float>": complex_number(8, 3.5e38),
    "complex<double>": complex_number(16, math.inf),
    "float2": complex_number(8, 3.5e38),
    "float4": structure(16),
    "void*": pointer("void"),
    "const void*": pointer("void", const=True),
    "Particle*": pointer("Particle"),
    "void(*)(int)": pointer("void(int)"),
    "bool*": pointer("bool", "bool"),
    "char*": pointer("char", "int8", "uint8"),
    "const signed char*": pointer("signed char", "int8", const=True),
    "unsigned char*": pointer("unsigned char", "uint8"),
    "short*": pointer("short", "int16"),
    "const unsigned short*": pointer("unsigned short", "uint16", const=True),
    "int*": pointer("int", "int32"),
    "const int&": pointer("int", "int32", const=True),
    "unsigned int*": pointer("unsigned int", "uint32"),
    "long*": pointer("long", "int64"),
    "unsigned long long*": pointer("unsigned long long", "uint64"),
    "__half*": pointer("__half", "float16"),
    "const __half2*": pointer("__half2", "float16", const=True),
    "__nv_bfloat16*": pointer("__nv_bfloat16", "bfloat16"),
    "float*": pointer("float", "float32"),
    "const float*": pointer("float", "float32", const=True),
    "double*": pointer("double", "float64"),
    "float4*": pointer("float4", "float32"),
    "float2*": pointer("float2", "complex64", "float32"),
    "complex<double>*": pointer("complex<double>", "complex128"),
    "float**": pointer("float*", "uint64", "int64"),
    "int(*)[3]": pointer("int[3]", "int32"),
    "unsigned char[8]": opaque(8),
    "unsigned char[4]": opaque(4),
}

KERNELS = {
    type_: Kernel(
        f"k{number}",
        f"k{number}",
        0,
        (Parameter("v", type_, case.kind, case.size, 0, case.element, type_.startswith("const")),),
    )
    for number, (type_, case) in enumerate(TYPES.items())
}


def ways(kernel: Any, bound: Any) -> Iterator[tuple[str, Callable[[Any], None]]]:
    yield "called", lambda value: kernel(value, grid=1, block=1)
    yield "by name", lambda value: kernel(v=value, grid=1, block=1)
    yield "with all options", lambda value: kernel(value, grid=(1, 1), block=(1,), stream=7, shared=8)
    yield "bound", bound


def tried(module: Any, types: Mapping[str, Case] = TYPES) -> Iterator[str]:
    """Try everything. For each type a line says how many wrong arguments there are, in how many launches they
    were tried, and how many right launches there were; and one begins with ``!`` for all that is amiss."""
    # Warm launches in the default stream take the context that is current.
    with open_driver().device(0).current():
        for type_, case in types.items():
            kernel = module[KERNELS[type_].expression]
            bound = kernel.bind(grid=1, block=1)
            wrong = right = 0
            for warm in ("cold", "warm"):
                for (what, made), (way, launch) in itertools.product(case.wrong.items(), ways(kernel, bound)):
                    wrong += 1
                    if problem := _outcome(launch, made):
                        yield f"! {type_}: {what}, {way}, {warm}: {problem}"
                if warm == "cold":
                    for made, (_, launch) in itertools.product(case.right.values(), ways(kernel, bound)):
                        launch(made())
                        right += 1
            yield f"{type_:24}{len(case.wrong):6}{wrong:6}{right:6}"


def _outcome(launch: Callable[[Any], None], made: Made) -> str:
    """What is amiss with the refusal of a wrong argument; nothing if that is as it should be."""
    try:
        launch(made())
    except ArgumentError as error:
        return "" if str(error).startswith("argument 'v': ") else f"does not name it: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "was launched"
