"""Launches under the fake driver: configurations and arguments reach the driver, invalid ones do not."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import sysconfig
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from cuda_ext.errors import ArgumentError
from cuda_ext.facts.kernels import Kernel, Parameter
from cuda_ext.facts.manifest import Unit
from cuda_ext.facts.sources import Source
from cuda_ext.runtime.launch.configuration import check_extents
from cuda_ext.runtime.launch.streams import GivenStream
from tests.fixtures import device_arrays
from tests.fixtures.device_arrays import Tensor
from tests.fixtures.loader import (
    AXPY,
    SAMPLE,
    Run,
    signature,
    single_image,
    write_module,
    write_package,
)
from tests.fixtures.messages import Messages
from tests.fixtures.under_driver import calls, failure, launches

pytestmark = [pytest.mark.host_compiler, pytest.mark.usefixtures("typed")]
under_driver = pytest.mark.under_driver
with_messages = pytest.mark.usefixtures("messages")
in_c_and_in_python = pytest.mark.parametrize("in_c", [True, False])
kernels: Any = None  # in the process of a test, the module
one: Any = {"grid": 1, "block": 1}

WithDriver = Callable[..., Run]

ODD = ("a1", "a0", "self", "absent", "shared")
SIZES = [1999, 2000, 4088, 4096, 32764]
TYPED = [
    Kernel("odd", "odd", 0, signature(*(f"integer 4 int {name}" for name in ODD))),
    Kernel("waiting", "waiting", 0, signature("pointer 8 float* x", "integer 4 int wait")),
    *(
        Kernel(f"of_{size}", f"of_{size}", 0, (Parameter("s", "Large", "struct", size, 0, None, False),))
        for size in (8192, *SIZES)
    ),
    Kernel("plain", "plain", 0, signature("integer 4 int n", "pointer 8 float* x")),
    Kernel("s", "s", 0, signature("struct 8 S s")),
    Kernel("t<float>", "t", 0, signature("pointer 8 float* x", "integer 4 int n")),
    Kernel("t<double>", "other", 0, signature("pointer 8 double* x", "integer 4 int n")),
    Kernel("ov(float*, int)", "first", 0, signature("pointer 8 float* x", "integer 4 int n")),
    Kernel("ov(double*, float)", "second", 0, signature("pointer 8 double* x", "float 4 float a")),
    Kernel("real", "real", 0, signature("float 4 float a")),
]


@pytest.fixture
def typed(with_driver: WithDriver, tmp_path: Path) -> None:
    write_module(tmp_path, "typed.kernels", TYPED)


class CoreStream:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 7


class TorchStream:
    cuda_stream = 7


class CupyStream:
    ptr = 7


LARGEST = (2147483647, 65535, 65535)
# Each takes about 0.1 ms to import; a named tuple takes as long to create.
IMPORTED_BY_A_FIRST_LAUNCH = {
    "errors",
    "facts",
    "facts.architecture",
    "facts.codec",
    "facts.image_choice",
    "facts.kernels",
    "facts.manifest",
    "runtime",
    "runtime.arrays",
    "runtime.arrays.dtypes",
    "runtime.created_kernels",
    "runtime.demanded_calls",
    "runtime.driver",
    "runtime.driver._calls",
    "runtime.driver.cuda_h",
    "runtime.driver.driver",
    "runtime.driver.functions",
    "runtime.driver.loaded_kernel",
    "runtime.kernel",
    "runtime.launch",
    "runtime.launch._launch",
    "runtime.launch.fast_launch",
    "runtime.loaded_library",
    "runtime.manifest_names",
    "runtime.lookup",
    "runtime.module",
}


def test_extents_are_extended_with_ones() -> None:
    assert check_extents("grid", 5, LARGEST) == (5, 1, 1)
    assert check_extents("grid", [np.int64(5)], LARGEST) == (5, 1, 1)  # type: ignore[arg-type]
    assert check_extents("block", (32, 4), LARGEST) == (32, 4, 1)


@pytest.mark.parametrize("stream", [7, np.int64(7), CoreStream(), TorchStream(), CupyStream()])
def test_any_object_with_a_handle_is_a_stream(stream: Any) -> None:
    assert GivenStream.of(stream).handle == 7


@pytest.mark.parametrize("stream", [-1, 1 << 64, True, 1.5, "s"])
def test_other_objects_are_no_streams(stream: Any) -> None:
    with pytest.raises(ArgumentError, match=f"stream: expected a stream or its handle, found {stream!r}"):
        GivenStream.of(stream)


WRONG_LAUNCHES = {
    "grid=0, block=1": "grid: expected at least 1 and at most (2147483647, 65535, 65535), found 0",
    "grid=(1, 65536), block=1": "found (1, 65536)",
    "grid=(), block=1": "grid: expected an int or up to three, found ()",
    "grid=(1, 1, 1, 1), block=1": "grid: expected an int or up to three, found (1, 1, 1, 1)",
    "grid=1.0, block=1": "grid: expected an int or up to three, found 1.0",
    "grid=1, block=(1, 1, 65)": "block: expected at least 1 and at most (1024, 1024, 64), found (1, 1, 65)",
    "grid=1, block=(64, 32)": "block: expected at most 1024 threads, found 2048: (64, 32, 1)",
    "grid=1, block=-1": "found -1",
    "grid=1": "expected grid and block, or threads",
    "block=1": "expected grid and block, or threads",
    "grid=1, threads=5": "threads: counts all threads of the grid; give either threads or grid",
    "threads=-1": "threads: expected a number of threads, found -1",
    "threads=1 << 60": "threads: expected at most 549755813632 in blocks of 256, found 1152921504606846976",
    "grid=1, block=1, shared=-1": "shared: expected a number of bytes, found -1",
    "grid=1, block=1, shared=1.5": "shared: expected a number of bytes, found 1.5",
    "grid=1, block=1, shared=300000": "shared: expected at most 232448 bytes, found 300000",
    "grid=1, block=1, stream=-1": "stream: expected a stream or its handle, found -1",
    "grid=1, block=1, stream='s'": "stream: expected a stream or its handle, found 's'",
    "grid=3, block=1, cluster=2": "cluster: expected divisors of the grid (3, 1, 1), found 2",
    "grid=4, block=1, cluster=8": "cluster: expected at least 1 and at most (4, 1, 1), found 8",
    "grid=32, block=1, cluster=32": "cluster: expected at most 16 blocks on this GPU, sm_90, found 32",
    "grid=1057, block=256, cooperative=True": "grid: expected at most 1056 blocks, since all cooperative",
    "grid=1, block=1, threds=5": "no parameter is called 'threds'; did you mean 'threads'?",
}


@under_driver
def test_unsupported_configurations_are_refused() -> None:
    kernels.tiled(grid=1, block=1)
    for wrong, message in WRONG_LAUNCHES.items():
        for kernel, available in ((kernels.plain, "232448"), (kernels.tiled, "191488")):  # cold, and warm
            found = failure(kernel, **eval(f"dict({wrong})"))
            assert found.startswith("ArgumentError: ")
            assert message.replace("232448", available) in found
    assert len(launches()) == 1


@pytest.mark.under_driver(devices=0)
def test_mistakes_are_told_before_the_missing_gpu() -> None:
    of_a_gpu = ("232448", "cluster: ", "cooperative", "549755813632")
    for wrong, message in WRONG_LAUNCHES.items():
        if not any(each in message for each in of_a_gpu):
            assert message in failure(kernels.plain, **eval(f"dict({wrong})"))
    for right in ("grid=1, block=1", "threads=5", "grid=lambda _: 1, block=1", "threads=5, block=64"):
        assert failure(kernels.plain, **eval(f"dict({right})")).startswith("NoDeviceError: ")


@under_driver
@with_messages
def test_a_launch_reaches_the_driver_unchanged() -> None:
    axpy = kernels.axpy["float"]
    assert axpy(3, 2.5, 0x10, None, grid=(4, 5), block=(32, 2, 3), stream=9, shared=100) is None
    kernels.ns.fill(x=0x20, value=-1, grid=1, block=64)
    kernels["ov(int)"](7, **one)
    kernels.plain(grid=2, block=1, cooperative=True)
    print(*launches(), sep="\n")
    assert calls().count("cuLibraryLoadData") == 1


def test_a_common_first_launch_imports_no_careful_launcher(with_driver: WithDriver) -> None:
    pytest.importorskip("cuda_ext.runtime.launch._launch")
    run = with_driver(
        """
        from sample import kernels
        room = "cuda_ext.runtime.launch"
        arrays = "cuda_ext.runtime.arrays"
        slow = ["numpy", "concurrent.futures", f"{arrays}.staging", f"{arrays}.device_scope"]
        slow += [f"{room}.launcher", f"{room}.configuration", f"{room}.arguments"]
        before = set(sys.modules)
        axpy = kernels.axpy["float"]
        axpy(3, 2.5, 0x10, None, grid=4, block=32)
        print([name for name in slow if name in sys.modules.keys() - before])
        axpy(3, 2.5, 0x10, None, grid=4, block=32, dependent=True)
        print("cuda_ext.runtime.launch.launcher" in sys.modules)
        """
    )
    assert run.output == ["[]", "True"]
    assert len(run.launches) == 2


def test_a_first_launch_imports_few_modules_and_makes_few_records(with_driver: WithDriver) -> None:
    pytest.importorskip("numpy")
    for compiled in ("launch._launch", "driver._calls"):
        pytest.importorskip(f"cuda_ext.runtime.{compiled}")
    script = """
        import builtins, sys
        sys.path[:0] = sys.argv[1:]
        import numpy
        before = set(sys.modules)
        create, records = builtins.__build_class__, []
        def build_class(body, name, *bases, **keywords):
            if "NamedTuple" in [getattr(base, "__name__", "") for base in bases]:
                records.append(name)
            return create(body, name, *bases, **keywords)
        builtins.__build_class__ = build_class
        from sample import kernels
        axpy = kernels.axpy["float"]
        axpy(3, 2.5, 0x10, None, grid=4, block=32)
        imported = sorted(sys.modules.keys() - before)
        ours = [name.removeprefix("cuda_ext.") for name in imported if name.startswith("cuda_ext.")]
        print(*ours)
        print(*(name for name in imported if not name.startswith(("cuda_ext", "sample"))))
        print(*records)
    """
    # Without site-packages, whose .pth files may import anything.
    run = with_driver(
        f"""
        import os, subprocess, numpy
        paths = [*os.environ["PYTHONPATH"].split(os.pathsep), os.path.dirname(numpy.__path__[0])]
        subprocess.run([sys.executable, "-I", "-S", "-c", {textwrap.dedent(script)!r}, *paths], check=True)
        """
    )
    ours, others, records = map(str.split, run.output)
    assert {*ours} == IMPORTED_BY_A_FIRST_LAUNCH
    assert {*others} <= {"__future__", "_json", "_sha2", "_sha256"}
    assert records == ["Parameter", "Kernel", "Image", "Unit", "Manifest"]
    assert len(run.launches) == 1


@under_driver(capability=75)
def test_a_first_launch_with_wrong_arguments_is_refused_before_a_missing_image() -> None:
    assert failure(kernels.plain, 1, **one).startswith("ArgumentError: expected no arguments, found 1")
    assert failure(kernels.plain, **one).startswith("NoImageError: ")


@under_driver(kernels="typed.kernels")
def test_parameters_may_have_any_names() -> None:
    bound = kernels.odd.bind(**one)
    given = {"a1": 1, "a0": 2, "self": 3, "absent": 4}
    for _ in range(3):
        kernels.odd(1, 2, 3, 4, 5, **one)
        bound(1, 2, 3, 4, 5)
        assert "missing: shared" in failure(kernels.odd, **given, **one)
        assert "no parameter is called 'a4'" in failure(bound, 1, 2, 3, 4, a4=5)
    packed = " ".join(f"{number:02x}000000" for number in range(1, 6))
    assert [launch[-len(packed) :] for launch in launches()] == [packed] * 6


@under_driver
@in_c_and_in_python
def test_an_interrupted_launch_is_not_repeated(in_c: bool) -> None:
    class Interrupt(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupt

    launched = interrupted = 0
    kernels.ns.fill(1, 2, **one)
    signal.signal(signal.SIGALRM, interrupt)
    while interrupted < 200:
        try:
            # Again after a while: an exception within a finalizer is lost.
            signal.setitimer(signal.ITIMER_REAL, 0.001, 10)
            while True:
                kernels.ns.fill(1, 2, **one)
                launched += 1
        except Interrupt:
            interrupted += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    # An interrupted one may have been launched, but never twice.
    assert launched + 1 <= len(launches()) <= launched + 201


@under_driver
def test_wrong_arguments_never_reach_the_driver() -> None:
    axpy = kernels.axpy["float"]
    too_large = failure(axpy, 2**31, 2.5, 0, 0, **one)
    assert too_large.endswith(f"found 2147483648   in a launch of {AXPY.signature}")
    for found in (
        too_large,
        failure(axpy, 3, 2.5, 0, **one),
        failure(axpy, 3, 2.5, 0, 0, grid=0, block=1),
        failure(axpy, 3, 2.5, 0, 0, grid=1, block=2048),
        failure(kernels.axpy, 3, 2.5, 0, 0, **one),
        failure(kernels.weights.copy_from, b"short"),
    ):
        assert found.startswith("ArgumentError: ")
    assert launches() == []


@under_driver(devices=2)
def test_the_context_is_the_current_one_or_that_of_the_first_device() -> None:
    kernels.plain(**one)
    kernels.plain(**one)
    assert int(driver.cuCtxGetCurrent()[1]) == 0
    context = driver.cuDevicePrimaryCtxRetain(1)[1]
    driver.cuCtxPushCurrent(context)
    kernels.plain(**one)
    assert int(driver.cuCtxGetCurrent()[1]) == int(context)
    assert [launch.partition("device=")[2] for launch in launches()] == ["0", "0", "1"]
    assert calls().count("cuLibraryLoadData") == 1


@under_driver(devices=2)
@in_c_and_in_python
def test_a_warm_launch_runs_on_the_gpu_of_its_arrays(in_c: bool) -> None:
    class OnDevice:
        dtype = "float32"
        is_cuda = True

        def __init__(self, device: int) -> None:
            self.device = device

        def data_ptr(self) -> int:
            return 0x1000 * (1 + self.device)

        def get_device(self) -> int:
            return self.device

    axpy = kernels.axpy["float"]
    bound = axpy.bind(grid=2, block=1)
    contexts = [driver.cuDevicePrimaryCtxRetain(i)[1] for i in (0, 1)]
    for current in (None, *contexts):
        if current is not None:
            driver.cuCtxPushCurrent(current)
        for device in (1, 0, 1, 0):
            for stream in (None, 0, 9 + 1000 * device):
                axpy(3, 2.5, OnDevice(device), OnDevice(device), **one, stream=stream)
            bound(3, 2.5, OnDevice(device), OnDevice(device))
        refused = failure(axpy, 3, 2.5, OnDevice(0), OnDevice(1), **one)
        assert "argument 'y': is on GPU 1, and 'x' is on GPU 0" in refused
        assert int(driver.cuCtxGetCurrent()[1]) == int(current or 0)
    placed = [launch.partition("device=")[2][0] for launch in launches()]
    assert placed == ["1", "1", "1", "1", "0", "0", "0", "0"] * 6


@under_driver(fail="cuLaunchKernel=1")
def test_a_failed_launch_leaves_no_context_behind() -> None:
    failure(kernels.plain, **one)
    assert int(driver.cuCtxGetCurrent()[1]) == 0


@under_driver(capability=86)
@with_messages
def test_lowered_names_belong_to_the_image() -> None:
    kernels.plain(**one)
    print(failure(kernels.tiled, **one))
    assert [launch.split()[1] for launch in launches()] == ["plain_of_sm_80"]


def test_images_may_have_files_of_their_own(
    with_driver: WithDriver, tmp_path: Path, messages: Messages
) -> None:
    texts = {"x.sm_80.cubin": "kernel plain_80 0\n", "x.compute_90.ptx": "kernel plain_90 0\n"}
    images = tuple(
        single_image(text, file.split(".")[1], file)._replace(names={"plain": text.split()[1]})
        for file, text in texts.items()
    )
    plain = AXPY._replace(expression="plain", parameters=())
    module = SAMPLE._replace(
        units=(Unit((Source("x.cu"),), images),), kernels=(plain,), symbols=(), version="13.0"
    )
    files = {file: text.encode() for file, text in texts.items()}
    package = write_package(tmp_path / "own", module, files)
    script = f"sys.path.insert(0, {str(tmp_path / 'own')!r})\n"
    script += "from sample import kernels; caught(kernels.plain, grid=1, block=1)"
    assert with_driver(script, capability=90).launches[0].split()[1] == "plain_90"
    assert with_driver(script, capability=80).launches[0].split()[1] == "plain_80"
    (package / "x.sm_80.cubin").write_text("kernel plain_81 0\n")
    messages(*with_driver(script, capability=80).output)


@pytest.mark.parametrize("becomes", ["unlink()", "write_bytes(b'new')"])
def test_a_rebuild_since_the_import_is_reported(
    becomes: str, with_driver: WithDriver, tmp_path: Path, messages: Messages
) -> None:
    text = "kernel plain 0\n"
    unit = Unit((Source("x.cu"),), (single_image(text, "sm_80", "x.sm_80.cubin"),))
    plain = AXPY._replace(expression="plain", parameters=())
    module = SAMPLE._replace(units=(unit,), kernels=(plain,), symbols=())
    write_package(tmp_path / "own", module, {"x.sm_80.cubin": text.encode()})
    script = f"""
        import pathlib
        sys.path.insert(0, {str(tmp_path / "own")!r})
        from sample import kernels
        dir(kernels)
        place = pathlib.Path(kernels.__file__).parent
        manifest = (place / "manifest.json").read_text()
        (place / "manifest.json").write_text(manifest.replace("plain", "fancy"))
        (place / "x.sm_80.cubin").{becomes}
        caught(kernels.plain, grid=1, block=1)
    """
    messages(*with_driver(script, capability=80).output)


@under_driver
@with_messages
def test_shared_memory_beyond_the_default_is_allowed_when_asked_for() -> None:
    for size in (48 << 10, 100000, 60000, 232448):
        kernels.plain(**one, shared=size)
    kernels.tiled(**one)
    kernels.tiled(**one, shared=8 << 10)
    kernels.tiled(**one, shared=(8 << 10) + 1)
    print(failure(kernels.plain, **one, shared=232449))
    print(failure(kernels.tiled, **one, shared=232448))
    assert [call.removeprefix("cuKernelSetAttribute ") for call in calls("cuKernelSetAttribute")] == [
        "plain 8 100000 0",
        "plain 8 232448 0",
        "tiled 8 8193 0",
    ]
    assert len(launches()) == 7


@under_driver
@with_messages
@pytest.mark.parametrize("code", [701, 719])
def test_a_refused_launch_names_its_configuration(code: int) -> None:
    os.environ["FAKE_CUDA_FAIL"] = f"cuLaunchKernel={code}"
    print(failure(kernels.axpy["float"], 3, 2.5, 0, 0, grid=(4, 2), block=128, shared=16))


@under_driver(kernels="typed.kernels")
def test_an_option_is_no_parameter_of_the_same_name() -> None:
    for _ in range(2):
        assert failure(kernels.waiting, 4096, wait=False, **one).startswith("ArgumentError: ")
    assert launches() == []


@under_driver(kernels="typed.kernels")
@in_c_and_in_python
def test_structures_may_be_as_large_as_the_driver_takes(in_c: bool) -> None:
    for size in SIZES:
        value = bytes(i % 251 for i in range(size))
        for _ in range(2):
            kernels[f"of_{size}"](value, **one)
            assert launches()[-1].rpartition(" ")[2] == value.hex()
    assert len(launches()) == 2 * len(SIZES)
    # A parameter may be larger than launches in C take.
    assert kernels.of_8192.expression == "of_8192"


@under_driver
@in_c_and_in_python
def test_a_bound_launch_keeps_the_configuration_of_its_call(in_c: bool) -> None:
    grid, block, stream = [2, 3], [4], TorchStream()
    bound = kernels.plain.bind(grid=grid, block=block, stream=stream)
    grid[0], stream.cuda_stream = 9, 9
    block.append(2)
    for _ in range(2):
        bound()
    expected = ["grid=2,3,1", "block=4,1,1", "shared=0", "stream=7"]
    assert [launch.split()[2:6] for launch in launches()] == [expected] * 2


@under_driver(kernels="typed.kernels")
def test_threads_launch_at_the_same_time() -> None:
    device_arrays.import_torch()
    sys.setswitchinterval(1e-6)
    bound = kernels.plain.bind(grid=2, block=32, stream=7)
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        tensors = [Tensor(np.zeros(4, dtype)) for dtype in ("f4", "f8")]
        barrier.wait()
        for i in range(number, 2000, 8):

            class Value(ctypes.Structure):
                _fields_ = (("x", ctypes.c_int64),)

            kernels.plain(i, 16, **one, stream=9)
            bound(x=16, n=i)
            kernels.s(Value(i), **one)
            kernels.t(tensors[i % 2], i, **one)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    assert has_gil == (not sysconfig.get_config_var("Py_GIL_DISABLED"))
    launched = [launch.split() for launch in launches()]
    numbers = [i.to_bytes(4, "little").hex() for i in range(2000)]
    found = {
        name: sorted(words[-1] for words in launched if words[1] == name) for name in ("s", "t", "other")
    }
    assert found["s"] == sorted(f"{number}{'00' * 4}" for number in numbers)
    assert found["t"] == sorted(numbers[::2])
    assert found["other"] == sorted(numbers[1::2])
    for stream in ("stream=9", "stream=7"):
        assert sorted(words[7] for words in launched if words[5] == stream) == sorted(numbers)
    assert len(launched) == 8000


@under_driver(kernels="typed.kernels")
def test_a_refused_call_does_not_choose_the_kernel_of_the_next() -> None:
    refused = failure(kernels.ov, Tensor(np.zeros(4), device=-1), 1, **one)
    assert refused.startswith("ArgumentError: ")
    kernels.ov(Tensor(np.zeros(4)), 1, **one)
    assert [line.split()[1] for line in launches()] == ["second"]


@under_driver(kernels="typed.kernels")
def test_structures_that_convert_themselves_are_read_carefully() -> None:
    class Number(ctypes.Structure):
        _fields_ = (("x", ctypes.c_int),)

        def __index__(self) -> int:
            return 3

    kernels.real(1.0, **one)
    for _ in range(2):
        assert "expected float, found" in failure(kernels.real, Number(3), **one)
    assert len(launches()) == 1
