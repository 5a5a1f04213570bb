"""``cuda-ext record`` runs programs and records their launches: without a GPU, or under the fake driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_ext.recording.records import DIRECTORY, Launch, read_records
from tests.fixtures.command_line import MODULE, run
from tests.fixtures.disks import mounted, needs_mount
from tests.fixtures.loader import write_package
from tests.fixtures.projects import KERNELS, write_project

pytest.importorskip("triton", reason="Triton runs under Linux only")

SCALE = """
import triton
import triton.language as tl

@triton.jit
def identity(x):
    return x

@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit(do_not_specialize=["seed"])
def scale(out, x: "const", xs, n, seed, factor, bias, F: tl.constexpr, BLOCK: tl.constexpr,
          EVEN: tl.constexpr, DTYPE: tl.constexpr = tl.float32):
    pass

@triton.autotune([triton.Config({"BLOCK": 64}, num_warps=8), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def tuned(x, n, BLOCK: tl.constexpr):
    pass
"""
PROGRAM = """
import sys
sys.path.insert(0, "device")
import numpy as np
import scale as kernels
from triton.tools.tensor_descriptor import TensorDescriptor

x = np.ones((4, 32), "float32")[:, :8]
for _ in range(3):
    kernels.scale[lambda given: (given["n"] // 4, 2)](
        x, x, (x, (2, 1 << 40)), 16, 32, 0.5, None, kernels.identity, BLOCK=16, num_warps=2)
kernels.scale[5](x, x, (x, (2, 1)), 17, 1, 1.0, x, "relu", 16, DTYPE=kernels.tl.float16, num_warps=4)
kernels.tuned[(1,)](x, True)
kernels.scale.warmup(x, x, (x,), 1, 1, 1, x, "relu", 16, grid=(1,))
"""


def record(root: Path, *program: str, code: int = 0, **variables: object) -> tuple[list[Launch], str, str]:
    """Run a Python program in `root`; return the launches and the output."""
    command = ("record", "--project", root, "--", sys.executable, *program)
    status, output, errors = run(*command, **variables)
    assert status == code, errors
    return read_records(root / DIRECTORY), output, errors


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    table = f'{KERNELS}sources = ["device/scale.py"]\n'
    monkeypatch.chdir(write_project(tmp_path, table, {"device/scale.py": SCALE, "program.py": PROGRAM}))
    return tmp_path


def describe(launch: Launch) -> str:
    """Return a launch in one line."""
    arguments = [
        f"{a.name} = {a.value}"
        if a.value
        else f"{a.name}: {a.dtype}{':16' * a.divisible} {a.shape} {a.strides}"
        for a in launch.arguments
    ]
    shape = [str(each) for each in (launch.grid, launch.block) if each]
    return f"{launch.times} {launch.source} {launch.instantiation} [{', '.join(arguments)}] {shape}"


def test_triton_without_a_gpu(project: Path) -> None:
    launches, output, errors = record(project, "program.py")
    x = "float32:16 (4, 8) (32, 1)"
    assert [describe(launch) for launch in launches] == [
        "3 device/scale.py scale(out: *fp32:16, x: *kfp32:16, xs: (*fp32:16, (i32, i64:16)), n: i32:16, "
        "seed: i32, factor: fp32, bias=None, F=identity, BLOCK=16, EVEN=True, DTYPE=fp32, num_warps=2) "
        f"[out: {x}, x: {x}, xs_0: {x}, xs_1_0 = 2, xs_1_1 = 1099511627776, n = 16, seed = 32, factor = 0.5] "
        "['(4, 2)']",
        "1 device/scale.py scale(out: *fp32:16, x: *kfp32:16, xs: (*fp32:16, (i32, i32)), n: i32, seed: i32, "
        "factor: fp32, bias: *fp32:16, F='relu', BLOCK=16, EVEN=False, DTYPE=fp16, num_warps=4) "
        f"[out: {x}, x: {x}, xs_0: {x}, xs_1_0 = 2, xs_1_1 = 1, n = 17, seed = 1, factor = 1.0, bias: {x}] "
        "['(5,)']",
        f"1 device/scale.py tuned(x: *fp32:16, n: i1, BLOCK=64, num_warps=8, num_ctas=1, "
        f"num_stages=3) [x: {x}, n = True] ['(1,)']",
    ]
    assert {(launch.kind, launch.module) for launch in launches} == {("triton", "scale")}
    assert "scale in device/scale.py: 4 launches, 2 different" in output
    assert "without a GPU: launches of Triton and cuTile are recorded and not executed, so the pro" in errors


def test_processes_and_runs_have_files_of_their_own(project: Path) -> None:
    """Forks, processes of Python, and a second run; a user's sitecustomize is executed too."""
    own = project / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('mine')\n")
    program = (
        "import os, subprocess, sys\nexec(open('program.py').read())\n"
        "if not os.fork():\n    exec(open('program.py').read())\n    os._exit(0)\nos.wait()\n"
        "subprocess.run([sys.executable, 'program.py'], check=True)\n"
    )
    path = os.pathsep.join([str(own), os.environ.get("PYTHONPATH", "")])
    first, output, _ = record(project, "-c", program, PYTHONPATH=path)
    assert output.count("mine\n") == 2
    assert len([*(project / DIRECTORY).iterdir()]) == 3
    assert [launch.times for launch in first] == [7, 3, 3]  # a fork that does not exit loses numbers
    again, _, _ = record(project, "program.py")
    assert [launch.times for launch in again] == [10, 4, 4]


def test_the_exit_code_is_that_of_the_program(project: Path) -> None:
    assert len(record(project, "-c", f"{PROGRAM}\nsys.exit(7)", code=7)[0]) == 3
    assert len(record(project, "-c", f"{PROGRAM}\nimport os; os.kill(os.getpid(), 9)", code=137)[0]) == 3
    status, _, errors = run("record", "--", "no-such-program")
    assert status == 1
    assert errors.endswith("no-such-program: cannot be started: No such file or directory\n")


def test_a_program_may_launch_nothing(project: Path) -> None:
    status, output, errors = run("record", "--", sys.executable, "-c", "raise SystemExit(3)")
    assert (status, output) == (3, "")
    assert f"{project / DIRECTORY}: there are no records; run a program that launches kernels" in errors


def test_sigterm_reaches_the_program(project: Path) -> None:
    wait = "import time; print('ready', flush=True); time.sleep(100)"
    command = [*MODULE, "record", "--", sys.executable, "-c", f"{PROGRAM}\n{wait}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert len(read_records(project / DIRECTORY)) == 3


@needs_mount
def test_a_full_disk_stops_recording_and_not_the_program(project: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=4k", "none") as small:
        many = (
            f"{PROGRAM}\nfor n in range(20): kernels.scale[5](x, x, (x,), 2, n, n, x, 'relu', 16)\nprint(n)"
        )
        status, output, errors = run(
            "record", "--records", small, "--", sys.executable, "-c", many, PYTHONPATH=""
        )
        assert status == 0, errors
        assert output.startswith("19\n")
        assert errors.count("No space left on device; this process records no further launches") == 1
        assert len(read_records(small)) >= 2


def test_a_launch_that_cannot_be_described_is_named(project: Path) -> None:
    launches, _, errors = record(project, "-c", f"{PROGRAM}\nkernels.tuned[(1,)](object(), 1)")
    assert len(launches) == 3
    assert (
        "cuda-ext record: a launch of tuned is not recorded: NotInferable: object is no type of an argument"
        in errors
    )


def test_a_process_records_the_first_of_many_launches_that_differ_in_numbers(project: Path) -> None:
    many = f"{PROGRAM}\nfor n in range(300): kernels.tuned[(1,)](x, 16 * n + 7)\nprint(n)"
    launches, output, errors = record(project, "-c", many)
    assert output.startswith("299\n")
    assert len(launches) == 203
    assert errors.count("cuda-ext record: records the first 200 different launches of tuned(") == 1


OWN = """
import numpy as np
from sample import kernels
from tests.fixtures.device_arrays import Array, Buffer

x, y = Array(np.ones((8, 4), "float32")[:, :2]), np.zeros(16)
for _ in range(3):
    kernels.axpy(5, 2.0, x, x, grid=2, block=(32, 2))
bound = kernels.axpy["float"].bind(grid=(1, 2, 3), block=1, shared=8)
bound(5, 2.0, x, x)
bound(16, 2.0, x, x)
kernels.axpy["double"](16, 2.0, y, y, threads=16)
kernels.axpy["float"](5, 2.0, 4096, Buffer(np.ones(8)), grid=1, block=1)
kernels.plain(grid=1, block=1)
"""


@pytest.mark.host_compiler
@pytest.mark.parametrize("in_c", [True, False])
def test_own_modules_under_the_driver(fake_driver: Path, tmp_path: Path, in_c: bool) -> None:
    """All launches are seen, also those that C would take otherwise."""
    write_project(tmp_path)
    write_package(tmp_path)
    hidden = "" if in_c else "import sys; sys.modules['cuda_ext.runtime.launch._launch'] = None\n"
    variables = {"LD_LIBRARY_PATH": fake_driver, "FAKE_CUDA_LOG": tmp_path / "calls"}
    (tmp_path / "calls").touch()
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    launches, _, errors = record(tmp_path, "-c", hidden + OWN, PYTHONPATH=path, **variables)
    assert errors == ""
    x = "x: float32 (8, 2) (4, 1), y: float32 (8, 2) (4, 1)"
    y = "x: float64 (16,) (1,), y: float64 (16,) (1,)"
    assert [describe(launch).replace(":16", "") for launch in launches] == [
        f"3 device/axpy.cu axpy<float> [n = 5, a = 2.0, {x}] ['(2, 1, 1)', '(32, 2, 1)']",
        f"1 device/axpy.cu axpy<float> [n = 5, a = 2.0, {x}] ['(1, 2, 3)', '(1, 1, 1)']",
        f"1 device/axpy.cu axpy<float> [n = 16, a = 2.0, {x}] ['(1, 2, 3)', '(1, 1, 1)']",
        f"1 device/axpy.cu axpy<double> [n = 16, a = 2.0, {y}] ['(1, 1, 1)', '(256, 1, 1)']",
        "1 device/axpy.cu axpy<float> [n = 5, a = 2.0, y:  None None] ['(1, 1, 1)', '(1, 1, 1)']",
        "1 device/axpy.cu plain [] ['(1, 1, 1)', '(1, 1, 1)']",
    ]
    assert {(launch.kind, launch.module) for launch in launches} == {("module", "sample.kernels")}
    assert [launch.shared for launch in launches] == [0, 8, 8, 0, 0, 0]
