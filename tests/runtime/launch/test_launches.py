"""Launches under the fake driver: configurations and arguments reach the driver, invalid ones do not."""

from __future__ import annotations

import sysconfig
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuda_ext.errors import ArgumentError
from cuda_ext.facts.kernels import Kernel, Parameter
from cuda_ext.facts.manifest import Source, Unit
from cuda_ext.runtime.launch.configuration import check_extents
from cuda_ext.runtime.launch.streams import GivenStream
from tests.fixtures.loader import (
    AXPY,
    SAMPLE,
    Run,
    run_script,
    signature,
    single_image,
    write_module,
    write_package,
)
from tests.fixtures.messages import Messages

WithDriver = Callable[..., Run]
host_compiler = pytest.mark.host_compiler


class CoreStream:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 7


class TorchStream:
    cuda_stream = 7


class CupyStream:
    ptr = 7


LARGEST = (2147483647, 65535, 65535)


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
    "grid=1, threads=5": "threads: counts all threads of the grid; give either that or grid",
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
    "grid=1057, block=256, cooperative=True": "grid: expected at most 1056 blocks, since cooperative ones",
    "grid=1, block=1, threds=5": "no parameter 'threds' is left to be given by name; did you mean 'threads'?",
}


@host_compiler
def test_unsupported_configurations_are_refused(with_driver: WithDriver) -> None:
    calls = "".join(
        f"        caught(kernels.plain, {launch})\n        caught(kernels.warm, {launch})\n"
        for launch in WRONG_LAUNCHES
    )
    run = with_driver(
        f"""
        from sample import kernels as sample
        class kernels:
            plain = sample.plain
            warm = sample.tiled
        kernels.warm(grid=1, block=1)
{calls}
        """
    )
    assert len(run.launches) == 1
    cold, warm = run.output[::2], run.output[1::2]
    for found in (cold, warm):
        for line, message in zip(found, WRONG_LAUNCHES.values(), strict=True):
            assert line.startswith("ArgumentError: ")
            assert message.replace("232448", "191488") in line.replace("232448", "191488")


@host_compiler
def test_a_launch_reaches_the_driver_unchanged(with_driver: WithDriver, messages: Messages) -> None:
    run = with_driver(
        """
        from sample import kernels
        print(kernels.axpy["float"](3, 2.5, 0x10, None, grid=(4, 5), block=(32, 2, 3), stream=9, shared=100))
        kernels.ns.fill(x=0x20, value=-1, grid=1, block=64)
        kernels["ov(int)"](7, grid=1, block=1)
        kernels.plain(grid=2, block=1, cooperative=True)
        """
    )
    assert run.output == ["None"]
    messages(*run.launches)
    assert run.calls.count("cuLibraryLoadData") == 1


@host_compiler
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


@host_compiler
def test_a_first_launch_imports_no_slow_module(with_driver: WithDriver) -> None:
    for compiled in ("launch._launch", "driver._calls"):
        pytest.importorskip(f"cuda_ext.runtime.{compiled}")
    script = """
        import sys
        sys.path[:0] = sys.argv[1:]
        from sample import kernels
        axpy = kernels.axpy["float"]
        axpy(3, 2.5, 0x10, None, grid=4, block=32)
        # The manifest takes json; programs that launch have loaded typing, ctypes and contextlib with numpy.
        slow = {
            *("asyncio", "copy", "dataclasses", "difflib", "hashlib", "importlib", "inspect", "logging"),
            *("pathlib", "pickle", "subprocess", "tempfile", "threading", "weakref"),
        }
        print(sorted(slow & sys.modules.keys()))
        print(sum(name.startswith("cuda_ext") for name in sys.modules))
    """
    # Without site-packages, whose .pth files may import anything.
    run = with_driver(
        f"""
        import os, subprocess
        paths = os.environ["PYTHONPATH"].split(os.pathsep)
        subprocess.run([sys.executable, "-I", "-S", "-c", {textwrap.dedent(script)!r}, *paths], check=True)
        """
    )
    slow, count = run.output
    assert slow == "[]"
    assert int(count) <= 26
    assert len(run.launches) == 1


@host_compiler
def test_a_first_launch_with_wrong_arguments_is_refused_before_a_missing_image(
    with_driver: WithDriver,
) -> None:
    run = with_driver(
        """
        from sample import kernels
        caught(kernels.plain, 1, grid=1, block=1)
        caught(kernels.plain, grid=1, block=1)
        """,
        capability=75,
    )
    assert run.output[0].startswith("ArgumentError: expected no arguments, found 1")
    assert run.output[1].startswith("NoImageError: ")


@host_compiler
def test_parameters_may_have_any_names(with_driver: WithDriver, tmp_path: Path) -> None:
    names = ("a1", "a0", "self", "absent", "shared")
    kernel = Kernel("odd", "odd", 0, signature(*(f"integer 4 int {name}" for name in names)))
    write_module(tmp_path, "odd.kernels", [kernel])
    run = with_driver(
        """
        from odd import kernels
        bound = kernels.odd.bind(grid=1, block=1)
        given = {"a1": 1, "a0": 2, "self": 3, "absent": 4}
        for _ in range(3):
            kernels.odd(1, 2, 3, 4, 5, grid=1, block=1)
            bound(1, 2, 3, 4, 5)
            caught(kernels.odd, **given, grid=1, block=1)
            caught(bound, 1, 2, 3, 4, a4=5)
        """
    )
    packed = " ".join(f"{number:02x}000000" for number in range(1, 6))
    assert [launch[-len(packed) :] for launch in run.launches] == [packed] * 6
    messages = ["missing: shared", "no parameter 'a4' is left to be given by name"] * 3
    assert all(expected in line for expected, line in zip(messages, run.output, strict=True))


@host_compiler
@pytest.mark.parametrize("in_c", [True, False])
def test_an_interrupted_launch_is_not_repeated(with_driver: WithDriver, in_c: bool) -> None:
    run = with_driver(
        f"""
        import signal
        if not {in_c}:
            sys.modules["cuda_ext.runtime.launch._launch"] = None
        from sample import kernels
        launched, interrupted = 0, 0

        class Interrupt(BaseException):
            pass

        def interrupt(*_):
            raise Interrupt

        kernels.ns.fill(1, 2, grid=1, block=1)
        signal.signal(signal.SIGALRM, interrupt)
        while interrupted < 200:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001)
                while True:
                    kernels.ns.fill(1, 2, grid=1, block=1)
                    launched += 1
            except Interrupt:
                interrupted += 1
        print(launched)
        """
    )
    launched = int(run.output[0]) + 1
    # An interrupted one may have been launched, but never twice.
    assert launched <= len(run.launches) <= launched + 200


@host_compiler
def test_wrong_arguments_never_reach_the_driver(with_driver: WithDriver) -> None:
    run = with_driver(
        """
        from sample import kernels
        axpy = kernels.axpy["float"]
        caught(axpy, 2**31, 2.5, 0, 0, grid=1, block=1)
        caught(axpy, 3, 2.5, 0, grid=1, block=1)
        caught(axpy, 3, 2.5, 0, 0, grid=0, block=1)
        caught(axpy, 3, 2.5, 0, 0, grid=1, block=2048)
        caught(kernels.axpy, 3, 2.5, 0, 0, grid=1, block=1)
        caught(kernels.weights.copy_from, b"short")
        """
    )
    assert all(line.startswith("ArgumentError: ") for line in run.output)
    assert run.output[0].endswith(f"found 2147483648   in a launch of {AXPY.signature}")
    assert run.launches == []


@host_compiler
def test_the_context_is_the_current_one_or_that_of_the_first_device(with_driver: WithDriver) -> None:
    run = with_driver(
        """
        from cuda.bindings import driver
        from sample import kernels
        kernels.plain(grid=1, block=1)
        kernels.plain(grid=1, block=1)
        print(int(driver.cuCtxGetCurrent()[1]))
        context = driver.cuDevicePrimaryCtxRetain(1)[1]
        driver.cuCtxPushCurrent(context)
        kernels.plain(grid=1, block=1)
        print(int(driver.cuCtxGetCurrent()[1]) == int(context))
        """,
        devices=2,
    )
    assert run.output == ["0", "True"]
    assert [launch.partition("device=")[2] for launch in run.launches] == ["0", "0", "1"]
    assert run.calls.count("cuLibraryLoadData") == 1


@host_compiler
@pytest.mark.parametrize("in_c", [True, False])
def test_a_warm_launch_runs_on_the_gpu_of_its_arrays(with_driver: WithDriver, in_c: bool) -> None:
    run = with_driver(
        f"""
        if not {in_c}:
            sys.modules["cuda_ext.runtime.launch._launch"] = None
        from cuda.bindings import driver
        from sample import kernels

        class Tensor:
            dtype = "float32"
            is_cuda = True
            def __init__(self, device):
                self.device = device
            def data_ptr(self):
                return 0x1000 * (1 + self.device)
            def get_device(self):
                return self.device

        axpy = kernels.axpy["float"]
        bound = axpy.bind(grid=2, block=1)
        contexts = [driver.cuDevicePrimaryCtxRetain(i)[1] for i in (0, 1)]
        for current in (None, 0, 1):
            if current is not None:
                driver.cuCtxPushCurrent(contexts[current])
            for device in (1, 0, 1, 0):
                for stream in (None, 0, 9 + 1000 * device):
                    axpy(3, 2.5, Tensor(device), Tensor(device), grid=1, block=1, stream=stream)
                bound(3, 2.5, Tensor(device), Tensor(device))
            caught(axpy, 3, 2.5, Tensor(0), Tensor(1), grid=1, block=1)
            found = int(driver.cuCtxGetCurrent()[1])
            print(found == (0 if current is None else int(contexts[current])))
        """,
        devices=2,
    )
    assert run.output[1::2] == ["True"] * 3
    assert all("argument 'y': is on GPU 1, and 'x' is on GPU 0" in line for line in run.output[::2])
    placed = [launch.partition("device=")[2][0] for launch in run.launches]
    assert placed == ["1", "1", "1", "1", "0", "0", "0", "0"] * 6


@host_compiler
def test_a_failed_launch_leaves_no_context_behind(with_driver: WithDriver) -> None:
    run = with_driver(
        """
        from cuda.bindings import driver
        from sample import kernels
        caught(kernels.plain, grid=1, block=1)
        print(int(driver.cuCtxGetCurrent()[1]))
        """,
        fail="cuLaunchKernel=1",
    )
    assert run.output[1] == "0"


@host_compiler
def test_lowered_names_belong_to_the_image(with_driver: WithDriver, messages: Messages) -> None:
    run = with_driver(
        """
        from sample import kernels
        kernels.plain(grid=1, block=1)
        caught(kernels.tiled, grid=1, block=1)
        """,
        capability=86,
    )
    assert [launch.split()[1] for launch in run.launches] == ["plain_of_sm_80"]
    messages(*run.output)


@host_compiler
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


@host_compiler
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


@host_compiler
def test_shared_memory_beyond_the_default_is_allowed_when_asked_for(
    with_driver: WithDriver, messages: Messages
) -> None:
    run = with_driver(
        """
        from sample import kernels
        for size in (48 << 10, 100000, 60000, 232448):
            kernels.plain(grid=1, block=1, shared=size)
        kernels.tiled(grid=1, block=1)
        kernels.tiled(grid=1, block=1, shared=8 << 10)
        kernels.tiled(grid=1, block=1, shared=(8 << 10) + 1)
        caught(kernels.plain, grid=1, block=1, shared=232449)
        caught(kernels.tiled, grid=1, block=1, shared=232448)
        """
    )
    allowed = [call.split()[1:] for call in run.calls if call.startswith("cuKernelSetAttribute")]
    assert allowed == [
        ["plain", "8", "100000", "0"],
        ["plain", "8", "232448", "0"],
        ["tiled", "8", "8193", "0"],
    ]
    assert len(run.launches) == 7
    messages(*run.output)


@host_compiler
@pytest.mark.parametrize(
    ("code", "name", "note"),
    [
        (701, "FAKE_ERROR_701", ""),
        (719, "FAKE_ERROR_719", "; the fault may be of earlier work on this GPU"),
    ],
)
def test_a_refused_launch_names_its_configuration(
    with_driver: WithDriver, code: int, name: str, note: str
) -> None:
    run = with_driver(
        """
        from sample import kernels
        caught(kernels.axpy["float"], 3, 2.5, 0, 0, grid=(4, 2), block=128, shared=16)
        """,
        fail=f"cuLaunchKernel={code}",
    )
    assert run.output == [
        f"LaunchError: axpy<float>: cuLaunchKernel failed: {name} ({code}): fake description of "
        f"{code}; launched "
        f"with grid (4, 2, 1), block (128, 1, 1), 16 bytes of dynamic shared memory{note}"
    ]


def launch_typed(fake_driver: Path, tmp_path: Path, kernels: list[Kernel], script: str) -> Run:
    """Run `script` with a module ``typed.kernels`` of these `kernels`."""
    write_module(tmp_path, "typed.kernels", kernels)
    return run_script(f"from typed import kernels\n{script}", tmp_path, LD_LIBRARY_PATH=str(fake_driver))


@host_compiler
def test_an_option_is_no_parameter_of_the_same_name(fake_driver: Path, tmp_path: Path) -> None:
    kernel = Kernel("k", "k", 0, signature("pointer 8 float* x", "integer 4 int wait"))
    script = "for _ in range(2):\n    caught(kernels.k, 4096, wait=False, grid=1, block=1)"
    run = launch_typed(fake_driver, tmp_path, [kernel], script)
    assert all(line.startswith("ArgumentError: ") for line in run.output)
    assert run.launches == []


@host_compiler
def test_a_parameter_may_be_larger_than_launches_in_c_take(fake_driver: Path, tmp_path: Path) -> None:
    large = Parameter("s", "Large", "struct", 8192, 0, None, False)
    run = launch_typed(fake_driver, tmp_path, [Kernel("k", "k", 0, (large,))], "print(kernels.k.expression)")
    assert run.output == ["k"]


@host_compiler
@pytest.mark.parametrize("size", [1999, 2000, 4088, 4096, 32764])
@pytest.mark.parametrize("in_c", [True, False])
def test_structures_may_be_as_large_as_the_driver_takes(
    fake_driver: Path, tmp_path: Path, size: int, in_c: bool
) -> None:
    kernel = Kernel("k", "k", 0, (Parameter("s", "Large", "struct", size, 0, None, False),))
    script = f"""
if not {in_c}:
    sys.modules["cuda_ext.runtime.launch._launch"] = None
value = bytes(i % 251 for i in range({size}))
for _ in range(2):
    kernels.k(value, grid=1, block=1)
"""
    run = launch_typed(fake_driver, tmp_path, [kernel], script)
    packed = bytes(i % 251 for i in range(size)).hex()
    assert [launch.rpartition(" ")[2] == packed for launch in run.launches] == [True, True]


@host_compiler
@pytest.mark.parametrize("in_c", [True, False])
def test_a_bound_launch_keeps_the_configuration_of_its_call(with_driver: WithDriver, in_c: bool) -> None:
    run = with_driver(
        f"""
        if not {in_c}:
            sys.modules["cuda_ext.runtime.launch._launch"] = None
        from sample import kernels
        class Stream:
            cuda_stream = 7
        grid, block, stream = [2, 3], [4], Stream()
        bound = kernels.plain.bind(grid=grid, block=block, stream=stream)
        grid[0], stream.cuda_stream = 9, 9
        block.append(2)
        for _ in range(2):
            bound()
        """
    )
    assert [launch.split()[2:6] for launch in run.launches] == [
        ["grid=2,3,1", "block=4,1,1", "shared=0", "stream=7"]
    ] * 2


@host_compiler
def test_threads_launch_at_the_same_time(fake_driver: Path, tmp_path: Path) -> None:
    kernels = [
        Kernel("plain", "plain", 0, signature("integer 4 int n", "pointer 8 float* x")),
        Kernel("s", "s", 0, signature("struct 8 S s")),
        Kernel("t<float>", "t", 0, signature("pointer 8 float* x", "integer 4 int n")),
        Kernel("t<double>", "other", 0, signature("pointer 8 double* x", "integer 4 int n")),
    ]
    script = """
import ctypes, threading
import numpy as np
from tests.fixtures import device_arrays
device_arrays.import_torch()
sys.setswitchinterval(1e-6)
bound = kernels.plain.bind(grid=2, block=32, stream=7)
barrier = threading.Barrier(8)

def work(number):
    tensors = [device_arrays.Tensor(np.zeros(4, dtype)) for dtype in ("f4", "f8")]
    barrier.wait()
    for i in range(number, 2000, 8):
        class Value(ctypes.Structure):
            _fields_ = (("x", ctypes.c_int64),)
        kernels.plain(i, 16, grid=1, block=1, stream=9)
        bound(x=16, n=i)
        kernels.s(Value(i), grid=1, block=1)
        kernels.t(tensors[i % 2], i, grid=1, block=1)

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(getattr(sys, "_is_gil_enabled", lambda: True)())
"""
    run = launch_typed(fake_driver, tmp_path, kernels, script)
    assert run.output == [str(not sysconfig.get_config_var("Py_GIL_DISABLED"))]
    launches = [launch.split() for launch in run.launches]
    numbers = [i.to_bytes(4, "little").hex() for i in range(2000)]
    found = {
        name: sorted(words[-1] for words in launches if words[1] == name) for name in ("s", "t", "other")
    }
    assert found["s"] == sorted(f"{number}{'00' * 4}" for number in numbers)
    assert found["t"] == sorted(numbers[::2])
    assert found["other"] == sorted(numbers[1::2])
    for stream in ("stream=9", "stream=7"):
        assert sorted(words[7] for words in launches if words[5] == stream) == sorted(numbers)
    assert len(launches) == 8000


@host_compiler
def test_a_refused_call_does_not_choose_the_kernel_of_the_next(fake_driver: Path, tmp_path: Path) -> None:
    kernels = [
        Kernel("ov(float*, int)", "first", 0, signature("pointer 8 float* x", "integer 4 int n")),
        Kernel("ov(double*, float)", "second", 0, signature("pointer 8 double* x", "float 4 float a")),
    ]
    script = """
import numpy as np
from tests.fixtures.device_arrays import Tensor
caught(kernels.ov, Tensor(np.zeros(4), device=-1), 1, grid=1, block=1)
kernels.ov(Tensor(np.zeros(4)), 1, grid=1, block=1)
"""
    run = launch_typed(fake_driver, tmp_path, kernels, script)
    assert run.output[0].startswith("ArgumentError: ")
    assert [line.split()[1] for line in run.launches] == ["second"]


@host_compiler
def test_structures_that_convert_themselves_are_read_carefully(fake_driver: Path, tmp_path: Path) -> None:
    kernels = [Kernel("k", "k", 0, signature("float 4 float a"))]
    script = """
import ctypes
class Number(ctypes.Structure):
    _fields_ = (("x", ctypes.c_int),)
    def __index__(self):
        return 3
kernels.k(1.0, grid=1, block=1)
for _ in range(2):
    caught(kernels.k, Number(3), grid=1, block=1)
"""
    run = launch_typed(fake_driver, tmp_path, kernels, script)
    assert all("expected float, found" in line for line in run.output)
    assert len(run.launches) == 1
