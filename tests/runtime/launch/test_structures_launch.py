"""Structures by name: assignments check members, and a launch passes their bytes and arrays."""

from __future__ import annotations

import copy
import struct
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuda_ext.facts.candidates import Candidate, Variants
from cuda_ext.facts.constants import Constant
from cuda_ext.facts.kernels import Kernel, Parameter
from cuda_ext.facts.structures import Structure
from cuda_ext.formats.variant_conditions import parse
from cuda_ext.runtime.structure_types import make_class
from tests.fixtures import device_arrays
from tests.fixtures.device_arrays import ArrayAt, Tensor
from tests.fixtures.loader import Run, write_module
from tests.fixtures.under_driver import failure, launches
from tests.runtime.test_large_modules import counting

pytestmark = [pytest.mark.host_compiler, pytest.mark.usefixtures("structures")]
under_driver = pytest.mark.under_driver(kernels="structures.kernels")
in_c_and_in_python = pytest.mark.parametrize("in_c", [True, False])
kernels: Any = None  # in the process of a test, the module
one: Any = {"grid": 1, "block": 1}

WithDriver = Callable[..., Run]


def member(declaration: str, kind: str, size: int, offset: int, *extents: int) -> Parameter:
    type_, _, name = declaration.rpartition(" ")
    element = type_.removeprefix("const ").removesuffix("*") if kind == "pointer" else None
    alignment = 8 if kind == "struct" else 0
    return Parameter(name, type_, kind, size, offset, element, "const" in type_, alignment, extents)  # type: ignore[arg-type]


INNER = Structure(
    "Inner", 16, 8, (member("short a", "integer", 2, 0), member("const float* x", "pointer", 8, 8))
)
PARAMS = Structure(
    "ns::Params<float>",
    144,
    8,
    (
        member("int batch", "integer", 4, 0),
        member("unsigned int stride", "unsigned", 4, 4),
        member("float scale", "float", 4, 8),
        member("bool flag", "bool", 1, 12),
        member("float* y", "pointer", 8, 16),
        member("Inner inner", "struct", 16, 24),
        member("Inner items", "struct", 32, 40, 2),
        member("float w", "float", 16, 72, 2, 2),
        member("float* several", "pointer", 16, 88, 2),
        member("Mode mode", "enum", 4, 104),
        member("__half half", "struct", 2, 108),
        member("unsigned char lambda", "unsigned", 1, 110),
        member("float2 z", "struct", 8, 112),
        member("float4 v", "struct", 16, 120),
        member("char text", "integer", 4, 136, 4),
    ),
)
DOUBLES = PARAMS._replace(name="ns::Params<double>", fields=(member("double d", "float", 8, 0),), size=8)
PLAIN = Structure("Plain", 8, 4, (member("int n", "integer", 4, 0), member("float s", "float", 4, 4)))
OPAQUE = Structure("Bits", 8, 4, obstacle="b is private or a bit-field")
CLASH = PLAIN._replace(name="taken")


CONSTANTS = [
    Constant("Traits<128, 4>::kSmemSize", "int", "40960"),
    Constant("half", "float", "0.5"),
    Constant("tile", "int", "64", elsewhere={"sm_90": "128"}),
]


def taking(name: str, *structures: Structure) -> Kernel:
    parameters = [
        Parameter("pq"[i], s.name, "struct", s.size, 0, alignment=8) for i, s in enumerate(structures)
    ]
    return Kernel(name, name.partition("<")[0], 0, tuple(parameters))


KERNELS = [
    taking("run", PARAMS),
    taking("two", PLAIN, PARAMS),
    taking("both<float>", PARAMS)._replace(lowered="both_f"),
    taking("both<double>", DOUBLES)._replace(lowered="both_d"),
    taking("bits", OPAQUE),
    taking("taken", CLASH),
    *(
        each._replace(parameters=(*each.parameters, member("float* bias", "pointer", 8, 144)))
        for each in (taking(name, PARAMS) for name in ("unbiased", "even", "large", "simple"))
    ),
]
VARIANTS = Variants(
    "choice",
    (
        Candidate("unbiased", parse("bias == null and p.inner.x != null")),
        Candidate("even", parse("p.batch < 0 and p.stride % 2 == 0 and bias % 16 == 0")),
        Candidate("large", parse("p.inner.a >= -2 and p.lambda > 200 and p.y == null")),
        Candidate("simple"),
    ),
)


@pytest.fixture
def structures(with_driver: WithDriver, tmp_path: Path) -> None:
    all_structures = (OPAQUE, INNER, PLAIN, DOUBLES, PARAMS, CLASH)
    for name in ("structures.kernels", "others.kernels"):
        own = [structure._replace(units=(0,)) for structure in all_structures]
        write_module(tmp_path, name, KERNELS, (), own, CONSTANTS, [VARIANTS])


def passed() -> str:
    """Return the bytes of the latest launch, in hexadecimal digits."""
    return launches()[-1].rpartition(" ")[2]


@under_driver
@in_c_and_in_python
def test_a_launch_passes_the_bytes_of_the_members(in_c: bool) -> None:
    p = kernels.ns.Params["float"](batch=-2, stride=3, scale=0.5, flag=True, mode=-1, half=1.5, lambda_=9)
    p.inner = {"a": 5}
    p.items[1].a = 7
    p.w = ((1, 2), np.float32([3, 4]))
    p.z = 1 + 2j
    p.v = (1, 2.0, np.float32(3), 4)
    p.text = b"abc\0"
    expected = bytearray(144)
    struct.pack_into("<iIf?", expected, 0, -2, 3, 0.5, True)
    struct.pack_into("<h", expected, 24, 5)
    struct.pack_into("<h", expected, 56, 7)
    struct.pack_into("<4f", expected, 72, 1, 2, 3, 4)
    struct.pack_into("<iebx2f4f4s", expected, 104, -1, 1.5, 9, 1, 2, 1, 2, 3, 4, b"abc\0")
    kernels.run(p, **one)
    kernels.run(p, **one)
    assert passed() == expected.hex()
    assert (p.batch, p.flag, p.mode, p.half, p.z) == (-2, True, -1, 1.5, (1, 2))
    assert getattr(p, "lambda") == p.lambda_ == 9
    assert p.v == (1, 2, 3, 4)
    assert (p.w, p.items[1].a, p.text) == (((1.0, 2.0), (3.0, 4.0)), 7, (97, 98, 99, 0))


@in_c_and_in_python
def test_a_structure_without_pointers_lies_behind_them(in_c: bool) -> None:
    size = Structure(
        "Size", 8, 4, (member("int rows", "integer", 4, 0), member("int columns", "integer", 4, 4))
    )
    for fields in ((), (member("float* x", "pointer", 8, 0),)):
        outer = Structure("Outer", 16, 8, (*fields, member("Size size", "struct", 8, 8)))
        inner = make_class(size, "m", lambda _: None)
        made = make_class(outer, "m", lambda name: inner if name == "Size" else None)  # noqa: B023
        p = made(size={"rows": 3})
        p.size.columns = 4
        assert p.__content__()[0][8:] == struct.pack("<ii", 3, 4)
        p.size = inner(rows=5)
        assert (p.size.rows, p.size.columns) == (5, 0)


VECTORS = {
    "char1": "i1", "uchar2": "u1", "short3": "i2", "ushort4": "u2", "int2": "i4", "uint3": "u4",
    "long1": "i8", "ulong4_16a": "u8", "longlong2": "i8", "ulonglong4_32a": "u8", "float1": "f4",
    "float2": "f4",
    "float3": "f4", "float4": "f4",
    "double2": "f8", "double3": "f8", "__half2": "f2", "__nv_bfloat162": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize("type_", VECTORS)
def test_vectors_are_tuples_of_numbers(type_: str) -> None:
    count = int(type_.replace("_16a", "").replace("_32a", "").replace("bfloat16", "")[-1])
    items = (0.5, 2.25, 3.0, -4.0) if "f" in VECTORS[type_] else (0, 1, 100, 127)
    numbers = np.array(items[:count], "f4" if "b" in VECTORS[type_] else VECTORS[type_])
    # The upper half of a float is a bfloat16.
    content = b"".join(n.tobytes()[2:] for n in numbers) if "b" in VECTORS[type_] else numbers.tobytes()
    field = Parameter("v", type_, "struct", len(content), 0)
    made = make_class(Structure("S", len(content), 1, (field,)), "m", lambda _: None)
    for given in (items[:count], [*items[:count]], content):
        structure = made(v=given)
        assert structure.__content__()[0] == content
        assert structure.v == items[:count]
    assert failure(made, v=items[: count - 1]) == (
        f"ArgumentError: S.v: expected the {count} numbers of {type_}, found {count - 1}"
    )
    assert "S.v: expected" in failure(made, v=["x"] * count)


@under_driver
@in_c_and_in_python
def test_arrays_of_a_structure_decide_on_the_stream_and_stay_alive(in_c: bool) -> None:
    device_arrays.import_torch({0: 7, 1: 7})
    x, y = Tensor(np.zeros(4, "f4")), Tensor(np.zeros(4, "f4"))
    p = kernels.ns.Params["float"](y=y, several=[x, None])
    p.inner.x = x
    p.items[1].x = 4096
    assert (p.y, p.inner.x, p.several, p.items[1].x) == (y, x, (x, None), 4096)
    for _ in range(2):
        kernels.run(p, **one)
    addresses = [struct.unpack_from("<Q", bytes.fromhex(passed()), at)[0] for at in (16, 32, 64, 88, 96)]
    assert addresses == [y.data_ptr(), x.data_ptr(), 4096, x.data_ptr(), 0]
    assert all(" stream=7 " in line for line in launches())


@under_driver
@in_c_and_in_python
def test_members_by_name_in_place_of_a_structure(in_c: bool) -> None:
    kernels.two({"n": 3, "s": 0.5}, {"batch": 1}, **one)
    kernels.two(namedtuple("T", "s n")(0.5, 3), kernels["ns::Params<float>"](batch=1), **one)
    kernels.two(kernels.Plain(n=3, s=0.5), bytes([1]) + bytes(143), stream=0, **one)
    assert len(launches()) == 3
    assert len(set(launches())) == 1


@under_driver
def test_a_structure_chooses_among_instantiations() -> None:
    both = kernels.both
    both(kernels.ns.Params["double"](d=1), **one)
    both(kernels.ns.Params["float"](batch=1), **one)
    both(kernels.ns.Params["double"](d=1), **one)
    assert [line.split()[1] for line in launches()] == ["both_d", "both_f", "both_d"]


@under_driver
def test_known_structures_are_made_chosen_and_launched_in_c() -> None:
    device_arrays.import_torch({0: 7})
    x, params, both, two = Tensor(np.zeros(4, "f4")), kernels.ns.Params["float"], kernels.both, kernels.two

    rare = params(inner={"a": 1, "x": x}, items=[{"x": x}, kernels.Inner(x=x)], several=[None, x])

    def launch() -> None:
        inner = kernels.Inner(a=1, x=x)
        p = params(batch=3, y=x, scale=0.5, flag=True, inner=inner)
        both(p, **one)
        two({"s": 0.5, "n": 3}, p, **one)
        both(rare, **one)

    launch()
    assert counting(launch) == 0
    assert len({*launches()}) == 3
    for nothing in (params(batch=1), params(inner=kernels.Inner(), y=None, several=[None, None])):
        both(nothing, **one)
        assert counting(lambda: both(nothing, **one)) == 0  # noqa: B023


@under_driver
def test_names_of_structures() -> None:
    assert {"ns", "Plain", "Inner", "run"} <= set(dir(kernels))
    assert "Bits" not in dir(kernels)
    assert kernels["ns::Params<float>"] is kernels.ns.Params["float"] is kernels["struct ns::Params<float>"]
    assert kernels["struct taken"].__name__ == "taken"
    assert kernels["struct taken"] is not kernels.taken
    assert kernels.Plain.__doc__ == "struct Plain { int n; float s; }"
    assert repr(kernels.Plain(n=2)) == "Plain(n=2, s=0.0)"
    p = kernels.Plain(n=2)
    q = copy.copy(p)
    q.n = 3
    assert (p.n, q.n, dir(p)) == (2, 3, ["n", "s"])
    with pytest.raises(TypeError, match="cannot pickle Plain"):
        copy.deepcopy(p).__reduce_ex__(2)


@under_driver
@pytest.mark.usefixtures("messages")
def test_constants_of_the_code() -> None:
    assert kernels.constants["Traits<128,4>::kSmemSize"] == 40960
    assert dict(kernels.constants) == {"Traits<128, 4>::kSmemSize": 40960, "half": 0.5, "tile": 128}
    assert "constants" in dir(kernels)
    kernels.run(kernels.ns.Params["float"](), shared=kernels.constants["Traits<128, 4>::kSmemSize"], **one)
    assert "shared=40960" in launches()[-1]
    print(kernels.constants)
    print(failure(kernels.constants.__getitem__, "Traits<128, 5>::kSmemSize"))


@under_driver
@in_c_and_in_python
@pytest.mark.usefixtures("messages")
def test_what_is_wrong_is_refused_when_it_is_assigned(in_c: bool) -> None:
    import others.kernels

    params, p = kernels.ns.Params["float"], kernels.ns.Params["float"]()
    wrong: list[tuple[str, Any]] = [
        ("batch", 1 << 31),
        ("stride", -1),
        ("scale", "x"),
        ("flag", 2),
        ("y", ArrayAt(4096, dtype="<f8")),
        ("y", np.zeros(4, "f4")),
        ("w", [1, 2, 3]),
        ("w", [[1, 2], [3, "x"]]),
        ("inner", kernels.Plain()),
        ("inner", {"b": 1}),
        ("v", b"123"),
        ("text", "abc"),
        ("bacth", 1),
        ("xyz", 1),
    ]
    for name, value in wrong:
        print(failure(setattr, p, name, value))
        assert failure(lambda: params(**{name: value})) == failure(setattr, p, name, value)  # noqa: B023
    print(failure(kernels.run, others.kernels.ns.Params["float"](), **one))
    print(failure(kernels.two, kernels.Plain(), kernels.Plain(), **one))
    print(failure(kernels.two, {"m": 1}, p, **one))
    print(failure(lambda: kernels.ns.Params(batch=1)))
    print(failure(lambda: kernels.Bits))
    assert launches() == []
    assert not any(p.__content__()[0])


@pytest.mark.under_driver(kernels="structures.kernels", DEVICES="2")
@in_c_and_in_python
@pytest.mark.usefixtures("messages")
def test_arrays_on_several_gpus_are_refused(in_c: bool) -> None:
    device_arrays.import_torch({0: 7, 1: 1007})
    first, second = (Tensor(np.zeros(4, "f4"), device=device) for device in (0, 1))
    p = kernels.ns.Params["float"](y=first)
    p.inner.x = second
    print(failure(kernels.run, p, **one))
    print(failure(kernels.run, p, **one))
    p.inner.x = first
    kernels.run(p, **one)
    p.y = p.inner.x = second
    kernels.run(p, **one)
    assert len(launches()) == 2


@under_driver
@in_c_and_in_python
@pytest.mark.usefixtures("messages")
def test_addresses_that_come_from_no_array_need_a_stream(in_c: bool) -> None:
    device_arrays.import_torch({0: 7, 1: 7})
    kernels.run(kernels.ns.Params["float"](batch=1), **one)
    p = kernels.ns.Params["float"](y=4096)
    print(failure(kernels.run, p, **one))
    kernels.run(p, stream=7, **one)
    kernels.run(p, like=Tensor(np.zeros(4, "f4")), **one)
    kernels.two(kernels.Plain(), kernels.ns.Params["float"](), **one)


@under_driver
@in_c_and_in_python
def test_conditions_of_variants_compare_members_and_null_pointers(in_c: bool) -> None:
    params = kernels.ns.Params["float"]
    x, array = ArrayAt(4096), np.zeros(3, "f4")
    cases: list[tuple[dict[str, Any], Any, str]] = [
        ({"inner": {"x": x}}, None, "unbiased"),
        ({"inner": {"x": x}}, 0, "unbiased"),
        ({"inner": {"x": x}}, x, "simple"),
        ({}, None, "simple"),
        ({"batch": -1, "stride": 4}, None, "even"),
        ({"batch": -1, "stride": 4}, ArrayAt(8), "simple"),
        ({"batch": -1, "stride": 4}, x, "even"),
        ({"batch": -(2**31), "stride": 2**32 - 1}, x, "simple"),
        ({"inner": {"a": -2}, "lambda_": 255}, x, "large"),
        ({"inner": {"a": -3}, "lambda_": 255}, x, "simple"),
        ({"inner": {"a": 9}, "lambda_": 201, "y": x}, x, "simple"),
        ({"inner": {"x": x}}, array, "simple"),  # a copy of the array is not null
        ({"batch": -1}, array, "even"),
        ({"inner": {"x": x}}, np.zeros(0, "f4"), "unbiased"),
    ]
    for members, bias, _ in cases:
        inner = kernels.Inner(**members.pop("inner", {}))
        p = params(inner=inner, **members)
        for _ in range(2):
            kernels.choice(p, bias, stream=0, **one)
        content = bytes.fromhex(launches()[-1].split()[-2])
        for _ in range(2):
            kernels.choice(content, bias, stream=0, **one)
    launched = [each.split()[1] for each in launches()]
    assert launched == [name for _, _, name in cases for _ in range(4)]
    plain = params(batch=-1)
    assert not in_c or counting(lambda: kernels.choice(plain, None, stream=0, **one)) == 0
