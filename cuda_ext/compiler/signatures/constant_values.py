"""Values of constants of the code, as the compiler states them in lowered names of probes."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Mapping

from cuda_ext.compiler.signatures.layouts import append_declarations
from cuda_ext.facts.constants import Constant
from cuda_ext.formats.lowered_names.lowered_types import LoweredType, LoweredValue
from cuda_ext.formats.lowered_names.mangling import read_lowered_name

_FIRST_LINE = 2_000_000  # behind those of other declarations
# An enumeration has no type that a template of a kernel takes, if it has no name: so probes have no types.
_DECLARATIONS = """
namespace cuda_ext_probe {
template <class T> struct plain { using type = T; };
template <class T> struct plain<const T> : plain<T> {};
template <class T> struct plain<volatile T> : plain<T> {};
template <class T> struct plain<const volatile T> : plain<T> {};
template <class T> struct plain<T&> : plain<T> {};
template <class T> struct plain<T&&> : plain<T> {};
template <class T, bool is_enum> struct underlying { using type = T; };
template <class T> struct underlying<T, true> { using type = __underlying_type(T); };
template <class T> struct kind_of { static constexpr int value = (T)-1 < (T)0 ? 'i' : 'u'; };
template <> struct kind_of<bool> { static constexpr int value = 'b'; };
template <> struct kind_of<float> { static constexpr int value = 'f'; };
template <> struct kind_of<double> { static constexpr int value = 'f'; };
using bits = unsigned long long;
__device__ constexpr bits bits_of(double value) {  // NVRTC 12.0 has no __builtin_bit_cast
  if (value != value) return 0x7ffull << 52 | 1ull << 51;
  bits sign = value < 0 ? 1ull << 63 : 0, exponent = 1023;
  if (value < 0) value = -value;
  if (value > 1.7976931348623157e308) return sign | 0x7ffull << 52;
  for (; value >= 2; exponent++) value *= 0.5;
  for (; value < 1 && exponent > 1; exponent--) value *= 2;
  if (value < 1) return sign | (bits)(value * 4503599627370496.0);  // -0.0 becomes 0.0
  return sign | exponent << 52 | (bits)((value - 1) * 4503599627370496.0);
}
__device__ constexpr bits bits_of(float value) { return bits_of((double)value); }
template <class T> __device__ constexpr bits bits_of(T value) { return (bits)value; }
template <int kind, int size, unsigned long long bits> struct number_of;
template <class T, unsigned long long bits> using constant_of =
    number_of<kind_of<typename underlying<T, __is_enum(T)>::type>::value, sizeof(T), bits>;
}
"""
_TYPES = {
    ("b", 1): "bool",
    ("f", 4): "float",
    ("f", 8): "double",
    ("i", 1): "signed char",
    ("i", 2): "short",
    ("i", 4): "int",
    ("i", 8): "long long",
    ("u", 1): "unsigned char",
    ("u", 2): "unsigned short",
    ("u", 4): "unsigned int",
    ("u", 8): "unsigned long long",
}


def append_constants(source: bytes) -> bytes:
    """Append the declarations that probes of constants need."""
    return append_declarations(source, _FIRST_LINE, _DECLARATIONS)


def constant_type(expression: str) -> str:
    """Return the type of the probe that has the value of `expression`."""
    type_ = f"cuda_ext_probe::plain<decltype({expression})>::type"
    return f"cuda_ext_probe::constant_of<{type_}, cuda_ext_probe::bits_of({expression})>"


def read_constant(expression: str, lowered: str) -> Constant | None:
    """Read the value of `expression` from the lowered name of its probe."""
    name = read_lowered_name(lowered)
    answer = name.arguments[0] if name and name.arguments else None
    match answer.arguments if isinstance(answer, LoweredType) else ():
        case (LoweredValue(number=int(kind)), LoweredValue(number=int(size)), LoweredValue(number=int(bits))):
            if type_ := _TYPES.get((chr(kind), size)):
                return Constant(expression, type_, _spell(chr(kind), bits))
    return None


def explain_rejection(expression: str, log: str) -> Constant:
    """Describe the constant `expression`, which the compiler with this `log` rejected."""
    own = next((block for block in log.split("\n\n") if constant_type(expression) in block), "")
    reason = re.search(r"error: (.*)", own)
    return Constant(
        expression, "", reason[1] if reason else "its value is not a number known at compile time"
    )


def _spell(kind: str, bits: int) -> str:
    if kind == "b":
        return str(bool(bits))
    if kind == "f":
        return repr(struct.unpack("<d", bits.to_bytes(8, "little"))[0])
    if kind == "i" and bits >> 63:
        return str(bits - (1 << 64))
    return str(bits)


def unite_constants(found: Iterable[tuple[str, Mapping[str, Constant]]]) -> dict[str, Constant]:
    """Unite the constants of images, given by architecture; the value of most images comes first."""
    by_name: dict[str, dict[str, Constant]] = {}
    united: dict[str, Constant] = {}
    for architecture, constants in found:
        for name, constant in constants.items():
            united.setdefault(name, constant)
            if constant.type:
                by_name.setdefault(name, {})[architecture] = constant
    for name, constants in by_name.items():
        [(value, _)] = Counter(constant.value for constant in constants.values()).most_common(1)
        elsewhere = {a: constant.value for a, constant in constants.items() if constant.value != value}
        first = next(constant for constant in constants.values() if constant.value == value)
        united[name] = first._replace(elsewhere=elsewhere)
    return united
