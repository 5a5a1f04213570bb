"""Errors of the driver and of images, and their use by several threads and processes."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuda_ext
from cuda_ext.errors import CudaExtError
from cuda_ext.runtime.driver import driver
from tests.fixtures.loader import (
    AXPY,
    SAMPLE,
    Run,
    run_script,
    unit,
    write_package,
)
from tests.fixtures.messages import Messages
from tests.fixtures.under_driver import calls, failure, in_child, launches

WithDriver = Callable[..., Run]
host_compiler = pytest.mark.host_compiler
with_messages = pytest.mark.usefixtures("messages")
kernels: Any = None  # in the process of a test, the module
one: Any = {"grid": 1, "block": 1}


def under_driver(test: Callable[..., None]) -> Callable[..., None]:
    return host_compiler(pytest.mark.usefixtures("with_driver")(pytest.mark.under_driver(test)))


def driver_library_exists() -> bool:
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


without_driver = pytest.mark.skipif(driver_library_exists(), reason="this machine has a CUDA driver")


USE = """
from sample import kernels
import cuda_ext
for _ in range(100):
    try:
        kernels.plain(grid=1, block=1)
    except errors.CudaExtError as error:
        outcome = f"{type(error).__name__}: {error}"
    else:
        outcome = "launched"
print(outcome)
print(cuda_ext.gpu_available())
"""


@without_driver
def test_without_a_driver_every_call_raises_and_none_hangs(tmp_path: Path) -> None:
    write_package(tmp_path)
    message, available = run_script(USE, tmp_path).output
    assert message.startswith("NoDriverError: there is no CUDA driver on this machine (")
    assert message.endswith("launching kernels requires an NVIDIA GPU and its driver")
    assert available == "False"


@without_driver
def test_without_a_driver_a_launch_that_lacks_a_grid_says_so_in_few_frames(tmp_path: Path) -> None:
    write_package(tmp_path)
    script = """
    import traceback
    from sample import kernels
    for launch in ({}, {"threads": 5}):
        try:
            kernels.plain(**launch)
        except Exception as error:
            print(type(error).__name__, len(traceback.extract_tb(error.__traceback__)) < 5)
    """
    assert run_script(script, tmp_path).output == ["ArgumentError True", "NoDriverError True"]


def test_on_macos_kernels_can_be_inspected(tmp_path: Path, messages: Messages) -> None:
    write_package(tmp_path)
    script = "sys.platform = 'darwin'\n" + USE + "print(kernels.axpy['float'].expression)"
    messages(*run_script(script, tmp_path).output)


def launch_often(settings: dict[str, Any]) -> str:
    """Print and return what each of a hundred launches results in."""
    os.environ.update({f"FAKE_CUDA_{name.upper()}": str(value) for name, value in settings.items()})
    outcomes = set()
    for _ in range(100):
        try:
            kernels.plain(**one)
            outcomes.add("launched")
        except CudaExtError as error:
            outcomes.add(f"{type(error).__name__}: {error}")
    (found,) = outcomes
    print(found)
    return found


@under_driver
@with_messages
@pytest.mark.parametrize(
    "settings",
    [
        {"fail": "cuInit=100"},
        {"devices": 0},
        {"fail": "cuInit=34"},
        {"fail": "cuInit=3"},
        *({"fail": f"cuInit={code}"} for code in (802, 803, 804, 999)),
        {"fail": "cuInit=54321"},
        {"fail": "cuDeviceGetCount=999"},
        {"version": 11080},
    ],
    ids=str,
)
def test_an_unusable_driver_gives_the_reason_every_time(settings: dict[str, Any]) -> None:
    launch_often(settings)
    assert not cuda_ext.gpu_available()
    assert calls() == ["cuInit"]


@under_driver
@with_messages
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"capability": 100, "version": 13050},
        {"version": 12090},
        {"capability": 75},
        {"capability": 100},
        {"fail": "cuDevicePrimaryCtxRetain=2"},
        {"fail": "cuLibraryLoadData=209"},
        {"fail": "cuLibraryLoadData=222"},
        {"fail": "cuLibraryGetKernel=209"},
        {"fail": "cuLibraryLoadData=200"},
        {"fail": "cuLibraryGetKernel=500"},
    ],
    ids=str,
)
def test_an_unusable_image_gives_the_reason(settings: dict[str, Any]) -> None:
    found = launch_often(settings)
    # An error that a compilation on demand would avoid says why there is none.
    avoidable = ("NoImageError", "PtxTooNewError", "DriverTooOldError")
    assert ("; jit: off; " in found) == found.startswith(avoidable)
    assert cuda_ext.gpu_available()
    assert calls().count("cuInit") == 1
    assert len(launches()) == (100 if found == "launched" else 0)


@host_compiler
@pytest.mark.parametrize("code", [209, 221, 222])
def test_a_driver_that_does_not_compile_tile_ir_gives_the_reason(
    fake_driver: Path, tmp_path: Path, code: int
) -> None:
    module = SAMPLE._replace(module="tiles.kernels", units=(unit("axpy.cu", "tile_80"), *SAMPLE.units[1:]))
    write_package(tmp_path, module)
    script = "from tiles import kernels\ncaught(kernels.plain, grid=1, block=1)"
    fails = {"FAKE_CUDA_FAIL": f"cuLibraryLoadData={code}"}
    (message,) = run_script(script, tmp_path, LD_LIBRARY_PATH=str(fake_driver), **fails).output
    assert message.startswith(
        "TileIrError: tiles.kernels: of axpy.cu only Tile IR 13.3 fits this GPU, and the NVIDIA driver, "
        "which supports CUDA up to 13.0, does not compile it: cuLibraryLoadData failed: "
        f"FAKE_ERROR_{code} ({code}): "
    )
    assert "; jit: off; install a driver that supports CUDA 13.3, with its library nvidia-tileiras" in message


@under_driver
@with_messages
def test_the_variable_that_hides_devices_is_named() -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    launch_often({"fail": "cuInit=100"})


@host_compiler
@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda file: file.write_bytes(file.read_bytes()[:-9]),
        lambda file: file.write_bytes(file.read_bytes().replace(b"kernel", b"kerneI", 1)),
        lambda file: file.write_bytes(b""),
    ],
)
def test_a_damaged_image_never_reaches_the_driver(
    with_driver: WithDriver, tmp_path: Path, damage: Callable[[Path], Any], messages: Messages
) -> None:
    with_driver("pass")
    damage(tmp_path / "sample" / "kernels" / "axpy.fatbin")
    run = with_driver(USE)
    messages(run.output[0])
    assert "cuLibraryLoadData" not in run.calls


@under_driver
def test_a_unit_is_loaded_by_its_first_kernel_only() -> None:
    kernels.plain(**one)
    kernels.gemm(**one)
    kernels.gemm(**one)
    assert failure(kernels.later, **one).startswith(
        "PtxTooNewError: sample.kernels: of device/later.cu only PTX (compute_80)"
    )
    assert calls().count("cuLibraryLoadData") == 2


@host_compiler
def test_many_threads_can_make_the_first_use_of_a_module(with_driver: WithDriver) -> None:
    run = with_driver(
        """
        import threading
        sys.setswitchinterval(1e-6)
        start = threading.Barrier(32)

        def use(number):
            start.wait()
            from sample import kernels
            kernels.ns.fill(number, number, grid=1, block=1)
            kernels.tiled(grid=1, block=1, shared=10000 + number)

        threads = [threading.Thread(target=use, args=(number,)) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """
    )
    assert run.calls.count("cuInit") == 1
    assert run.calls.count("cuLibraryLoadData") == 1
    fills = [launch.split()[-2:] for launch in run.launches if "fill" in launch]
    assert sorted(fills) == [[struct.pack("<Q", n).hex(), struct.pack("<i", n).hex()] for n in range(32)]
    limits = [int(call.split()[3]) for call in run.calls if call.startswith("cuKernelSetAttribute")]
    assert limits == sorted(set(limits))
    assert limits[-1] == 10031


@under_driver
@with_messages
def test_a_child_of_a_process_that_used_cuda_gets_an_error() -> None:
    kernels.plain(**one)
    print(in_child(lambda: failure(kernels.plain, **one)))
    print(in_child(lambda: failure(lambda: kernels.weights.address)))
    kernels.plain(**one)
    assert len(launches()) == 2


@under_driver
def test_a_process_may_fork_before_it_uses_cuda() -> None:
    assert kernels.axpy["float"].signature == AXPY.signature
    for _ in range(3):
        assert in_child(lambda: kernels.plain(**one)) == "None"
    kernels.plain(**one)
    assert calls().count("cuInit") == 4


@under_driver
def test_a_fork_while_another_thread_opens_the_driver_does_not_hang() -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with driver.lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    warnings.simplefilter("ignore", DeprecationWarning)  # newer versions of Python warn of such forks
    refused = in_child(lambda: failure(kernels.plain, **one))
    assert refused.startswith("DriverError: CUDA was used before this process was forked")
    done.set()
    thread.join()
    kernels.plain(**one)
    assert len(launches()) == 1
