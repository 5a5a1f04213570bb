"""Variables in device memory: copies from and to every kind of memory, their GPU and their order."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ext.facts.kernels import Symbol
from cuda_ext.runtime.arrays.dtypes import element_and_shape
from tests.fixtures.loader import Run, write_module
from tests.fixtures.messages import Messages

WithDriver = Callable[..., Run]
pytestmark = pytest.mark.host_compiler

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


def wrong(name: str, problem: str) -> str:
    return f"ArgumentError: symbol {name!r} ({TYPES[name][0]}): {problem}"


@pytest.fixture
def variables(with_driver: WithDriver, tmp_path: Path) -> WithDriver:
    """Runs a script with the symbols above in `v`, and with substitutes for the arrays of libraries."""
    write_module(tmp_path, "variables.kernels", symbols=SYMBOLS)
    prelude = """
import numpy
from tests.fixtures.device_arrays import Array, Buffer, Exchanged, Lent, Tensor
from variables import kernels as v

"""

    def run(script: str, **settings: str | int) -> Run:
        return with_driver(prelude + textwrap.dedent(script), **settings)

    return run


@pytest.mark.parametrize(
    "type_", ["Foo<void(int)>[2]", "float[2]", "Foo<3>[1][2]", "float(*)[3]", "int(*[4])(int)"]
)
def test_types_are_split_into_element_and_shape(type_: str) -> None:
    element, shape = element_and_shape(type_)
    assert element + "".join(f"[{extent}]" for extent in shape) == type_
    assert (shape == ()) == ("(*" in type_)


def test_properties_of_a_variable_need_no_driver(variables: WithDriver, messages: Messages) -> None:
    run = variables(
        """
        for name in ("matrix", "count", "half", "wave", "quads", "particles", "level", "p", "rows"):
            symbol = getattr(v, name)
            print(symbol, symbol.element, symbol.shape, repr(symbol.dtype), symbol.size)
        """
    )
    messages(*run.output)
    assert run.calls == []


def test_every_kind_of_host_memory_is_copied(variables: WithDriver) -> None:
    run = variables(
        """
        import array, ctypes, struct
        nine = numpy.arange(9, dtype="f4").reshape(3, 3)
        for source in (nine, nine.tobytes(), bytearray(nine), array.array("f", nine.ravel()),
                       (ctypes.c_float * 9)(*nine.ravel()), memoryview(nine)):
            v.matrix.copy_from(bytes(36))
            v.matrix.copy_from(source)
            assert v.matrix.tobytes() == nine.tobytes()
        for destination in (numpy.empty((3, 3), "f4"), bytearray(36), array.array("f", bytes(36)),
                            (ctypes.c_float * 9)()):
            v.matrix.copy_to(destination)
            assert bytes(destination) == nine.tobytes()

        class Particle(ctypes.Structure):
            _fields_ = (("x", ctypes.c_float), ("i", ctypes.c_int))

        pairs = numpy.array([(1, 2), (3, 4)], "f4,i4")
        structures = (Particle * 2)(Particle(1, 2), Particle(3, 4))
        for source in (pairs, structures, struct.pack("<fifi", 1, 2, 3, 4)):
            v.particles.copy_from(bytes(16))
            v.particles.copy_from(source)
            assert (v.particles.numpy(pairs.dtype) == pairs).all()
        v.level.copy_from(numpy.int16(-2))
        assert v.level.tobytes() == b"\\xfe\\xff"
        """
    )
    assert run.output == []


def test_numbers_fill_variables_that_are_one(variables: WithDriver) -> None:
    run = variables(
        """
        for symbol, value in ((v.count, -3), (v.count, numpy.int64(7)), (v.byte, 255), (v.flag, True),
                              (v.half, 1.5), (v.half, numpy.float64(0.5)), (v.wave, 1 + 2j), (v.wave, 2)):
            symbol.copy_from(value)
            assert symbol.numpy() == value, symbol
            assert symbol.numpy().shape == ()
        v.brain.copy_from(1.5)
        assert v.brain.tobytes() == b"\\xc0\\x3f"
        caught(v.count.copy_from, 1 << 31)
        caught(v.count.copy_from, 1.5)
        caught(v.byte.copy_from, -1)
        caught(v.half.copy_from, 1e6)
        caught(v.half.copy_from, 1j)
        caught(v.brain.copy_from, 1j)
        caught(v.level.copy_from, 1)
        caught(v.p.copy_from, 1)
        caught(v.matrix.copy_from, 1)
        caught(v.pair.copy_from, 1.5)
        caught(v.pair.copy_from, 1j)
        caught(v.one.copy_from, 1)
        """
    )
    assert run.output == [
        wrong("count", "expected int from -2147483648 to 2147483647, found 2147483648"),
        wrong("count", "expected int, found 1.5"),
        wrong("byte", "expected unsigned char from 0 to 255, found -1"),
        wrong("half", "1000000.0 is out of the range of __half"),
        wrong(
            "half",
            "expected the 2 bytes of __half (bytes, a ctypes.Structure or a numpy scalar), found 1j",
        ),
        wrong(
            "brain",
            "expected the 2 bytes of __nv_bfloat16 (bytes, a ctypes.Structure or a numpy scalar), found 1j",
        ),
        wrong("level", "expected memory, of the host or of a GPU, found 1"),
        wrong("p", "expected memory, of the host or of a GPU, found 1"),
        wrong("matrix", "expected memory, of the host or of a GPU, found 1"),
        wrong("pair", "expected memory, of the host or of a GPU, found 1.5"),
        wrong("pair", "expected memory, of the host or of a GPU, found 1j"),
        wrong("one", "expected memory, of the host or of a GPU, found 1"),
    ]


def test_numpy_arrays_have_shape_and_type(variables: WithDriver) -> None:
    run = variables(
        """
        v.quads.copy_from(numpy.arange(8, dtype="f4"))
        for array in (v.matrix.numpy(), v.quads.numpy(), v.quads.numpy("complex64"),
                      v.particles.numpy("f4,i4"), v.level.numpy("i2"), v.brains.numpy("u2"),
                      v.matrix.numpy("u1")):
            print(array.dtype, array.shape, array.flags.writeable)
        print(v.quads.numpy()[1])
        caught(v.particles.numpy)
        caught(v.brains.numpy)
        caught(v.level.numpy, "i4")
        caught(v.level.numpy, "no such")
        """
    )
    assert run.output == [
        "float32 (3, 3) True",
        "float32 (2, 4) True",
        "complex64 (2, 2) True",
        "[('f0', '<f4'), ('f1', '<i4')] (2,) True",
        "int16 () True",
        "uint16 (2,) True",
        "uint8 (3, 3, 4) True",
        "[4. 5. 6. 7.]",
        wrong("particles", "numpy does not know Particle; give a dtype of 8 bytes"),
        wrong("brains", "numpy does not know __nv_bfloat16; give a dtype of 2 bytes"),
        wrong("level", "expected a dtype of 2 bytes, found int32 of 4"),
        wrong("level", "numpy does not know 'no such'; give a dtype of 2 bytes"),
    ]


def test_arrays_of_every_library_are_copied(variables: WithDriver) -> None:
    run = variables(
        """
        nine = numpy.arange(9, dtype="f4").reshape(3, 3)
        for made in (Array, Tensor, Buffer, Lent, Exchanged):
            v.matrix.copy_from(bytes(36))
            v.matrix.copy_from(made(nine))
            assert v.matrix.tobytes() == nine.tobytes()
            there = numpy.zeros((3, 3), "f4")
            v.matrix.copy_to(made(there))
            assert (there == nine).all()
        """
    )
    assert run.output == []
    between = [call for call in run.calls if call.startswith("cuMemcpyAsync")]
    # The stream of the library, where that is known.
    assert between == ["cuMemcpyAsync 36 stream=0"] * 8 + ["cuMemcpyAsync 36 stream=7"] * 2


def test_unfit_values_are_refused(variables: WithDriver) -> None:
    run = variables(
        """
        import array
        nine = numpy.zeros((3, 3), "f4")
        for made in (Array, Tensor, Lent, Exchanged):
            caught(v.matrix.copy_from, made(nine.T))
            caught(v.matrix.copy_from, made(numpy.zeros((3, 6), "f4")[:, ::2]))
            caught(v.matrix.copy_from, made(numpy.zeros((3, 3), "f8")))
            caught(v.matrix.copy_from, made(numpy.zeros(8, "f4")))
        caught(v.matrix.copy_from, Buffer(numpy.zeros(35, "u1")))
        caught(v.matrix.copy_from, Buffer(None))
        caught(v.matrix.copy_from, nine.T)
        caught(v.matrix.copy_from, numpy.zeros(18, "f4")[::2])
        caught(v.matrix.copy_from, numpy.zeros(9, "i4"))
        caught(v.matrix.copy_from, array.array("i", bytes(36)))
        caught(v.matrix.copy_from, bytes(35))
        caught(v.matrix.copy_from, [0.0] * 9)
        caught(v.matrix.copy_from, "nine")
        caught(v.matrix.copy_from, Tensor(nine, device=-1))
        caught(v.matrix.copy_to, bytes(36))
        caught(v.matrix.copy_to, Array(nine, read_only=True))
        caught(v.matrix.copy_to, Lent(nine, flags=1))
        """
    )
    gaps = "expected a contiguous array, found one with gaps"
    problems = [gaps, gaps, "expected float32 (float[3][3]), found float64", "expected 36 bytes, found 32"]
    read_only = "expected memory that may be written, found it read-only"
    assert run.output == [
        wrong("matrix", problem)
        for problem in (
            *4 * problems,
            "expected 36 bytes, found 35",
            "the memory of this buffer has been freed; keep it until the kernel has run",
            *(gaps,) * 2,
            *("expected float32 (float[3][3]), found int32",) * 2,
            "expected 36 bytes, found 35",
            "expected memory, of the host or of a GPU, found list",
            "expected memory, of the host or of a GPU, found 'nine'",
            'expected device memory, found a tensor on cpu; move it with .to("cuda")',
            *(read_only,) * 3,
        )
    ]
    assert not any(call.startswith("cuMemcpy") for call in run.calls)


def test_copies_are_ordered_and_synchronized(variables: WithDriver) -> None:
    run = variables(
        """
        nine = numpy.zeros((3, 3), "f4")
        v.matrix.copy_from(nine)
        v.matrix.copy_from(Exchanged(nine))
        v.matrix.copy_to(nine, stream=9)
        v.matrix.copy_from(Exchanged(nine), stream=9)
        """
    )
    copies = [call for call in run.calls if call.startswith(("cuMemcpy", "cuCtxSync", "cuStreamSync"))]
    assert copies == [
        "cuCtxSynchronize",
        "cuMemcpyHtoDAsync 36 stream=0",
        "cuStreamSynchronize 0",
        "cuMemcpyAsync 36 stream=7",
        "cuStreamSynchronize 7",
        "cuMemcpyDtoHAsync 36 stream=9",
        "cuMemcpyAsync 36 stream=9",
    ]


def test_a_number_is_not_recorded_in_a_graph(variables: WithDriver) -> None:
    run = variables(
        """
        caught(v.count.copy_from, 3, stream=9)
        v.count.copy_from(numpy.array(3, "i4"), stream=9)
        v.count.copy_from(3, stream=8)
        """,
        capturing=9,
    )
    assert run.output == [
        wrong("count", "a graph reads its source when it runs; expected memory, found a number")
    ]
    assert [call for call in run.calls if call.startswith("cuMemcpy")] == [
        "cuMemcpyHtoDAsync 4 stream=9",
        "cuMemcpyHtoDAsync 4 stream=8",
    ]


def test_every_gpu_has_its_own(variables: WithDriver) -> None:
    run = variables(
        """
        from cuda.bindings import driver
        from cuda_ext.runtime.driver.driver import open_driver
        for device in range(3):
            v.count.copy_from(10 * device, device=device)
        print([int(v.count.numpy(device=device)) for device in range(3)], v.count.numpy())
        addresses = [v.count.address_on(device) for device in range(3)]
        print(len(set(addresses)), v.count.address == addresses[0])
        with open_driver().device(2).current():
            print(v.count.address == addresses[2], v.count.numpy())
        print(int(driver.cuCtxGetCurrent()[1]))

        found = numpy.zeros((), "i4")
        v.count.copy_to(Tensor(found, device=1))
        print(found)
        v.count.copy_to(found, stream=2009)
        print(found)
        v.count.copy_to(Array(found))  # which does not say where it is: the driver is asked
        print(found)
        caught(v.count.copy_from, Tensor(found, device=1), device=0)
        caught(v.count.copy_to, Array(found), device=2)
        for wrong in (3, -1, True, "cuda:0"):
            caught(v.count.copy_from, 3, device=wrong)
        caught(v.count.address_on, 3)
        """,
        devices=3,
    )
    where = wrong("count", "")
    assert run.output == [
        "[0, 10, 20] 0",
        "3 True",
        "True 20",
        "0",
        "10",
        "20",
        "0",
        f"{where}expected an array on GPU 0, found one on GPU 1",
        f"{where}expected an array on GPU 2, found one on GPU 0",
        *(f"{where}device: expected a number below 3, found {wrong!r}" for wrong in (3, -1, True, "cuda:0")),
        f"{where}device: expected a number below 3, found 3",
    ]
    assert run.calls.count("cuLibraryLoadData") == 1


def test_symbols_of_the_sample_are_looked_up_by_name(with_driver: WithDriver) -> None:
    run = with_driver(
        """
        import pickle
        from sample import kernels
        kernels.ns.table.copy_from(b"abcd")
        print(kernels["ns::table"].tobytes(), pickle.loads(pickle.dumps(kernels.ns.table)).tobytes())
        """
    )
    assert run.output == ["b'abcd' b'abcd'"]


def test_a_variable_that_is_smaller_than_the_manifest_says_is_not_copied(
    with_driver: WithDriver, tmp_path: Path
) -> None:
    manifest = tmp_path / "sample" / "kernels" / "manifest.json"
    text = manifest.read_text()
    assert text.count('"size": 36') == 1
    manifest.write_text(text.replace('"size": 36', '"size": 40'))
    run = with_driver(
        """
        from sample import kernels
        caught(kernels.weights.tobytes)
        """
    )
    assert run.output == [
        "LoadError: sample.kernels: weights has 36 bytes on sm_90, and 40 in the manifest; "
        "reinstall the package that holds it"
    ]
