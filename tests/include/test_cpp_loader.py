"""The C++ loader: programs of ``tests/cpp``, compiled once and run under the fake driver."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuda_ext
from tests.fixtures.cpp_modules import LOADER, compile_cpp
from tests.fixtures.loader import CHECKOUT, Run
from tests.fixtures.messages import Messages
from tests.runtime.driver.test_driver import without_driver

pytestmark = [
    pytest.mark.xdist_group("cpp_loader"),
    pytest.mark.host_compiler,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the fake driver takes Linux"),
]

SOURCES = CHECKOUT / "tests" / "cpp"
MODULE = SOURCES / "sample.cpp", LOADER
NAMESPACE = f"cuda_ext::v{cuda_ext.__version__.replace('.', '_')}"
INCLUDES = [f"-I{SOURCES}", "-Wcast-qual", "-Wnon-virtual-dtor"]

Program = Callable[..., Run]


def compiled(*arguments: str | Path, check: bool = True) -> str:
    return compile_cpp(*INCLUDES, *arguments, check=check)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where programs and objects are."""
    return tmp_path_factory.mktemp("cpp")


@pytest.fixture(scope="session")
def module(built: Path) -> Path:
    """The module and the loader, as a static library for programs and for shared objects."""
    objects = [built / "sample.o", built / "loader.o"]
    for source, output in zip(MODULE, objects, strict=True):
        compiled("-O1", "-fPIC", "-c", source, "-o", output)
    subprocess.run(["ar", "rcs", built / "libsample.a", *objects], check=True, timeout=300)
    return built / "libsample.a"


@pytest.fixture(scope="session")
def program(built: Path) -> Path:
    sanitizers = "-fsanitize=address,undefined", "-fno-sanitize-recover=all"
    output = built / "program"
    compiled(*sanitizers, SOURCES / "program.cpp", *MODULE, "-o", output, "-ldl", "-pthread")
    return output


def run_program(
    program: Path,
    *arguments: str | Path,
    directory: Path,
    errors: tuple[str, ...] | None = (),
    **variables: str,
) -> Run:
    log = directory / "calls"
    log.write_text("")
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        [program, *arguments],
        env={**environment, "FAKE_CUDA_LOG": str(log), **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return Run.of(done.stdout, log, errors)


@pytest.fixture
def run(program: Path, fake_driver: Path, tmp_path: Path) -> Program:
    """Runs commands of the program under the fake driver; its settings are named without FAKE_CUDA_.

    The driver must give these `errors`; ``None`` is for commands that are mistakes.
    """

    def run(*commands: str, errors: tuple[str, ...] | None = (), **settings: object) -> Run:
        variables = {f"FAKE_CUDA_{name.upper()}": str(value) for name, value in settings.items()}
        variables["LD_LIBRARY_PATH"] = str(fake_driver)
        return run_program(program, *commands, directory=tmp_path, errors=errors, **variables)

    return run


NO_GPU = "NoDeviceError 100: the CUDA driver finds no GPU; see whether nvidia-smi lists one"


@without_driver
def test_without_a_driver_every_call_is_an_error(program: Path, tmp_path: Path) -> None:
    done = run_program(program, "plain", "axpy", "thread:plain", "available", directory=tmp_path)
    *messages, available = done.output
    assert len(set(messages)) == 1
    assert messages[0].startswith("NoDriverError 0: there is no CUDA driver on this machine (libcuda.so.1: ")
    assert messages[0].endswith("); launching kernels requires an NVIDIA GPU and its driver")
    assert available == "no"


@pytest.mark.parametrize(
    "settings",
    [
        {"fail": "cuInit=100"},
        {"devices": 0},
        {"fail": "cuInit=34"},
        {"fail": "cuGetProcAddress=34"},
        {"fail": "cuInit=3"},
        *({"fail": f"cuInit={code}"} for code in (802, 803, 804, 999)),
        {"fail": "cuDeviceGetCount=999"},
        {"version": 11080},
        {"lacks": "cuLibraryLoadData"},
    ],
    ids=str,
)
def test_an_unusable_driver_gives_the_reason_every_time(
    run: Program, settings: dict[str, Any], messages: Messages
) -> None:
    errors = ("error 500 of cuGetProcAddress",) if "lacks" in settings else ()
    done = run("plain", "plain", "thread:axpy", "symbol:weights", "available", errors=errors, **settings)
    *reasons, available = done.output
    assert len(reasons) == 4
    assert len(set(reasons)) == 1
    messages(reasons[0])
    assert available == "no"
    assert done.calls in ([], ["cuInit"])


def test_a_driver_from_before_12_0_tells_its_version(
    program: Path, tmp_path: Path, messages: Messages
) -> None:
    source = tmp_path / "libcuda.c"
    source.write_text("int cuDriverGetVersion(int* version) { *version = 11040; return 0; }")
    subprocess.run(
        ["cc", "-shared", "-fPIC", source, "-o", tmp_path / "libcuda.so.1"], check=True, timeout=300
    )
    messages(*run_program(program, "plain", directory=tmp_path, LD_LIBRARY_PATH=str(tmp_path)).output)


def test_the_variable_that_hides_devices_is_named(run: Program, messages: Messages) -> None:
    done = run("set:CUDA_VISIBLE_DEVICES=", "plain", fail="cuInit=100")
    messages(*done.output)


@pytest.mark.parametrize(
    ("kernel", "settings"),
    [
        ("plain", {}),
        ("plain", {"capability": 100, "version": 13050}),
        ("plain", {"capability": 89, "version": 13000}),
        ("separate", {"version": 12000}),
        ("plain", {"version": 12090}),
        ("small", {"version": 12040}),
        ("small", {"version": 12030}),
        ("plain", {"capability": 75}),
        ("later", {"capability": 75}),
        ("gemm", {"capability": 100}),
        ("plain", {"capability": 100}),
        ("plain", {"fail": "cuDevicePrimaryCtxRetain=2"}),
        ("plain", {"fail": "cuLibraryLoadData=209"}),
        ("plain", {"fail": "cuLibraryLoadData=222"}),
        ("plain", {"fail": "cuLaunchKernel=209"}),
        ("plain", {"fail": "cuLaunchKernel=222"}),
        ("plain", {"fail": "cuLibraryLoadData=200"}),
        ("plain", {"fail": "cuLibraryGetKernel=500"}),
        ("tiled", {"capability": 80}),
    ],
    ids=str,
)
def test_an_unusable_image_gives_the_reason(
    run: Program, kernel: str, settings: dict[str, Any], messages: Messages
) -> None:
    done = run(kernel, kernel, "available", **settings)
    *reasons, available = done.output
    messages(*sorted(set(reasons)))
    assert len(reasons) == 2 * len(set(reasons))
    assert available == "yes"
    assert done.calls.count("cuInit") == 1


def test_a_failed_load_is_repeated(run: Program) -> None:
    done = run("plain", "set:FAKE_CUDA_FAIL=", "plain", "plain", fail="cuLibraryLoadData=2")
    assert len(done.output) == 1
    assert done.output[0].startswith("LoadError 2: ")
    assert len(done.launches) == 2
    assert done.calls.count("cuLibraryLoadData") == 2


def test_arguments_arrive_as_they_are(run: Program) -> None:
    done = run("axpy", "axpy_double", "ov_int", "ov_float", "move", "named_axpy", "raw")
    assert done.output == []
    arguments = [launch.partition("device=0")[2].split() for launch in done.launches]
    expected = [
        struct.pack("<i f Q Q", 5, 2, 16, 32),
        struct.pack("<i", ord("n")) + struct.pack("<d Q Q", 0.5, 0, 8),
        struct.pack("<i", -1),
        struct.pack("<f", 1) + struct.pack("<Q", 64),
        struct.pack("<Q", 16) + struct.pack("<3f i ?", 1, 2, 3, 1, True) + struct.pack("<QQ", 7, 8),
        struct.pack("<i f Q Q", 5, 2, 0, 32),
        struct.pack("<i", 3),
    ]
    assert ["".join(values) for values in arguments] == [values.hex() for values in expected]


LAUNCH = "cuLaunchKernel plain grid=1,1,1 block=1,1,1 shared=0 stream=0 device=0"


@pytest.mark.parametrize(
    ("command", "launched"),
    [
        ("plain", LAUNCH),
        ("axpy", "cuLaunchKernel _Z4axpyIfEv grid=2,3,1 block=4,1,1 shared=0 stream=0 device=0 "),
        ("extents", "cuLaunchKernel plain grid=4,5,6 block=7,8,9 shared=11 stream=0 device=0"),
        ("stream:9", LAUNCH.replace("stream=0", "stream=9")),
        ("block:512", LAUNCH.replace("block=1,1,1", "block=512,2,1")),
        ("dependent", LAUNCH.replace("cuLaunchKernel", "cuLaunchKernelEx") + " dependent=1"),
        (
            "cluster:8",
            "cuLaunchKernelEx plain grid=32,1,1 block=1,1,1 shared=0 stream=0 device=0 cluster=8,1,1",
        ),
        (
            "cooperative:264",
            "cuLaunchKernelEx plain grid=264,1,1 block=1024,1,1 shared=0 stream=0 device=0 coop",
        ),
        (
            "everything",
            "cuLaunchKernelEx plain grid=4,2,1 block=8,1,1 shared=60000 stream=0 device=0 "
            "cooperative=1 dependent=1 cluster=2,1,1",
        ),
    ],
)
def test_a_launch_has_the_values_of_its_config(run: Program, command: str, launched: str) -> None:
    for commands in ([command], ["plain", command]):  # as the first, and when everything is loaded
        done = run(*commands)
        assert done.output == []
        assert done.launches[-1].startswith(launched)


@pytest.mark.parametrize(
    "command",
    [
        *("grid:0", "grid:-1", "huge_grid", "block:600", "block:1025", "narrow:257"),
        *("tiled:200000", "tiled:-1", "cluster:3", "cluster:32", "flat_cluster", "cooperative:265"),
        *("too_few", "none_taken", "too_wide"),
    ],
)
def test_unsupported_launches_are_reported(run: Program, command: str, messages: Messages) -> None:
    for commands in ([command], ["plain", command]):
        done = run(*commands, errors=None)
        messages(*done.output)
        assert len(done.launches) == len(commands) - 1


def test_a_gpu_without_clusters_is_an_error(run: Program, messages: Messages) -> None:
    done = run("plain", "cluster:2", errors=None, capability=80)
    messages(*done.output)


def limits_set(done: Run) -> list[str]:
    return [call.removeprefix("cuKernelSetAttribute ") for call in done.calls if "SetAttribute" in call]


def test_the_limit_of_shared_memory_is_raised_when_needed_and_never_lowered(run: Program) -> None:
    # 48 KiB are there without leave, and the kernel's own variables take 40 of them.
    assert limits_set(run("tiled:8192", "tiled:1", "shared:49152")) == []
    done = run("tiled:9000", "tiled:8000", "tiled:9000", "tiled:10000", "tiled:9500")
    assert limits_set(done) == ["tiled 8 9000 0", "tiled 8 10000 0"]
    assert len(done.launches) == 5
    # Nor less than the project set itself.
    assert limits_set(run("raise_limit:90000", "tiled:60000", "tiled:80000", "tiled:91000")) == [
        "tiled 8 90000 0",
        "tiled 8 90000 0",
        "tiled 8 91000 0",
    ]


def test_a_limit_that_the_project_lowers_is_raised_again(run: Program) -> None:
    done = run("tiled:10000", "set_shared:9000", "tiled:10000", "set_shared:100", "tiled:8000", "tiled:50")
    assert done.output == []
    assert [int(limit.split()[2]) for limit in limits_set(done)] == [10000, 9000, 10000, 100, 8000]
    assert len(done.launches) == 4


def test_a_lack_of_memory_is_an_error(run: Program) -> None:
    """Each allocation fails once. Only a launch of what is loaded allocates nothing."""
    for settings in ({}, {"devices": 2}, {"fail": "cuLaunchKernel=2"}):
        (counts,) = run("without_memory", errors=None, **settings).output
        first, again, _, _, *errors = counts.split()
        assert first == "some"
        assert again == ("none" if "fail" not in settings else "some")
        assert errors == [*7 * ["some"], "thrown"]


def test_large_clusters_are_permitted_once(run: Program) -> None:
    done = run("cluster:8", "cluster:16", "cluster:16", "cluster:8")
    assert done.output == []
    assert limits_set(done) == ["plain 14 1 0"]
    assert len(done.launches) == 4


def test_a_launch_that_failed_is_reported(run: Program, messages: Messages) -> None:
    done = run("plain", "axpy", fail="cuLaunchKernel=2")
    messages(done.output[0])
    messages(*run("everything", fail="cuLaunchKernelEx=2").output)


def test_a_fault_is_reported_with_all_errors_that_follow(run: Program, messages: Messages) -> None:
    done = run("plain", "plain", "axpy", "symbol:weights", fail="cuLaunchKernel=719@2,cuLibraryGetGlobal=719")
    messages(*done.output)


def test_a_unit_is_loaded_by_its_first_kernel_only(run: Program) -> None:
    done = run("plain", "axpy", "gemm", "gemm", "named:plain", "symbol:weights", "handle")
    assert done.output == ["36 bytes", "the same"]
    assert done.calls.count("cuLibraryLoadData") == 2
    assert done.calls.count("cuLibraryGetKernel plain") == 1


def test_a_library_is_unloaded_with_the_last_that_uses_it(run: Program) -> None:
    for command, devices in (("solver", 1), ("orphan", 1), ("solver", 2)):
        done = run(command, devices=devices)
        assert done.output == []
        assert done.launches
        assert done.calls[-1] == "cuLibraryUnload"
        assert done.calls.count("cuLibraryUnload") == 1


@pytest.mark.parametrize(
    "command",
    [
        *("named:plain", "named: :: plain", "named:plan", "named:quite_another", "named:axpy<int>"),
        *("named:axpy", "named:ov", "named:gemm<int>", "named:axpy<int", "symbol:weigths", "symbol:twice"),
        *("named:weights", "named:::ns::table", "symbol:plain", "symbol: ov( int )", "nameless"),
    ],
)
def test_names(run: Program, command: str, messages: Messages) -> None:
    done = run(command)
    messages(*done.output)
    assert done.launches == ([] if done.output else [LAUNCH])
    assert bool(done.calls) == bool(done.launches)


def test_integers_of_any_type_have_to_fit(run: Program, messages: Messages) -> None:
    done = run("wide:2147483647", "wide:2147483648", "wide:-2147483649", "unsigned:18446744073709551615")
    assert len(done.launches) == 1
    assert done.launches[0].split("device=0")[1].split()[0] == "ffffff7f"
    messages(*done.output)


def test_threads_are_divided_into_blocks(run: Program, messages: Messages) -> None:
    done = run(
        "threads:1000", "threads:1000", "threads:0", "threads_in:100", "threads:-1", "threads:1000000000000"
    )
    assert [launch.split()[2:4] for launch in done.launches] == [
        *2 * [["grid=4,1,1", "block=256,1,1"]],
        ["grid=1,1,1", "block=256,1,1"],
        ["grid=4,1,1", "block=32,1,1"],
    ]
    messages(*[message.partition("|")[0] for message in done.output])
    # Fast, once the kernel is loaded and its block is known.
    assert done.calls.count("cuLibraryLoadData") == 1


def test_other_attributes_reach_the_driver(run: Program, messages: Messages) -> None:
    done = run("launch_attribute:6", "launch_attribute:99", errors=None)
    assert done.launches == [LAUNCH.replace("cuLaunchKernel", "cuLaunchKernelEx") + " dependent=1"]
    messages(*done.output)


def test_a_prepared_kernel_is_launched_without_further_calls(run: Program) -> None:
    done = run("prepare:60000", "tiled:60000")
    (launch,) = done.launches
    assert limits_set(done) == ["tiled 8 60000 0"]
    assert done.calls[-1] == launch
    assert done.calls.index("cuLibraryGetKernel tiled") < done.calls.index(
        "cuKernelSetAttribute tiled 8 60000 0"
    )
    done = run("load", "plain", "gemm", version=13050)
    assert done.output == []
    assert done.calls[-2:] == done.launches
    # While a graph is captured, too, where a first launch allocates, copies and waits for nothing.
    done = run("load", "set:FAKE_CUDA_CAPTURING=9", "stream:9")
    assert done.calls[-1:] == done.launches
    done = run("set:FAKE_CUDA_CAPTURING=9", "stream:9", "stream:9")
    assert len(done.launches) == 2
    assert {call.split()[0] for call in done.calls} == {
        *("cuInit", "cuLibraryLoadData", "cuLibraryGetKernel", "cuLaunchKernel"),
        *("cuCtxPushCurrent", "cuCtxPopCurrent"),
    }
    # What is built for other GPUs alone, as tiled and gemm are, is left out.
    done = run("load", "plain", "separate", capability=80, version=13050)
    assert done.output == []
    assert done.calls[-2:] == done.launches


def test_variables_have_types(run: Program) -> None:
    done = run("weights")
    assert done.output == ["1 2 9"]
    assert [call for call in done.calls if "Memcpy" in call] == [
        *("cuMemcpyHtoDAsync 36 stream=0", "cuMemcpyDtoHAsync 36 stream=0"),
    ]
    # A copy in a stream is of the variable on the GPU of the stream.
    assert run("weights_in:1009", devices=2).output == ["9 0"]


def test_inline_namespaces_alone_are_left_out_of_names(run: Program) -> None:
    assert run("expression").output == ["k<x::__y<a::b>,x::z,x::__y>"]


def test_what_holds_nothing_is_an_argument_error(run: Program, messages: Messages) -> None:
    done = run("empty")
    messages(*done.output)
    assert len(done.launches) == 1


def test_results_can_be_constant(run: Program) -> None:
    done = run("constant")
    assert (done.output, done.launches) == (["plain 36"], [LAUNCH])


def test_occupancy(run: Program) -> None:
    figures, blocks, *_, refused = run("occupancy:256", "occupancy:0", errors=None).output
    assert (figures, blocks) == ("32 registers, 1024 threads", "256: 8 blocks of 256")
    assert refused.startswith("DriverCallError 1: cuOccupancyMaxActiveBlocksPerMultiprocessor failed")


def test_symbols_and_attributes(run: Program) -> None:
    done = run("symbol:weights", "symbol:ns :: table", "attribute:1", "attribute:99", errors=None)
    assert done.output[:3] == ["36 bytes", "4 bytes", "40960"]
    assert done.output[3].startswith("DriverCallError 1: cuKernelGetAttribute failed: ")
    done = run("symbol:table", "context:1", "symbol:table", devices=2, capability="90,80")
    assert done.output == ["90 bytes", "80 bytes"]


def test_the_first_gpu_is_taken_where_a_thread_has_no_context(run: Program) -> None:
    done = run("thread:plain", "thread:plain", "plain", "plain", "thread:stream:9", devices=2)
    assert done.output == []
    assert done.launches == [*4 * [LAUNCH], LAUNCH.replace("stream=0", "stream=9")]
    assert done.calls.count("cuDevicePrimaryCtxRetain 0") == 1
    assert done.calls.count("cuCtxSetCurrent 0") == 3
    assert done.calls.count("cuCtxPopCurrent") == done.calls.count("cuCtxPushCurrent 0") == 0


def test_kernels_run_where_context_or_stream_are(run: Program) -> None:
    done = run(
        *("plain", "context:1", "plain", "stream:9", "stream:1009", "plain", "context:0", "plain", "axpy"),
        *("tiled:10000", "tiled:10000", "context:1", "plain", "shared:60000", "shared:60000"),
        "thread:stream:1009",
        devices=2,
        capability="90,80",
    )
    assert done.output == []
    assert [(launch.split()[1], launch.split()[6]) for launch in done.launches] == [
        ("plain", "device=0"),
        ("plain_of_sm_80", "device=1"),
        ("plain", "device=0"),
        ("plain_of_sm_80", "device=1"),
        ("plain_of_sm_80", "device=1"),
        ("plain", "device=0"),
        ("_Z4axpyIfEv", "device=0"),
        ("tiled", "device=0"),
        ("tiled", "device=0"),
        *4 * [("plain_of_sm_80", "device=1")],
    ]
    assert limits_set(done) == ["tiled 8 10000 0", "plain_of_sm_80 8 60000 1"]
    assert done.calls.count("cuLibraryLoadData") == 1
    pushed = sum(call.startswith("cuCtxPushCurrent") for call in done.calls)
    assert pushed == done.calls.count("cuCtxPopCurrent") > 0


@pytest.mark.parametrize("devices", [2, 8])
def test_a_gpu_is_prepared_while_another_is_current(run: Program, devices: int) -> None:
    """Each GPU loads its own images, and launches in its streams load nothing more."""
    gpus = range(devices)
    capability = ",".join("80" if gpu % 2 else "90" for gpu in gpus)
    loads = [command for gpu in gpus for command in (f"context:{gpu}", "load")]
    launched = [
        command
        for gpu in gpus
        for command in (
            f"context:{devices - 1 - gpu}",
            f"stream:{1000 * gpu + 9}",
            f"thread:stream:{1000 * gpu + 9}",
        )
    ]
    done = run(
        *loads,
        *launched,
        f"weights_in:{1000 * (devices - 1) + 9}",
        devices=devices,
        capability=capability,
        version=13050,
    )
    assert done.output == ["9 0"]
    assert [launch.partition("device=")[2] for launch in done.launches] == [
        str(gpu) for gpu in gpus for _ in range(2)
    ]
    loaded = max(i for i, call in enumerate(done.calls) if call == "cuLibraryLoadData")
    assert loaded < done.calls.index(done.launches[0])
    assert sorted(call for call in done.calls if "Retain" in call) == [
        f"cuDevicePrimaryCtxRetain {gpu}" for gpu in gpus
    ]


def test_images_with_files_of_their_own_are_loaded_each(run: Program) -> None:
    commands = "separate", "context:1", "separate", "separate", "context:2", "separate"
    done = run(*commands, devices=3, capability="90,80,90")
    assert done.calls.count("cuLibraryLoadData") == 2
    assert len(done.launches) == 4
    assert run("separate", "context:1", "separate", devices=2).calls.count("cuLibraryLoadData") == 1


def test_a_gpu_without_the_kernel_is_an_error(run: Program, messages: Messages) -> None:
    done = run("tiled", "context:1", "tiled", "axpy", "small", devices=2, capability="90,80")
    messages(*[message.partition(";")[0] for message in done.output])
    assert [launch.split()[1] for launch in done.launches] == ["tiled", "_Z4axpyIfEv"]


FORKED = (
    "CUDA was used before this process was forked, and the driver does not survive that; use CUDA in child "
    "processes only, or have them start another program"
)


def test_a_child_of_a_process_that_used_cuda_gets_an_error(run: Program) -> None:
    # What was loaded is launched at once, and the driver refuses.
    done = run(
        "plain", "set:FAKE_CUDA_FAIL=cuLaunchKernel=3", "fork:plain", "fork:axpy", "fork:symbol:weights"
    )
    assert done.output == [f"DriverError 0: {FORKED}"] * 3
    assert "cuLibraryGetKernel _Z4axpyIfEv" not in done.calls
    done = run(
        "plain", "set:FAKE_CUDA_FAIL=cuCtxGetCurrent=3", "fork:gemm", "fork:tiled:10", "fork:available"
    )
    assert done.output == [*[f"DriverError 0: {FORKED}"] * 2, "no"]


def test_a_process_may_fork_before_it_uses_cuda(run: Program) -> None:
    done = run("fork:plain", "fork:plain", "plain", "fork:available")
    assert done.output == ["no"]
    assert len(done.launches) == 3
    assert done.calls.count("cuInit") == 3


def test_a_child_learns_why_there_is_no_driver(run: Program) -> None:
    assert run("plain", "fork:plain", devices=0).output == [NO_GPU.replace("100", "0")] * 2


def test_a_fork_while_another_thread_opens_the_driver_does_not_hang(run: Program) -> None:
    assert run("fork_while_opening:plain").output == [f"DriverError 0: {FORKED}"]


def test_projects_without_exceptions(built: Path, module: Path, fake_driver: Path, tmp_path: Path) -> None:
    program = built / "without_exceptions"
    options = "-std=c++20", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden"
    compiled(*options, SOURCES / "without_exceptions.cpp", module, "-o", program, "-ldl")
    where = str(fake_driver)
    done = run_program(program, directory=tmp_path, LD_LIBRARY_PATH=where)
    not_found = "sample.kernels has no kernel or symbol 'lain'; did you mean 'plain'?; it has: axpy<float>"
    assert done.output[:4] == ["launched", "launched", "launched", "0 0 expected 1 argument, found 0"]
    assert done.output[5:8] == ["launched", "1024", "36"]
    assert done.output[8].startswith(not_found)
    done = run_program(program, directory=tmp_path, LD_LIBRARY_PATH=where, FAKE_CUDA_VERSION="11080")
    assert done.output[0].startswith("4 0 the NVIDIA driver supports CUDA up to 11.8")
    assert done.output[-3:-1] == ["0", "0"]


def test_sixteen_threads_at_once(built: Path, fake_driver: Path, tmp_path: Path) -> None:
    program = built / "threads"
    compiled("-fsanitize=thread", SOURCES / "threads.cpp", *MODULE, "-o", program, "-ldl", "-pthread")
    for devices in "1", "3":
        # Loading takes so long that all of them ask for it.
        variables = {
            "FAKE_CUDA_DEVICES": devices,
            "FAKE_CUDA_LOADING": "50",
            "LD_LIBRARY_PATH": str(fake_driver),
        }
        done = run_program(program, directory=tmp_path, errors=None, **variables)
        assert done.output == []
        assert done.calls.count("cuInit") == 1
        assert done.calls.count("cuLibraryLoadData") == 2
        assert done.calls.count("cuLibraryGetKernel _Z4axpyIfEv") == 1
        assert len(done.launches) == 16 * 20 * 6
        limits = [int(text.split()[2]) for text in limits_set(done) if text.startswith("tiled 8")]
        assert limits == sorted(set(limits))
        assert limits[-1] == 10000 + 100 * 19 + 15


@pytest.mark.parametrize("scope", ["local", "global"])
def test_shared_objects_of_one_process_do_not_meet(
    shared_objects: tuple[Path, list[Path]], fake_driver: Path, tmp_path: Path, scope: str
) -> None:
    application, plugins = shared_objects
    done = run_program(application, scope, *plugins, directory=tmp_path, LD_LIBRARY_PATH=str(fake_driver))
    assert done.output == [
        "grid: expected at least 1 and at most (2147483647, 65535, 65535), found (0, 1, 1)",
        "  in a launch of plain()",
    ] * len(plugins)
    assert done.calls.count("cuInit") == done.calls.count("cuLibraryLoadData") == len(plugins)
    assert len(done.launches) == sum(range(2, 2 + len(plugins)))


@pytest.fixture(scope="session")
def shared_objects(built: Path, module: Path) -> tuple[Path, list[Path]]:
    """An application, and shared objects that hold the same module."""
    compiled("-std=c++20", "-fPIC", "-c", SOURCES / "plugin.cpp", "-o", built / "plugin.o")
    plugins = [built / "first.so", built / "second.so"]
    for plugin in plugins:
        compiled("-shared", built / "plugin.o", module, "-o", plugin, "-ldl")
    compiled(SOURCES / "application.cpp", "-o", built / "application", "-ldl")
    return built / "application", plugins


def printed(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def runs_code_at_start(object_file: Path) -> bool:
    sections = printed("objdump", "-h", object_file)
    assert ".text" in sections
    return re.search(r"\.init_array|\.ctors|\.preinit_array", sections) is not None


def exported_besides_exceptions(listed: str) -> list[str]:
    """Return our symbols that are not of exceptions, in what nm prints.

    Without optimisation, functions of the standard library such as std::move are functions.
    """
    names = [line.split(" ", 2)[2] for line in listed.splitlines() if "cuda_ext" in line or "sample" in line]
    names = [name for name in names if not name.startswith("attempt(")]
    visible = re.compile(rf"((typeinfo|vtable|typeinfo name) for )?{NAMESPACE}::\w*Error(::.*)?")
    moves = re.compile(r"\bstd::(move|swap|_*exchange)<")
    return [name for name in names if not visible.fullmatch(name) and not moves.search(name)]


def test_shared_objects_export_only_exceptions(shared_objects: tuple[Path, list[Path]]) -> None:
    listed = printed("nm", "-DC", "--defined-only", shared_objects[1][0])
    assert f"attempt({NAMESPACE}::LaunchConfig const&)" in listed
    # Complete, so that one shared object can catch the exceptions of another.
    assert f" typeinfo for {NAMESPACE}::ArgumentError\n" in listed
    assert exported_besides_exceptions(listed) == []


def test_no_symbol_keeps_a_plugin_loaded(shared_objects: tuple[Path, list[Path]]) -> None:
    """Without optimisation, too."""
    assert [line for line in printed("nm", "-C", shared_objects[1][0]).splitlines() if " u " in line] == []


def test_nothing_runs_before_main(module: Path, shared_objects: tuple[Path, list[Path]]) -> None:
    assert not runs_code_at_start(module)
    assert not runs_code_at_start(module.parent / "plugin.o")


def test_older_standards_are_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "older.cpp").write_text("#include <cuda_ext/interface.hpp>\n")
    found = compiled("-std=c++14", "-fsyntax-only", tmp_path / "older.cpp", check=False)
    first = next(line for line in found.splitlines() if "error" in line)
    assert "cuda-ext's headers need C++17: compile with -std=c++17 or newer" in first


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_arguments_and_types(standard: str) -> None:
    compiled(f"-std={standard}", "-fsyntax-only", SOURCES / "arguments.cpp")


@pytest.mark.skipif("clang" in os.environ.get("CXX", "g++"), reason="these are the words of gcc")
def test_wrong_arguments_do_not_compile() -> None:
    source = SOURCES / "wrong_arguments.cpp"
    found = compiled("-fsyntax-only", source, check=False).replace(f"{NAMESPACE}::", "")
    for number, line in enumerate(source.read_text().splitlines(), 1):
        _, wrong, reason = line.partition(";  ")
        if wrong:
            assert f"{source.name}:{number}:" in found, line
            assert reason.strip().removeprefix("// ") in found, line


def test_constants_out_of_range_do_not_compile(tmp_path: Path) -> None:
    source, output = SOURCES / "wrong_arguments.cpp", tmp_path / "constant.o"
    found = compiled("-O1", "-DCONSTANT", "-c", source, "-o", output, check=False)
    assert "this constant is out of range for the kernel's parameter" in found


def test_the_driver_is_declared_as_in_cuda_h() -> None:
    headers = [
        directory for directory in map(Path, sys.path) if (directory / "nvidia/cu13/include/cuda.h").exists()
    ]
    if not headers:
        pytest.skip("there is no cuda.h")
    compiled("-isystem", headers[0] / "nvidia/cu13/include", "-fsyntax-only", SOURCES / "cuda_h.cpp")
