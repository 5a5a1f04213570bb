"""The launches in C by themselves, compiled with the address and undefined-behaviour sanitizers.

Their driver is a Python function that records what it gets. The careful launcher is the judge: what C
launches has the values that it converts, and what it refuses is never launched. The method that launches
carefully only tells here that it was called.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.loader import CHECKOUT, Run, run_script

# One process compiles the module with sanitizers, which takes long.
pytestmark = [pytest.mark.host_compiler, pytest.mark.xdist_group("sanitized")]
Script = Callable[[str], Run]

# Exchange functions that may raise: they call the method ``behave`` of the array, and take its ``address``.
HELPER = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "dlpack.h"

static PyObject* latest;

static int behave(PyObject* array) {
  PyObject* result = PyObject_CallMethod(array, "behave", NULL);
  Py_XDECREF(result);
  return result ? 0 : -1;
}

static int tensor_from_object(void* array, DLTensor* tensor) {
  latest = array;
  if (behave(array)) return -1;
  PyObject* address = PyObject_GetAttrString(array, "address");
  if (!address) return -1;
  memcpy(tensor, PyLong_AsVoidPtr(address), sizeof *tensor);
  Py_DECREF(address);
  return 0;
}

static int current_stream(int32_t type, int32_t device, void** stream) {
  (void)type, (void)device;
  *stream = (void*)7;
  return behave(latest);
}

static void call(PyObject* capsule) {
  PyObject* result = PyObject_CallFunction(PyCapsule_GetPointer(capsule, NULL), "ii", 1, 16);
  Py_XDECREF(result);
  PyErr_Clear();
  puts("called");
}

/* A capsule that calls `object`, which it does not keep, when it is released. */
PyObject* calling_capsule(PyObject* object) { return PyCapsule_New(object, NULL, call); }

const DLExchange* table(void) {
  static const DLExchange newer = {1, 3, NULL, NULL, NULL, NULL, tensor_from_object, current_stream};
  static const DLExchange exchange = {2, 0, &newer, NULL, NULL, NULL, NULL, NULL};
  return &exchange;
}
"""
NATIVE = CHECKOUT / "cuda_ext" / "runtime" / "launch" / "native"
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-Wno-cast-function-type")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer")


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The module, compiled with sanitizers, and the library that has to be loaded before Python for that."""
    compiler = shutil.which("gcc")
    if not sys.platform.startswith("linux") or compiler is None:
        pytest.skip("it takes Linux and gcc")
    module = tmp_path_factory.mktemp("sanitized") / "_launch.so"
    include = f"-I{sysconfig.get_path('include')}"
    flags = ("-std=c11", "-g", "-O1", "-shared", "-fPIC", *WARNINGS, include, f"-I{NATIVE}")
    subprocess.run([compiler, *flags, *SANITIZERS, NATIVE / "module.c", "-o", module], check=True)
    helper = module.with_name("helper.c")
    helper.write_text(HELPER)
    subprocess.run([compiler, *flags, helper, "-o", helper.with_suffix(".so")], check=True)
    found = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    library = Path(found.stdout.strip())
    if not library.is_absolute():
        pytest.skip("gcc has no address sanitizer")
    return module, library


PRELUDE = """
import ctypes, importlib.util
import numpy as np
specification = importlib.util.spec_from_file_location("cuda_ext.runtime.launch._launch", MODULE)
_launch = importlib.util.module_from_spec(specification)
specification.loader.exec_module(_launch)
sys.modules["cuda_ext.runtime.launch._launch"] = _launch

launched = []
sizes = [4]  # of the parameters of what is launched next
status = 0

@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p,
                  ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
def launch(function, x, y, z, u, v, w, shared, stream, values, extra):
    assert not extra
    taken = [ctypes.string_at(values[i], size) for i, size in enumerate(sizes)]
    launched.append((function, (x, y, z), (u, v, w), shared, stream or 0, taken))
    return status

@ctypes.CFUNCTYPE(ctypes.c_int)
def succeed():
    return 0

other_address = ctypes.cast(succeed, ctypes.c_void_p).value
_launch.connect(1, ctypes.cast(launch, ctypes.c_void_p).value, *[other_address] * 8)

class Launch(_launch.Launch):
    def __launch_carefully__(self, /, *arguments, **keywords):
        return "carefully"

LIMITS = 1 << 40, 1 << 41, (2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024, 48 << 10, 256, 0

def loaded(*parameters, **more):
    sizes[:] = [size for _, _, size, *_ in parameters]
    made = Launch(parameters, **more)
    made._set_loaded(0, *LIMITS)
    return made

INT, FLOATS = ("n", "i", 4, ()), ("x", "p", 8, ("float32",))
"""


@pytest.fixture
def script(sanitized: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    module, library = sanitized
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")
    prelude = f"MODULE, HELPER = {str(module)!r}, {str(module.with_name('helper.so'))!r}\n{PRELUDE}"

    def run(text: str) -> Run:
        return run_script(
            prelude + text,
            tmp_path,
            imports=("numpy", "tests.fixtures.device_arrays"),
            LD_PRELOAD=str(library),
            **({} if sysconfig.get_config_var("Py_GIL_DISABLED") else {"PYTHONMALLOC": "malloc"}),
        )

    return run


def test_what_is_launched_is_what_the_careful_launcher_converts(script: Script) -> None:
    run = script(
        """
from cuda_ext.errors import ArgumentError
from cuda_ext.runtime.arrays.device_memory import DeviceMemory
from cuda_ext.runtime.launch import fast_launch, known_types
from cuda_ext.runtime.launch.arguments import make_fields, pack_layout
from tests.fixtures import device_arrays
from tests.fixtures.wrong_arguments import KERNELS, TYPES
device_arrays.import_torch(); device_arrays.import_cupy()

pool = {}
for case in TYPES.values():
    pool |= {f"{what} of {case.kind}": made for what, made in (*case.right.items(), *case.wrong.items())}
known_types.register([type(made()) for made in pool.values()])
tried = fast = 0
for type_, kernel in KERNELS.items():
    fields = make_fields(kernel.parameters)
    packing, _ = pack_layout(fields, ())
    description = fast_launch._describe(kernel.parameters)
    if description is None:
        continue
    kernel = loaded(*description)
    for what, made in pool.items():
        launched.clear()
        argument = made()
        kernel(argument, grid=1, block=1)
        tried += 1
        if not launched:
            continue
        fast += 1
        (*_, taken), = launched
        value = fields[0].value(argument)  # or it raises
        value = value.address if isinstance(value, DeviceMemory) else value
        assert taken == [packing.pack(value)], (type_, what)
print(tried, fast)
        """
    )
    tried, fast = map(int, run.output[0].split())
    assert tried > 10_000
    assert fast > 500


def test_members_of_structures_are_those_of_the_careful_launcher(script: Script) -> None:
    run = script(
        """
import gc, random
from cuda_ext.errors import ArgumentError
from cuda_ext.facts.kernels import Parameter
from cuda_ext.facts.structures import Structure
from cuda_ext.runtime import structure_types
from cuda_ext.runtime.launch import known_types
from tests.fixtures import device_arrays
from tests.fixtures.wrong_arguments import KERNELS, TYPES
device_arrays.import_torch(); device_arrays.import_cupy()
pool = [made for case in TYPES.values() for made in (*case.right.values(), *case.wrong.values())]
known_types.register([type(made()) for made in pool])
random.seed(5)

def make(name, parameters, *nested):
    fields, end = [], 0
    for parameter in parameters:
        end = -(-end // 16) * 16
        fields.append(parameter._replace(name=f"m{len(fields)}", offset=end))
        end += parameter.size
    fields += nested and [Parameter("inner", "Inner", "struct", nested[0].__size__, end, extents=())]
    structure = Structure(name, end + sum(each.__size__ for each in nested), 16, tuple(fields))
    return structure_types.make_class(structure, "m", {each.__name__: each for each in nested}.get)

parameters = [p for kernel in KERNELS.values() for p in kernel.parameters if p.size < 200][:60]
inner = make("Inner", parameters[:20])
outer = make("Outer", parameters[20:], inner)
assigned = 0
for _ in range(3):
    value = outer()
    careful = outer()
    for target, other in ((value, careful), (value.inner, careful.inner)):
        for name, member in type(target).__members__.items():
            for made in random.sample(pool, 40):
                argument = made()
                if member.structure:
                    continue
                try:
                    setattr(target, name, argument)
                except ArgumentError:
                    continue
                structure_types._assign(other, member, argument)
                assigned += 1
    assert value.__content__()[0] == careful.__content__()[0]
    kernel = loaded(("s", "s", outer.__size__, (), outer))
    launched.clear()
    kernel(value, grid=1, block=1)
    assert not launched or launched[0][-1] == [value.__content__()[0]]
    view = value.inner
    del value, careful
    gc.collect()
    repr(view)
print(assigned)
        """
    )
    assert int(run.output[0]) > 300


def test_shapes_and_strides_are_those_of_the_careful_launcher(script: Script) -> None:
    run = script(
        """
import random
from cuda_ext.errors import ArgumentError
from cuda_ext.facts.kernels import Kernel, Parameter
from cuda_ext.facts.launches import HiddenParameter
from cuda_ext.runtime.launch import fast_launch, known_types
from cuda_ext.runtime.launch.hidden import measure_arrays, pack_values
from tests.fixtures import device_arrays
device_arrays.import_torch(); device_arrays.import_cupy()
random.seed(3)

kinds = device_arrays.Exchanged, device_arrays.Tensor, device_arrays.CupyArray
known_types.register(kinds)
base = np.zeros((6, 5, 4, 3), "f4")
views = [base, base[::2, 1:, ::-1], base.T, base[0, 0, 0], base[0, 0, 0, 0, ...],
         np.lib.stride_tricks.as_strided(base, (2**31, 3, 2), (0, 8, -4)), np.zeros((1,) * 20, "f4"),
         np.lib.stride_tricks.as_strided(base, (3,), (6,)), base.astype("c8")]
arrays = [kind(view) for kind in kinds for view in views] + [None, 4096]
pointer = dict(type="float*", kind="pointer", size=8, element="void")
tried = fast = 0
for _ in range(2000):
    parameters = tuple(Parameter(name, offset=0, **pointer) for name in "xy")
    count = random.randint(1, 3)
    places = sorted(random.sample(range(count + 2), count))
    what, axes = ["shape", "stride"], [0, 0, 1, 2, 17]
    sources = [f"{random.choice('xy')}.{random.choice(what)}[{random.choice(axes)}]" for _ in places]
    sources[0] = random.choice([sources[0], "zero"])
    hidden = tuple(HiddenParameter(place, random.choice([1, 2, 4, 8, 16]) if source != "zero" else 40, source)
                   for place, source in zip(places, sources))
    kernel = Kernel("k", "k", 0, parameters, hidden)
    can = all(map(fast_launch._can_derive, hidden))
    described = fast_launch._describe(parameters) if can else None
    made = Launch(described, hidden=tuple(fast_launch._describe_hidden(kernel)) if can else ())
    made._set_loaded(0, *LIMITS)
    sizes[:] = kernel.sizes
    arguments = random.choices(arrays, k=2)
    launched.clear()
    made(*arguments, grid=1, block=1)
    tried += 1
    if launched:
        fast += 1
        (*_, taken), = launched
        expected = pack_values(hidden, measure_arrays(kernel, arguments))
        assert [taken[h.position] for h in hidden] == expected, (hidden, arguments)
print(fast)
        """
    )
    assert int(run.output[0]) > 400


def test_configurations_are_those_of_the_careful_launcher(script: Script) -> None:
    run = script(
        """
import itertools
from cuda_ext.errors import ArgumentError
from cuda_ext.runtime.launch.configuration import LaunchConfiguration, LaunchOptions

class Device:
    largest_grid, largest_block, most_threads = LIMITS[2], LIMITS[3], 1024
    shared_memory_limit = 48 << 10
    def __str__(self): return "sm_90"

class Kernel:
    device, most_threads, fixed = Device(), 1024, None
    def allow_shared(self, shared):
        if shared > 48 << 10: raise ArgumentError("too much")
    def best_block(self, shared): return 256

class Five(int): pass

kernel = loaded()
numbers = [0, 1, 7, 64, 65, 1024, 1025, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**63, 2**64, -1, True, 1.0,
           None, "1", np.int64(3), Five(5)]
extents = [*numbers, (), (1,), (32, 2), (1024, 1), (8, 8, 8), (1, 1, 64), (1, 1, 65), (1, 1, 1, 1), (1, None),
           (1, True), [1, 2], (1,) * 100_000, (2**70,), (1024, 1024, 64), (65536, 65536)]
options = [{}, *({"grid": grid, "block": block} for grid, block in itertools.product(extents, repeat=2))]
options += [{"threads": count, "block": block} for count, block in itertools.product(numbers, extents)]
options += [{"threads": count} for count in numbers] + [{"grid": count} for count in extents]
options += [{"grid": 1, "block": 1, "threads": count} for count in numbers]
options += [{"grid": 1, "block": 1, "shared": shared} for shared in [*numbers, 48 << 10, (48 << 10) + 1]]
fast = 0
for each in options:
    launched.clear()
    kernel(**each)
    if not launched:
        continue
    fast += 1
    checked = LaunchConfiguration.check(LaunchOptions(**each), Kernel())
    (_, grid, block, shared, stream, _), = launched
    assert (grid, block, shared) == (checked.grid, checked.block, checked.shared), each
print(len(options), fast)
        """
    )
    tried, fast = map(int, run.output[0].split())
    assert tried > 1500
    assert fast > 200


def test_a_choice_is_the_first_candidate_whose_terms_hold(script: Script) -> None:
    script(
        """
import operator, random
names = {"<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">=": operator.ge,
         ">": operator.gt}
parameters = ("n", "i", 8, ()), ("m", "u", 8, ()), ("s", "v", 24, ())
parts = {"b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8}
def other(function):
    made = loaded(*parameters)
    made._set_loaded(0, function, *LIMITS[1:])
    return made
random.seed(1)
some = [-(2**63), -7, -1, 0, 1, 2, 5, 2**31, 2**63 - 1]
def expected(terms, otherwise, values):
    holding = {candidate: True for candidate, *_ in terms}
    for candidate, position, part, offset, modulus, symbol, number in terms:
        if not holding[candidate] or any(holding[each] for each in holding if each < candidate):
            continue
        value = values[position]
        if part != "v":
            value = int.from_bytes(value[offset : offset + parts[part]], "little", signed=part.islower())
        if value >= 2**63:
            return -1  # C compares no larger numbers
        holding[candidate] = names[symbol](value % modulus if modulus else value, number)
    return next((candidate for candidate in holding if holding[candidate]), otherwise)
for _ in range(3000):
    kernels = tuple(map(other, (1, 2, 3)))
    terms = []
    for candidate in range(3):
        for _ in range(random.randrange(3)):
            modulus, symbol = random.choice((0, 1, 2, 3, 2**62)), random.choice(list(names))
            part = random.choice(["v", *parts])
            size = parts.get(part, 0)
            place = (2, part, random.randrange(25 - size)) if size else (random.randrange(2), "v", 0)
            terms.append((candidate, *place, modulus, symbol, random.choice(some)))
    otherwise = random.randrange(-1, 3)
    variants = Launch(parameters, kernels)
    variants._set_choice(0, (tuple(terms), otherwise))
    content = bytes(random.choice([0, 1, 127, 255]) for _ in range(24))
    values = random.choice(some), random.choice([0, 1, 3, 2**63 - 1]), content
    chosen = expected(terms, otherwise, values)
    launched.clear()
    outcome = variants(*values, grid=1, block=1)
    assert outcome == "carefully" if chosen < 0 else launched[0][0] == chosen + 1, (values, terms)
        """
    )


def test_negated_views_are_found_by_asking_every_tensor(script: Script) -> None:
    run = script(
        """
from tests.fixtures import device_arrays
asked = []
class Tensor(device_arrays.Exchanged):
    def is_neg(self):
        asked.append(self)
        return self.array.base is not None and self.array.base.dtype.kind == "c"
_launch.register_exchange(Tensor, Tensor.__dlpack_c_exchange_api__, (Tensor.is_neg, 0, 0, 0))
kernel = loaded(FLOATS)

strided = np.lib.stride_tricks.as_strided
square = np.zeros((8, 8), "c8").imag
views = [square, square[0], square.T, square[::2, ::3], square[..., None], np.zeros((1, 1), "c8").imag,
         strided(square, (7,), (4,)), strided(square, (5,), (12,)),
         strided(np.zeros((8, 8), "c8").real, (5,), (4,))]
real = np.zeros((8, 7), "f4")
arrays = [real, real[0], real.T, real[:, 2], real[0, 1:], real[:, ::2], real[:1, :1]]
for array in (*views, *arrays):
    launched.clear()
    kernel(Tensor(array), grid=1, block=1)
    is_negated = any(array is view for view in views)
    assert len(launched) == (not is_negated), (array.shape, array.strides)
print(len(asked) == len(views) + len(arrays))
        """
    )
    assert run.output == ["True"]


# Tensors whose set of dispatch keys lies where the Python object points to, as that of PyTorch does.
TENSORS = """
from tests.fixtures import device_arrays
from types import SimpleNamespace
NEGATIVE, CONJUGATE = 1 << 32, 1 << 33
class Tensor(ctypes.Structure):
    _fields_ = (("words", ctypes.c_uint64 * 24),)
    __dlpack_c_exchange_api__ = device_arrays.Exchanged.__dlpack_c_exchange_api__
    _cdata = property(ctypes.addressof)
    def __init__(self, key=0, dtype="f4"):
        self._array = np.zeros(4, dtype)
        self._info = device_arrays._info(self._array, 2, 0, {})
        self.words[21] = 0x9400010001 | key
    def is_neg(self):
        raise AssertionError("asked")
torch = SimpleNamespace(Tensor=Tensor, complex64="c8")
torch.empty, torch._neg_view = lambda *_, device, dtype="f4": Tensor(0, dtype), lambda _: Tensor(NEGATIVE)
torch.conj = lambda each: Tensor(CONJUGATE, each._array.dtype)
torch._C = SimpleNamespace(_dispatch_keys=lambda each: SimpleNamespace(raw_repr=lambda: each.words[21]))
"""


def test_negated_and_conjugated_views_are_found_by_their_dispatch_keys(script: Script) -> None:
    run = script(
        f"""
{TENSORS}
from cuda_ext.runtime.launch import known_types
negation = known_types._negation(torch)
print(negation[2:] == (21 * 8, NEGATIVE | CONJUGATE))
_launch.register_exchange(Tensor, Tensor.__dlpack_c_exchange_api__, negation)
kernel, of_complex = loaded(FLOATS), loaded(("x", "p", 8, ("complex64",)))
print([kernel(Tensor(key), grid=1, block=1) for key in (0, NEGATIVE)])
print([of_complex(Tensor(key, "c8"), grid=1, block=1) for key in (0, NEGATIVE, CONJUGATE)])
print([of_complex(Tensor(0, "c16"), grid=1, block=1), kernel(Tensor(0, "c8"), grid=1, block=1)])
        """
    )
    assert run.output == [
        "True",
        "[None, 'carefully']",
        "[None, 'carefully', 'carefully']",
        "['carefully', 'carefully']",
    ]


CHANGES = [
    "del torch._neg_view",
    "torch._neg_view = lambda _: Tensor()",
    "torch.conj = lambda _: Tensor(NEGATIVE)",
    "torch.empty = lambda *_, device, dtype='f4': type('Fake', (Tensor,), {})(0, dtype)",
    "torch._C._dispatch_keys = lambda each: SimpleNamespace(raw_repr=lambda: each.words[21] + 1)",
    "torch._C._dispatch_keys = lambda each: SimpleNamespace(raw_repr=lambda: 0)",
    "Tensor._cdata = 0",
]


def test_a_dispatch_key_that_cannot_be_found_is_not_used(script: Script) -> None:
    run = script(
        f"""
{TENSORS}
import os
from cuda_ext.runtime.launch import known_types
for change in {CHANGES}:
    if not os.fork():
        exec(change)
        print(known_types._negation(torch)[1:], change, flush=True)
        os._exit(0)
    os.wait()
        """
    )
    assert run.output == [f"(0, 0, 0) {change}" for change in CHANGES]


def test_tensors_of_other_accelerators_are_read_carefully(script: Script) -> None:
    run = script(
        """
from tests.fixtures import device_arrays
from cuda_ext.runtime.launch import known_types
device_arrays.import_torch()
x = device_arrays.Tensor(np.zeros(4, "f4"))
known_types.register([type(x)])
kernel = loaded(FLOATS)
print(kernel(x, grid=1, block=1))
x.is_cuda = False
print(kernel(x, grid=1, block=1))
        """
    )
    assert run.output == ["None", "carefully"]


def test_any_number_of_structures_is_known_while_it_lives(script: Script) -> None:
    run = script(
        """
import gc
from cuda_ext.runtime.launch import known_types
kernel = loaded(("s", "s", 8, ()))
def structure(number):
    return type(f"S{number}", (ctypes.Structure,), {"_fields_": [("x", ctypes.c_int64)]})(number)
values = [structure(number) for number in range(1000)]
known_types.register(map(type, values))
print({kernel(each, grid=1, block=1) for each in values}, len(_launch.VALUES))
del values
gc.collect()
print(len(_launch.VALUES))
others = [structure(number) for number in range(1000)]  # some lie where the first ones did
print({kernel(each, grid=1, block=1) for each in others})
        """
    )
    assert run.output == ["{None} 1000", "0", "{'carefully'}"]


def test_objects_outlive_the_references_to_their_module(script: Script) -> None:
    # The collector clears the module and its types, then the kernel, which is called once more.
    run = script(
        """
import gc
helper = ctypes.PyDLL(HELPER)
helper.calling_capsule.restype = ctypes.py_object
helper.calling_capsule.argtypes = [ctypes.py_object]
gc.collect()
module = importlib.util.module_from_spec(specification)
specification.loader.exec_module(module)
kernel = type("Kernel", (module.Launch,), {})((INT, FLOATS))
kernel.capsule = helper.calling_capsule(kernel)
kernel.itself = kernel
del kernel, module
gc.collect()
        """
    )
    assert run.output == ["called"]


def test_hostile_arguments_are_left_to_the_careful_launcher(script: Script) -> None:
    run = script(
        """
import gc, random
from tests.fixtures import device_arrays
from cuda_ext.runtime.launch import known_types

class Interrupt(BaseException): pass
class Name(str): pass
class Tuple(tuple): pass

kernel = loaded(INT, FLOATS)
kernels = [kernel]
def reenter(*_):
    kernels[0](1, 16, grid=1, block=1)
    kernels[0]._set_loaded(random.randrange(3), *LIMITS)
    gc.collect()
def fail(*_): raise RuntimeError("no")
def forget(*_):
    kernels[0] = loaded(INT, FLOATS)
    gc.collect()
def overflow(*_): raise RecursionError
def interrupt(*_): raise Interrupt
misbehaviours = [reenter, fail, forget, overflow, interrupt]

class Hostile:
    def __init__(self, device, behave):
        self.behave = behave
        self.info = device_arrays._info(np.zeros(4, "f4"), 2, device, {})
        self.address = ctypes.addressof(self.info)

tables = ctypes.CDLL(HELPER)
tables.table.restype = ctypes.c_void_p
capsule = device_arrays.exchange_capsule(tables.table())
def hostile(device, behave):
    made = type("Hostile", (Hostile,), {"__dlpack_c_exchange_api__": capsule})(device, behave)
    known_types.register([type(made)])
    return made

# Few types can be registered, so the behaviour is that of the object.
kind = type(hostile(0, lambda: None))
arrays = [kind(device, behave) for behave in (*misbehaviours, lambda: None) for device in (0, 1, -1)]

def stream(**attributes):
    properties = {name: property(each) if callable(each) else each for name, each in attributes.items()}
    return type("Stream", (), properties)()
streams = [stream(**{name: behave}) for name in ("__cuda_stream__", "cuda_stream", "ptr")
           for behave in misbehaviours]
class Protocol:
    def __init__(self, answer): self.answer = answer
    def __cuda_stream__(self): return self.answer() if callable(self.answer) else self.answer
streams += [Protocol(answer) for answer in (
    *misbehaviours, None, (), (0,), (0, -1), (1, 7), (0, 2**64), [0, 7], (0, True), (0, 7, 8), Tuple((0, 7)),
    (Name("0"), 7), (0, None))]
streams += [stream(cuda_stream=value) for value in (-1, 2**64, True, None, "7", 1.0)]
streams += [True, False, -1, 2**64, 2**200, "7", b"7", 1.5, object(), ..., np.int64(7), kernel, Launch]

class Lying:
    def __getattr__(self, name): return random.choice(misbehaviours)()
    __index__ = __float__ = __complex__ = __bool__ = __len__ = __iter__ = __eq__ = __hash__ = fail
    dtype = property(lambda self: random.choice(misbehaviours)())
values = [Lying(), Lying, 2**31, -2**31 - 1, 2**70, True, None, "1", b"1", [1], (), {}, kernel, 1j, 1.0,
          np.float32(1), ctypes.c_int(1), memoryview(b"1"), *arrays]
outcomes = {"carefully": 0, None: 0, Interrupt: 0}
def call(*arguments, **keywords):
    target = kernels[0]
    try:
        outcomes[target(*arguments, **keywords)] += 1
    except Interrupt:
        outcomes[Interrupt] += 1

sizes[:] = [4, 8]
for _ in range(3):
    for value in values:
        call(value, 16, grid=1, block=1)
        call(1, value, grid=1, block=1)
        call(value, value, grid=value, block=value, stream=value, shared=value, threads=value)
    for each in streams:
        call(1, 16, grid=1, block=1, stream=each)
    call()
    call(*range(1000))
    call(1, 16, *range(100_000))
    call(**{f"a{i}": i for i in range(5000)})
    call(1, 16, **{Name("grid"): 1, Name("block"): 1})
    call(n=1, x=16, grid=1, block=1)
    call(1, n=1, x=16, grid=1, block=1)
    call(1, 16, x=16, grid=1, block=1)
    call(n=1, grid=1, block=1)
    call(1, 16, grid=1, block=1, cluster=1)
    call(1, 16, grid=1, block=1, wait=True)
assert min(outcomes.values()) >= 12, outcomes
print(sum(outcomes.values()))

# Overloads that look at the dtypes of arguments.
class Overloads(_launch.Overloads):
    def __launch_carefully__(self, /, *arguments, **keywords):
        self.__remember__(kernel, *arguments)
        return "carefully"
overloads = Overloads((kernel, kernel), ())
for _ in range(3):
    for value in values:
        for arguments in ((value, 16), (1, value), (value,) * 200, ()):
            try:
                overloads(*arguments, grid=1, block=1)
            except Interrupt:
                pass
known = [type(f"T{i}", (), {"dtype": i})() for i in range(200)]
assert [overloads(*([each] * 2), grid=1, block=1) for each in known] == ["carefully"] * 200

# More than fit into the first tables, with constants by name and by position.
class Chosen(_launch.Overloads):
    def __launch_carefully__(self, /, *arguments, **keywords):
        made = Answer((*arguments, keywords.get("c")))
        self.__remember__(made, *arguments, **keywords)
        return made()
    def __choose_carefully__(self, /, **named):
        if type(named.get("c")) is Unknown:  # the value means a constant
            constants["c"].setdefault(Unknown, {})[named["c"]] = named["c"]
        return Answer(tuple(named.items()))
class Unknown: pass
class Answer:
    def __init__(self, answer):
        self.answer = answer
    def __call__(self, *_, **__):
        return self.answer
chosen = Chosen((), ())
constants = {"c": {int: {i: i for i in range(300)}, str: {"x": "x"}, bool: {True: True}}}
constants["c"][type(None)] = {None: None}
chosen.__choose_by__(constants, ("a", "c"), 1)
for _ in range(2):
    for i in [*range(300), "x", True, None, 0.5]:
        assert chosen(7, c=i) == (7, i) and chosen(7, i) == (7, i, None), i
        assert type(chosen(7, c=i)[1]) is type(i)
assert chosen(8, c=1) == (7, 1) and chosen(9, c=400) == (9, 400) and chosen(9, c=500) == (9, 400)
unknown = Unknown()
for value in (1, 2, "x", None, True, unknown, 400):
    once = chosen.choose(c=value, grid=1)
    assert once is chosen.choose(c=value, grid=1) and once() == (("c", value), ("grid", 1)), value
assert chosen.choose(c=unknown) is not chosen.choose(c=Unknown()) and chosen.choose() is chosen.choose()
assert chosen(c=1) == (1,) and chosen.choose(c=1)() == (("c", 1),)
for value in [*values, constants, [], Unknown]:
    try:
        chosen.choose(c=value)
    except Interrupt:
        pass
try:
    chosen.choose(1)
    raise AssertionError
except TypeError:
    pass
assert chosen(7, c="y") == (7, "y") and chosen(7, c="z") == (7, "z")
for wrong in ((), ({}, (), "n"), ([], (), 1), ({"c": 1}, (), 1), ({1: {}}, (), 1)):
    try:
        Chosen((), ()).__choose_by__(*wrong)
    except TypeError:
        continue
    raise AssertionError(wrong)
known += [type(f"U{i}", (), {"dtype": i})() for i in range(3000)]
for _ in range(2):
    assert [chosen(each)[0] is each for each in known] == [True] * len(known)
del overloads, known, chosen
gc.collect()
        """
    )
    assert int(run.output[0]) > 500


def test_a_grid_in_brackets_or_of_a_function_is_that_of_the_keyword(script: Script) -> None:
    script(
        """
import gc
class Careful:
    def __launch_carefully__(self, /, *arguments, **keywords):
        return arguments, keywords
    def __select_carefully__(self, item, /):
        return "selected"
class Kernel(Careful, _launch.Launch): pass
class Overloads(Careful, _launch.Overloads): pass
sizes[:] = 4, 8
order, given = ("n", "c", "x"), {"c": 64, "n": 5}
kernel = Kernel((INT, FLOATS), constants=(("c", 64),), order=order, given=given)
kernel._set_loaded(0, *LIMITS)
kernel._set_prepared(0, (1, 1, 1), (32, 1, 1), 0, ())
only, several = Overloads((kernel,), ("c",)), Overloads((kernel, kernel), ())
several.__remember__(kernel, 1, 16)
grids = 1, (2,), (2, 3), (2, 3, 4), 0, -1, 2**40, (), (1, 2, 3, 4), (0,), True, 1.5, None, "2", [2], (2, "3")
functions = [lambda _, each=each: each for each in grids]
assert kernel[1] == several[(2,)] == only[functions[0]] == "selected"
for each in (kernel, only, several):
    each.__takes_grid__ = True
    for grid in (*grids, *functions):
        launched.clear()
        by_keyword, at = each(1, 16, grid=grid), launched[:]
        if type(each[grid]) is _launch.GridLaunch:
            again = each[grid](1, 16)
            assert (again, launched[len(at):]) == (by_keyword, at), grid
        elif type(grid) in (int, tuple) and grid not in ((), (2, "3")):
            raise AssertionError(grid)
        made = _launch.GridLaunch(each, grid)(1, 16)
        assert made == by_keyword, grid
# Functions see arguments and constants, and may do anything.
seen = []
assert _launch.GridLaunch(kernel, seen.append)(1, x=16)[1] == {"x": 16, "grid": seen.append}
assert seen.pop() == {"c": 64, "n": 1, "x": 16}
assert kernel[lambda given: seen.append(given) or 3](1, x=16) is None
assert seen == [{"c": 64, "n": 1, "x": 16}]
assert kernel[lambda given: kernel[2](given["n"], 16) or given.clear() or len((gc.collect(),))](1, 16) is None
for error in (KeyError, RecursionError, MemoryError):
    def fail(_):
        raise error
    assert kernel[fail](1, 16, c=64) == ((1, 16), {"c": 64, "grid": fail})
def interrupt(_):
    raise KeyboardInterrupt
try:
    kernel[interrupt](1, 16)
    raise AssertionError
except KeyboardInterrupt:
    pass
# Constants may have their positions, and defaults be left out.
place = {"order": ("c", "n", "x"), "is_in_order": True}
ordered = Kernel((INT, FLOATS), constants=(("c", 64),), given=given, **place)
ordered._set_loaded(0, *LIMITS)
ordered._set_prepared(0, (1, 1, 1), (32, 1, 1), 0, ())
launched.clear()
assert ordered(64, 1, 16, grid=1) is ordered(64, 1, x=16, grid=1) is ordered(64, x=16, grid=1) is None
assert [each[5][0][0] for each in launched] == [1, 1, 5]
assert ordered(1, 16, grid=1) == ((1, 16), {"grid": 1}) and ordered(64, 1, grid=1)[0] == (64, 1)
for wrong in ((1, 2), (Kernel, 2), (kernel,), ()):
    try:
        _launch.GridLaunch(*wrong)
        raise AssertionError(wrong)
    except TypeError:
        pass
try:
    kernel[1](1, 16, grid=2)
    raise AssertionError
except TypeError:
    pass
cycle = _launch.GridLaunch(kernel, given)
given["itself"] = cycle
del cycle, kernel, only, several, ordered, given
gc.collect()
        """
    )


def test_invalid_descriptions_are_refused(script: Script) -> None:
    script(
        """
def refused(call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except (ValueError, TypeError, OverflowError, SystemError, UnicodeError):
        return
    raise AssertionError((arguments, keywords))

right, pointer = ("n", "i", 4, ()), ("x", "p", 8, ())
for each in [None, (), ("n",), (1, "i", 4, ()), ("n", "", 4, ()), ("n", "ii", 4, ()), ("n", "z", 4, ()),
             ("n", "i", 3, ()), ("n", "i", 0, ()), ("n", "i", -1, ()), ("n", "p", 4, ()), ("n", "s", 0, ()),
             ("n", "s", 2**31, ()), ("n", "f", 4, None), ("n", "p", 8, (1,)), ("n", "p", 8, ("\\ud800",)),
             ("n", "b", 4, ()), ("n", "c", 4, ())]:
    refused(Launch, (right, each))
for unsupported in ((right,) * 129, (("s", "s", 4096, ()), right), None):
    assert Launch(unsupported)() == "carefully"
for listed in ([right], "n", 1):
    refused(Launch, listed)
for negation in (1, (), (None,), (None, 0, 0, 0, 0)):
    refused(_launch.register_exchange, int, None, negation)
for dtypes in ((), (None,) * 14, [None] * 13):
    refused(_launch.register_cupy, int, None, dtypes)
for candidates in ((1,), (None,), (Launch,), [kernel for kernel in ()]):
    refused(Launch, (right,), candidates)
for hidden in (None, (), (1, 4, "z"), (2, 4, "z", 0, 0), (1, 0, "z", 0, 0), (1, 4, "m", 0, 0),
               (1, 3, "s", 0, 0), (1, 4, "v", 0, 0), (1, 4, "s", 1, 0), (1, 4, "d", 0, 16), (1, 4, "?", 0, 0),
               (1, 2**16, "z", 0, 0)):
    refused(Launch, (pointer,), hidden=(hidden,))
assert Launch((pointer,), hidden=((1, 4096, "z", 0, 0),))() == "carefully"
kernel = loaded(right)
for arguments in ((-1, *LIMITS), (10**6, *LIMITS), (2**70, *LIMITS), (0, 0, *LIMITS[1:]), (0,),
                  (0, *LIMITS, 1), (0, *LIMITS[:2], (1, 2), *LIMITS[3:]), (None, *LIMITS)):
    refused(kernel._set_loaded, *arguments)
for attributes in (((1,),), ((1, 2, 3, 4, 5),), ((2, 1),) * 4, (None,)):
    refused(kernel._set_prepared, 0, (1, 1, 1), (1, 1, 1), 0, attributes)
variants = Launch((("n", "i", 8, ()), ("m", "u", 8, ())), (kernel,) * 3)
for choice in [((), 3), ((), -2), (((3, 0, "v", 0, 0, "<", 1),), 0), (((-1, 0, "v", 0, 0, "<", 1),), 0),
               (((0, 2, "v", 0, 0, "<", 1),), 0), (((0, 0, "v", 0, -1, "<", 1),), 0),
               (((0, 0, "v", 0, 0, "~", 1),), 0), (((0, 0, "v", 0, 0, "<", 2**64),), 0), ((1,), 0), ([1], 0),
               (((0, 0, "s", 0, 0, "<", 1),), 0), (((0, 0, "x", 0, 0, "<", 1),), 0)]:
    refused(variants._set_choice, 0, choice)
        """
    )


def test_exchanges_of_other_kinds_are_not_registered(script: Script) -> None:
    run = script(
        """
from tests.fixtures import device_arrays
other = device_arrays._new_capsule(1 << 20, b"other", device_arrays._FREE())
capsules = [None, 7, "dlpack_exchange_api", other,
            *(device_arrays.exchange_capsule(device_arrays.exchange_table(**more))
              for more in ({"major": 2}, {"lend": None}, {"stream": None}))]
print(*(_launch.register_exchange(int, capsule, None) for capsule in capsules))
newer = device_arrays.exchange_table(2, device_arrays.exchange_table())
print(_launch.register_exchange(int, device_arrays.exchange_capsule(newer), None))
        """
    )
    assert run.output == [" ".join(["False"] * 7), "True"]


def test_objects_are_collected(script: Script) -> None:
    run = script(
        """
import gc, weakref
kernel = loaded(INT, FLOATS)
cycle = Launch((INT, FLOATS), (kernel,))
cycle.itself = cycle
cycle._set_choice(0, ((), 0))
assert cycle(1, 16, grid=1, block=1) is None
bound = Launch((INT, FLOATS), is_bound=True, stream=7)
like = Launch((INT, FLOATS), is_bound=True, like=bound)
bound._set_loaded(2, *LIMITS)
for _ in range(3):
    bound._set_prepared(2, (1, 1, 1), (1, 1, 1), 0, ((4, 1, 1, 1),))
references = [weakref.ref(each) for each in (kernel, cycle, bound, like)]
del kernel, cycle, bound, like
gc.collect()
print([reference() for reference in references])
        """
    )
    assert run.output == ["[None, None, None, None]"]
