"""The dtypes of C++ element types, and their alignment."""

from __future__ import annotations

import re
from functools import cache

from cuda_ext.errors import ArgumentError
from cuda_ext.facts.kernels import split_vector

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
_COMPLEX_STRUCTURES = {*_COMPLEX, "cuFloatComplex", "cuDoubleComplex"}
_ADDRESS = 8  # bytes
# Compiled only when needed: looking up a kernel of scalars and their arrays does not need it.
_ARRAY = r"(.*[^])])((?:\[\d+\])+)"  # ``float(*)[3]`` is a pointer
_FORMATS = {**dict.fromkeys("bhilq", "int"), **dict.fromkeys("HILQ", "uint"), **dict.fromkeys("efd", "float")}
_KINDS = {"f": "float", "i": "int", "u": "uint", "c": "complex"}


def check_dtype(dtype: str, element: str | None) -> None:
    """Raise :class:`ArgumentError` if memory of `dtype` does not hold the C++ type `element`.

    An empty `dtype` and an `element` of ``None`` mean unknown types, which pass.
    """
    accepted = accepted_dtypes(element) if element else ()
    if accepted and dtype and dtype not in accepted:
        raise ArgumentError(f"expected {accepted[0]} ({element}), found {dtype}")


@cache
def accepted_dtypes(element: str) -> tuple[str, ...]:
    """Return the names of the dtypes that fit memory of the C++ type `element`; empty if any dtype may fit.

    >>> accepted_dtypes("float"), accepted_dtypes("float2"), accepted_dtypes("Particle")
    (('float32',), ('complex64', 'float32'), ())
    """
    element, _ = element_and_shape(element)
    if element.endswith("*"):
        return ("uint64", "int64")
    item, _, _ = split_vector(element)
    dtypes = _SCALARS.get(item, ())
    name = element.rpartition("::")[2]
    return (_COMPLEX[name], *dtypes) if name in _COMPLEX else dtypes


def dtypes_of(type_: str) -> tuple[str, ...]:
    """Return the names of the dtypes that stand for the C++ type `type_` as a template argument.

    >>> dtypes_of("__half"), dtypes_of("complex<float>"), dtypes_of("float4")
    (('float16',), ('complex64',), ())
    """
    name = type_.rpartition("::")[2]
    return _SCALARS.get(type_) or ((_COMPLEX[name],) if "complex" in name and name in _COMPLEX else ())


def type_of_dtype(dtype: str) -> str:
    """Return the C++ type for the name of a dtype; empty if there is none.

    >>> type_of_dtype("float16"), type_of_dtype("int8"), type_of_dtype("int64"), type_of_dtype("float")
    ('__half', 'signed char', 'long long', '')
    """
    types = [type_ for type_, dtypes in _SCALARS.items() if dtype == dtypes[0] and not type_.endswith("_t")]
    return types[-1] if types else ""


def is_complex(type_: str) -> bool:
    """Return True if complex numbers can be passed for this C++ structure.

    >>> is_complex("float2"), is_complex("cuda::std::complex<double>"), is_complex("float4")
    (True, True, False)
    """
    return type_.rpartition("::")[2] in _COMPLEX_STRUCTURES


def may_hold_address(type_: str, size: int) -> bool:
    """Return True if a structure of this C++ type and size may hold an address, as its members are not known.

    >>> may_hold_address("Particle", 16), may_hold_address("Particle", 4), may_hold_address("float4", 16)
    (True, False, False)
    """
    return size >= _ADDRESS and not is_complex(type_) and not item_dtype(type_)


def item_dtype(element: str) -> str:
    """Return the dtype of the items of the C++ type `element`; empty if there is none.

    >>> item_dtype("float4"), item_dtype("cuda::std::complex<float>"), item_dtype("Particle")
    ('float32', 'complex64', '')
    """
    # ``float2`` is two floats first, though it may hold a complex number.
    item, _, _ = split_vector(element_and_shape(element)[0])
    return next(iter(_SCALARS.get(item) or accepted_dtypes(element)), "")


def element_and_shape(type_: str) -> tuple[str, tuple[int, ...]]:
    """Split an array type into its element type and its extents; ``()`` for other types.

    >>> element_and_shape("float[3][4]"), element_and_shape("float*")
    (('float', (3, 4)), ('float*', ()))
    """
    if not type_.endswith("]"):
        return type_, ()
    match = re.fullmatch(_ARRAY, type_)
    if match is None:
        return type_, ()
    return match[1], tuple(map(int, re.findall(r"\d+", match[2])))


@cache
def alignment(element: str) -> int:
    """Return the alignment of the C++ type `element` on the GPU, in bytes; 1 if it is not known.

    >>> alignment("float"), alignment("float3"), alignment("float4"), alignment("Particle")
    (4, 4, 16, 1)
    """
    element, _ = element_and_shape(element)
    _, count, most = split_vector(element)
    dtype = item_dtype(element)
    if element.startswith("std::complex<"):  # an array of two; those of CUDA are aligned as vectors
        dtype = item_dtype(element.partition("<")[2].removesuffix(">"))
    bits = dtype.removeprefix(dtype.rstrip("0123456789"))
    # Vectors of three have the alignment of one element.
    return min(most, (int(bits) // 8 if bits else 1) * (1 if count == 3 else count))


def dtype_of_format(letter: str) -> str:
    """Return the dtype of a format of the buffer protocol; empty for bytes and formats that are not numbers.

    >>> dtype_of_format("d"), dtype_of_format("<i"), dtype_of_format("B")
    ('float64', 'int32', '')
    """
    plain = letter.lstrip("@=<")
    if plain == "?":
        return "bool"
    if plain in ("B", "c") or plain not in _FORMATS:
        return ""
    # Formats without a prefix, or with "@", have native sizes.
    import struct  # not needed to look up a kernel

    size = struct.calcsize(plain if letter in (plain, f"@{plain}") else f"={plain}")
    return f"{_FORMATS[plain]}{8 * size}"


def dtype_of_typestr(typestr: str) -> str:
    """Return the dtype of a typestr of the array interface, or the typestr itself if it is not a number.

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
