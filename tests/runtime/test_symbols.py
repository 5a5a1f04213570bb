"""Variables in device memory: copies from and to every kind of memory, their GPU and their order."""

from __future__ import annotations

import array
import ctypes
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from cuda_ext.facts.symbols import Symbol
from cuda_ext.runtime.arrays.dtypes import element_and_shape
from cuda_ext.runtime.driver.driver import open_driver
from tests.fixtures.device_arrays import Array, Buffer, Exchanged, Lent, Tensor
from tests.fixtures.loader import Run, write_module
from tests.fixtures.under_driver import calls, failure

pytestmark = [pytest.mark.host_compiler, pytest.mark.usefixtures("variables")]
under_driver = pytest.mark.under_driver(kernels="variables.kernels")
kernels: Any = None  # in the process of a test, the module

TYPES = {
    "matrix": ("float[3][3]", 36),
    "count": ("int", 4),
    "byte": ("unsigned char", 1),
    "flag": ("bool", 1),
    "half": ("__half", 2),
    "brain": ("__nv_bfloat16", 2),
    "brains": ("__nv_bfloat16[2]", 4),
    "wave": ("complex<float>", 8),
    "quads": ("float4[2]", 32),
    "pair": ("float2", 8),
    "one": ("int[1]", 4),
    "particles": ("Particle[2]", 16),
    "level": ("Level", 2),
    "p": ("float*", 8),
    "rows": ("float(*)[3]", 8),
}
SYMBOLS = tuple(Symbol(name, name, 0, "device", *type_) for name, type_ in TYPES.items())
NINE = np.arange(9, dtype="f4").reshape(3, 3)


@pytest.fixture
def variables(with_driver: Callable[..., Run], tmp_path: Path) -> None:
    write_module(tmp_path, "variables.kernels", symbols=SYMBOLS)


def print_failures(copy: Callable[..., Any], *values: object) -> None:
    for value in values:
        print(failure(copy, value))


@pytest.mark.parametrize(
    "type_", ["Foo<void(int)>[2]", "float[2]", "Foo<3>[1][2]", "float(*)[3]", "int(*[4])(int)"]
)
def test_types_are_split_into_element_and_shape(type_: str) -> None:
    element, shape = element_and_shape(type_)
    assert element + "".join(f"[{extent}]" for extent in shape) == type_
    assert (shape == ()) == ("(*" in type_)


@under_driver
@pytest.mark.usefixtures("messages")
def test_properties_of_a_variable_need_no_driver() -> None:
    for name in ("matrix", "count", "half", "wave", "quads", "particles", "level", "p", "rows"):
        symbol = getattr(kernels, name)
        print(symbol, symbol.element, symbol.shape, repr(symbol.dtype), symbol.size)
    assert calls() == []


@under_driver
def test_every_kind_of_host_memory_is_copied() -> None:
    matrix, particles = kernels.matrix, kernels.particles
    numbers = (ctypes.c_float * 9)(*NINE.ravel())
    copies = NINE.tobytes(), bytearray(NINE), array.array("f", NINE.ravel()), numbers, memoryview(NINE)
    for source in (NINE, *copies):
        matrix.copy_from(bytes(36))
        matrix.copy_from(source)
        assert matrix.tobytes() == NINE.tobytes()
    empty = np.empty((3, 3), "f4"), bytearray(36), array.array("f", bytes(36)), (ctypes.c_float * 9)()
    for destination in empty:
        matrix.copy_to(destination)
        assert bytes(destination) == NINE.tobytes()

    class Particle(ctypes.Structure):
        _fields_ = (("x", ctypes.c_float), ("i", ctypes.c_int))

    pairs = np.array([(1, 2), (3, 4)], "f4,i4")
    structures = (Particle * 2)(Particle(1, 2), Particle(3, 4))
    for source in (pairs, structures, struct.pack("<fifi", 1, 2, 3, 4)):
        particles.copy_from(bytes(16))
        particles.copy_from(source)
        assert (particles.numpy(pairs.dtype) == pairs).all()
    kernels.level.copy_from(np.int16(-2))
    assert kernels.level.tobytes() == b"\xfe\xff"


@under_driver
@pytest.mark.usefixtures("messages")
def test_numbers_fill_variables_that_are_one() -> None:
    k = kernels
    right = (k.count, -3), (k.count, np.int64(7)), (k.byte, 255), (k.flag, True), (k.half, 1.5)
    for symbol, value in (*right, (k.half, np.float64(0.5)), (k.wave, 1 + 2j), (k.wave, 2)):
        symbol.copy_from(value)
        assert symbol.numpy() == value, symbol
        assert symbol.numpy().shape == ()
    k.brain.copy_from(1.5)
    assert k.brain.tobytes() == b"\xc0\x3f"
    print_failures(k.count.copy_from, 1 << 31, 1.5)
    print_failures(k.byte.copy_from, -1)
    print_failures(k.half.copy_from, 1e6, 1j)
    print_failures(k.brain.copy_from, 1j)
    print_failures(k.pair.copy_from, 1.5, 1j)
    for symbol in (k.level, k.p, k.matrix, k.one):
        print_failures(symbol.copy_from, 1)


@under_driver
@pytest.mark.usefixtures("messages")
def test_numpy_arrays_have_shape_and_type() -> None:
    matrix, quads, particles, level, brains = (
        getattr(kernels, name) for name in ("matrix", "quads", "particles", "level", "brains")
    )
    quads.copy_from(np.arange(8, dtype="f4"))
    arrays = matrix.numpy(), quads.numpy(), quads.numpy("complex64"), particles.numpy("f4,i4")
    for each in (*arrays, level.numpy("i2"), brains.numpy("u2"), matrix.numpy("u1")):
        print(each.dtype, each.shape)
        assert each.flags.writeable
    assert quads.numpy()[1].tolist() == [4, 5, 6, 7]
    print(failure(particles.numpy))
    print(failure(brains.numpy))
    print_failures(level.numpy, "i4", "no such")


@under_driver
def test_arrays_of_every_library_are_copied() -> None:
    for made in (Array, Tensor, Buffer, Lent, Exchanged):
        kernels.matrix.copy_from(bytes(36))
        kernels.matrix.copy_from(made(NINE))
        assert kernels.matrix.tobytes() == NINE.tobytes()
        there = np.zeros((3, 3), "f4")
        kernels.matrix.copy_to(made(there))
        assert np.array_equal(there, NINE)
    # The stream of the library, where that is known.
    expected = ["cuMemcpyAsync 36 stream=0"] * 8 + ["cuMemcpyAsync 36 stream=7"] * 2
    assert calls("cuMemcpyAsync") == expected


@under_driver
@pytest.mark.usefixtures("messages")
def test_unfit_values_are_refused() -> None:
    refuse, with_gaps = kernels.matrix.copy_from, np.zeros((3, 6), "f4")[:, ::2]
    for made in (Array, Tensor, Lent, Exchanged):
        print_failures(refuse, *map(made, (NINE.T, with_gaps, np.zeros((3, 3)), np.zeros(8, "f4"))))
    print_failures(refuse, Buffer(np.zeros(35, "u1")), Buffer(None))
    print_failures(refuse, NINE.T, np.zeros(18, "f4")[::2], np.zeros(9, "i4"), array.array("i", bytes(36)))
    print_failures(refuse, bytes(35), [0.0] * 9, "nine", Tensor(NINE, device=-1))
    print_failures(kernels.matrix.copy_to, bytes(36), Array(NINE, read_only=True), Lent(NINE, flags=1))
    assert calls("cuMemcpy") == []


@under_driver
def test_copies_are_ordered_and_synchronized() -> None:
    nine = np.zeros((3, 3), "f4")
    kernels.matrix.copy_from(nine)
    kernels.matrix.copy_from(Exchanged(nine))
    kernels.matrix.copy_to(nine, stream=9)
    kernels.matrix.copy_from(Exchanged(nine), stream=9)
    assert [call for call in calls() if call.startswith(("cuMemcpy", "cuCtxSync", "cuStreamSync"))] == [
        "cuCtxSynchronize",
        "cuMemcpyHtoDAsync 36 stream=0",
        "cuStreamSynchronize 0",
        "cuMemcpyAsync 36 stream=7",
        "cuStreamSynchronize 7",
        "cuMemcpyDtoHAsync 36 stream=9",
        "cuMemcpyAsync 36 stream=9",
    ]


@under_driver.with_args(capturing=9)
@pytest.mark.usefixtures("messages")
def test_a_number_is_not_recorded_in_a_graph() -> None:
    print(failure(kernels.count.copy_from, 3, stream=9))
    kernels.count.copy_from(np.array(3, "i4"), stream=9)
    kernels.count.copy_from(3, stream=8)
    assert calls("cuMemcpy") == ["cuMemcpyHtoDAsync 4 stream=9", "cuMemcpyHtoDAsync 4 stream=8"]


@under_driver.with_args(devices=3)
@pytest.mark.usefixtures("messages")
def test_every_gpu_has_its_own() -> None:
    count = kernels.count
    for device in range(3):
        count.copy_from(10 * device, device=device)
    assert [count.numpy(device=device) for device in range(3)] == [0, 10, 20]
    assert count.numpy() == 0
    addresses = [count.address_on(device) for device in range(3)]
    assert len(set(addresses)) == 3
    assert count.address == addresses[0]
    with open_driver().device(2).current():
        assert count.address == addresses[2]
        assert count.numpy() == 20
    assert int(driver.cuCtxGetCurrent()[1]) == 0

    found = np.zeros((), "i4")
    count.copy_to(Tensor(found, device=1))
    assert found == 10
    count.copy_to(found, stream=2009)
    assert found == 20
    count.copy_to(Array(found))  # which does not say where it is: the driver is asked
    assert found == 0
    print(failure(count.copy_from, Tensor(found, device=1), device=0))
    print(failure(count.copy_to, Array(found), device=2))
    for wrong in (3, -1, True, "cuda:0"):
        print(failure(count.copy_from, 3, device=wrong))
    print(failure(count.address_on, 3))
    assert calls().count("cuLibraryLoadData") == 1


@pytest.mark.under_driver
def test_symbols_of_the_sample_are_looked_up_by_name() -> None:
    kernels.ns.table.copy_from(b"abcd")
    for symbol in (kernels["ns::table"], pickle.loads(pickle.dumps(kernels.ns.table))):
        assert symbol.tobytes() == b"abcd"


@pytest.fixture
def larger_weights(variables: None, tmp_path: Path) -> None:
    manifest = tmp_path / "sample" / "kernels" / "manifest.json"
    text = manifest.read_text()
    assert text.count('"size": 36') == 1
    manifest.write_text(text.replace('"size": 36', '"size": 40'))


@pytest.mark.under_driver
@pytest.mark.usefixtures("larger_weights", "messages")
def test_a_variable_that_is_smaller_than_the_manifest_says_is_not_copied() -> None:
    print(failure(kernels.weights.tobytes))
