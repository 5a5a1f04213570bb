"""What the properties are tried with: odd texts, and valid data with damage."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from cuda_ext.compiler.products import Library, Signatures
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.candidates import Candidate, Term, Variants
from cuda_ext.facts.kernels import Kernel, Parameter
from cuda_ext.facts.launches import FixedLaunch, HiddenParameter
from cuda_ext.facts.manifest import SCHEMA, Image, Manifest, Unit
from cuda_ext.facts.sources import Options, Source
from cuda_ext.facts.symbols import Symbol
from cuda_ext.toolchain.compile_library import compile_library
from cuda_ext.toolchain.nvfatbin import write_fatbin
from tests.fixtures import device_code

ODD_TEXTS = [
    *("", " ", "\0", "\n", "\x1b[31m", "\x85", "\u2028", "\u202e", "\ud800", "\udcff", "\U0001f600"),
    *("\ufb01", "²"),
    *("..", "../x", "/x", "a/../../x", "a//b", "./a", "C:x", "C:/x", "a\\b", "~", "a/", "x" * 300),
    *("9" * 5000, "1_0", "-0", "nan", "0x10", "*" * 3000, "(" * 3000, "<" * 3000, "{T}", "(*", "(*)", "a::b"),
    *("sm_90", "sm_090", "sm_10000", "compute_90", "lto_90", "sm_90f", "not " * 500, "x.shape[0]", "class"),
]
ODD_VALUES = [
    *(None, True, False, 0, 1, -1, 3, 255, 1 << 15, 1 << 31, (1 << 40) - 1, 1 << 63, 1 << 64, 10**4000),
    *(0.0, 1.5, 1e308, [], {}, [[]], [{}], {"": None}, {"kernel": "k"}, ["a"], [1], [None]),
    *ODD_TEXTS,
]
_SYMBOLS = ":: < > >> ( ) [ ] { } , * & && -> ' \\ \" 3 1'0 '>' ... - + ~ = // /* */ ;"
_WORDS = "const unsigned signed int long short char __int128 float ns k T 0 extern"
_CPP = (*_SYMBOLS.split(), *_WORDS.split(), ", ", " ", "\n", "__global__ void ")

texts = st.one_of(
    st.sampled_from(ODD_TEXTS),
    st.text(st.characters(exclude_categories=()), max_size=12),
    st.lists(st.sampled_from(_CPP), max_size=12).map("".join),
)
expressions = st.lists(st.sampled_from(_CPP), max_size=16).map("".join)
_qualified = st.lists(st.sampled_from(["k", "ns", "x1", "const_iterator"]), min_size=1, max_size=3).map(
    "::".join
)
_simple = st.one_of(
    _qualified,
    st.sampled_from(
        ["int", "unsigned", "long long unsigned", "char signed", "float", "short int", "::ns::T"]
    ),
)
_types = st.recursive(
    _simple,
    lambda inner: st.one_of(
        st.tuples(
            st.sampled_from(["{} const", "{}*", "{} * const", "{} &", "{}&&", "const {}*", "V<{} >"]), inner
        ).map(lambda pair: pair[0].format(pair[1])),
        st.tuples(st.sampled_from(["ns::Map< {},{}>", "{}(*)({})"]), inner, inner).map(
            lambda three: three[0].format(*three[1:])
        ),
    ),
    max_leaves=4,
)
_values = st.sampled_from(
    ["3", "-1", "(3 > 2)", "'>'", "1'000", "sizeof(int)", "&ns::f", "true", "0x1Fu", "- -1"]
)
name_expressions = st.tuples(
    st.sampled_from(["", "::", " "]), _qualified, st.lists(_types | _values, max_size=3).map(" , ".join)
).map(lambda parts: f"{parts[0]}{parts[1]}<{parts[2]}>" if parts[2] else parts[0] + parts[1])
_NUMBERS = [
    0,
    1,
    2,
    4,
    7,
    8,
    63,
    64,
    255,
    1 << 15,
    (1 << 16) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    (1 << 64) - 1,
]


@st.composite
def damaged_bytes(draw: Any, contents: Sequence[bytes], tokens: Sequence[bytes] = (b"",)) -> bytes:
    """One of `contents` with a few changes; `tokens` are put in."""
    content = bytearray(draw(st.sampled_from(contents)))
    for _ in range(draw(st.integers(1, 4))):
        at, length = draw(st.integers(0, len(content))), draw(st.integers(0, 40))
        match draw(st.sampled_from(["number", "number", "token", "bytes", "cut", "drop", "copy"])):
            case "number":
                width = draw(st.sampled_from([1, 2, 4, 8]))
                number = draw(st.sampled_from(_NUMBERS)) % (1 << 8 * width)
                at -= at % width
                content[at : at + width] = number.to_bytes(width, "little")
            case "token":
                content[at : at + draw(st.integers(0, 8))] = draw(st.sampled_from(tokens))
            case "bytes":
                content[at : at + length] = draw(st.binary(max_size=16))
            case "cut":
                del content[at:]
            case "drop":
                del content[at : at + length]
            case "copy":
                begin = draw(st.integers(0, len(content)))
                content[at:at] = content[begin : begin + length] * draw(st.sampled_from([1, 2, 50]))
    return bytes(content)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """All containers in `value`, each with a key or an index."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


@st.composite
def damaged_data(draw: Any, data: Any) -> Any:
    """Plain `data` as of JSON or TOML, with a few changes."""
    changed = copy.deepcopy(data)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(changed))
        if not places:
            break
        container, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["odd", "odd", "text", "other", "remove", "add"])):
            case "odd":
                container[key] = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
            case "text":
                container[key] = draw(texts)
            case "other":
                there, name = draw(st.sampled_from(places))
                container[key] = copy.deepcopy(there[name])
            case "remove":
                del container[key]
            case "add" if isinstance(container, dict):
                container[draw(texts)] = copy.deepcopy(container[key])
            case "add":
                container.append(copy.deepcopy(container[key]))
    return changed


def as_json(data: Any) -> str:
    """`data` as JSON, in which any integer may stand."""
    numbers: dict[str, str] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        if isinstance(value, list):
            return [plain(each) for each in value]
        if isinstance(value, int) and value.bit_length() > 1000:  # too long to be converted
            numbers[mark := f"number {len(numbers)}"] = f"{value:x}"
            return mark
        return value

    text = json.dumps(plain(data))
    for mark, digits in numbers.items():
        text = text.replace(f'"{mark}"', "1" + "0" * len(digits))
    return text


MANIFEST = Manifest(
    schema=SCHEMA,
    module="pkg.kernels",
    compiler="nvrtc",
    version="13.5",
    compress="size",
    units=(
        Unit(
            (Source("device/a.cu", "22" * 32, Options(define={"A": "1"}, raw=("-G",)), ("ns::k<float>",)),),
            (
                Image("sm_80", "a.fatbin", 100, "00" * 32, names={"ns::k<float>": None, "w": "w$1"}),
                Image(
                    "compute_90",
                    "a.fatbin",
                    120,
                    "00" * 32,
                    launches={"gemm n if n > 4": FixedLaunch((128, 1, 1), 64, (2,), scratch=8)},
                ),
            ),
        ),
    ),
    kernels=(
        Kernel(
            "ns::k<float>",
            "_ZN2ns1kIfEEvPKfi",
            0,
            (
                Parameter("x", "const float*", "pointer", 8, 0, element="float", const=True),
                Parameter("n", "int", "integer", 4, 8),
                Parameter("f", "void (*)(int)", "pointer", 8, 16, element="void (int)"),
                Parameter("s", "Pair", "struct", 32, 32, alignment=16),
            ),
        ),
        Kernel("plain", "plain", 0, ()),
        *(
            Kernel(
                f"gemm n if n > {least}",
                f"gemm_{least}",
                0,
                (
                    Parameter("x", "float*", "pointer", 8, 0, element="float"),
                    Parameter("n", "long", "integer", 8, 8),
                ),
                (HiddenParameter(2, 8, "x.shape[0]"), HiddenParameter(3, 8, "scratch")),
                {"BLOCK": "64"},
            )
            for least in (4, 2)
        ),
    ),
    symbols=(Symbol("w", "w", 0, "constant", "float[9]", 36, 4),),
    embedded={"device/a.cu": "33" * 32, "include/a.h": "44" * 32},
    variants=(
        Variants(
            "best",
            (
                Candidate("ns::k<float>", (Term("sm", ">=", 90), Term("n", "==", 0, 4))),
                Candidate("ns::k<float>"),
            ),
        ),
        Variants(
            "gemm",
            (
                Candidate("gemm n if n > 4", (Term("n", ">", 4),)),
                Candidate("gemm n if n > 2", (Term("n", ">", 2),)),
            ),
            True,
        ),
    ),
)

# Compiled by NVRTC, once for all properties.
SOURCE = """
struct Pair { double a; long long b; };
__constant__ float weights[9];
__device__ int counter = 3;
template <class T, int N> __global__ void __launch_bounds__(128, 1) axpy(int n, T a, const T* x, Pair p) {
  __shared__ T part[N];
  part[threadIdx.x] = a * x[n] + weights[n & 7] + p.a;
  counter = part[n];
}
extern "C" __global__ void plain() {}
"""
EXPRESSIONS = ("axpy<float, 32>", "axpy<double, 8>")


def library_plan(architecture: str, **options: Any) -> Any:
    """The plan of a library of :data:`SOURCE`."""
    from cuda_ext.compiler.module_plan import LibraryPlan

    source = device_code.unit(SOURCE, *EXPRESSIONS)
    return LibraryPlan("pkg.kernels", (source,), (Architecture.parse(architecture),), **options)


@functools.cache
def library() -> Library:
    return compile_library(library_plan("sm_90"), device_code.nvrtc())


@functools.cache
def signatures() -> Signatures:
    return device_code.signatures(device_code.unit(SOURCE, *EXPRESSIONS))


@functools.cache
def compiled(architecture: str) -> Any:
    return device_code.image(device_code.unit(SOURCE, *EXPRESSIONS), architecture)


@functools.cache
def fatbins() -> tuple[bytes, ...]:
    images = [compiled(architecture) for architecture in ("sm_80", "sm_90a", "compute_90")]
    pairs = [(image.architecture, image.data) for image in images]
    return tuple(write_fatbin(pairs, compress) for compress in ("none", "speed", "size"))


PTX_TOKENS = [
    *(
        b".visible .entry k(\n",
        b".param .u64 p",
        b".param .b1 p,",
        b".param .b0 p)",
        b".param .u4 q,",
        b")\n{\n}\n",
    ),
    *(
        b".param .align 16 .b8 s[999999999]",
        b".param .pred p",
        b".global .b8 v[999999999999999][999999999999999];",
    ),
    *(
        b"\n.target sm_0000",
        b"\n.target sm_9999a",
        b".global .b1 w;\n",
        b".const .align 4 .v4 .f32 c = {1};\n",
    ),
    *(
        b"/*",
        b"*/",
        b"//",
        b"{",
        b"}",
        b"(",
        b")",
        b"\0",
        b"\xff",
        b".extern .func (",
        b".attribute(",
        b"\n" * 99,
    ),
]
