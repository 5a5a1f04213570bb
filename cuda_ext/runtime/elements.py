"""What an array may hold whose address is passed for a pointer: dtypes for C++ element types."""

from __future__ import annotations

import re
from functools import cache

from cuda_ext.errors import ArgumentError

__all__ = ["accepted_dtypes", "check_dtype", "dtype_of_typestr"]

_SCALARS = {
    "bool": ("bool",),
    "char": ("int8", "uint8"),
    "signed char": ("int8",),
    "unsigned char": ("uint8",),
    "char8_t": ("uint8",),
    "short": ("int16",),
    "unsigned short": ("uint16",),
    "char16_t": ("uint16",),
    "int": ("int32",),
    "unsigned int": ("uint32",),
    "char32_t": ("uint32",),
    "long": ("int64",),  # except in images that were compiled under Windows
    "unsigned long": ("uint64",),
    "long long": ("int64",),
    "unsigned long long": ("uint64",),
    "__half": ("float16",),
    "__nv_bfloat16": ("bfloat16", "V2"),  # numpy has no name for it
    "float": ("float32",),
    "double": ("float64",),
}
_COMPLEX = {
    "float2": "complex64",
    "double2": "complex128",
    "complex<float>": "complex64",
    "complex<double>": "complex128",
}
_HALF_VECTORS = {"__half2": "__half", "__nv_bfloat162": "__nv_bfloat16"}
_VECTOR = re.compile(r"(u?)(char|short|int|long|longlong|float|double)[1-4]")
_LONGLONG = {"longlong": "long long"}
_KINDS = {"f": "float", "i": "int", "u": "uint", "c": "complex"}


def check_dtype(dtype: str, element: str | None) -> None:
    """Raise :class:`ArgumentError` if memory of `dtype` is known not to hold the C++ type `element`.

    Both may be unknown: an empty `dtype`, an `element` of ``None``.
    """
    accepted = accepted_dtypes(element) if element else ()
    if accepted and dtype and dtype not in accepted:
        raise ArgumentError(f"expected {accepted[0]} ({element}), found {dtype}")


@cache
def accepted_dtypes(element: str) -> tuple[str, ...]:
    """The names of the dtypes that fit memory of the C++ type `element`; empty if any may.

    >>> accepted_dtypes("float"), accepted_dtypes("float2"), accepted_dtypes("Particle")
    (('float32',), ('complex64', 'float32'), ())
    """
    element = re.sub(r"(\[\d+\])+$", "", element)
    if element.endswith("*"):
        return ("uint64", "int64")
    if vector := _VECTOR.fullmatch(element):
        scalar = _LONGLONG.get(vector[2], vector[2])
        signed = "signed char" if scalar == "char" else scalar
        dtypes = _SCALARS[f"unsigned {scalar}" if vector[1] else signed]
    else:
        dtypes = _SCALARS.get(_HALF_VECTORS.get(element, element), ())
    return (_COMPLEX[element], *dtypes) if element in _COMPLEX else dtypes


def dtype_of_typestr(typestr: str) -> str:
    """The dtype's name for a typestr of the array interface; the typestr itself for what is no number.

    >>> dtype_of_typestr("<f4"), dtype_of_typestr("|b1"), dtype_of_typestr(">f4")
    ('float32', 'bool', '>f4')
    """
    plain = typestr.lstrip("<|=")
    kind, size = plain[:1], plain[1:]
    if kind == "b":
        return "bool"
    if kind in _KINDS and size.isdigit():
        return f"{_KINDS[kind]}{8 * int(size)}"
    return plain
