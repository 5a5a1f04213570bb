"""On a GPU, a recorded program computes what it does otherwise, and the examples' tests fill their tables."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

import cuda_ext
from cuda_ext.recording.records import DIRECTORY, read_records
from tests.fixtures.command_line import run
from tests.fixtures.projects import write_project
from tests.recording.test_examples import EXAMPLES, check_written_table, names
from tests.recording.test_recording import describe, record

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
]
pytest.importorskip("torch")

ADD = """
import triton
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.jit
def add(out, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
"""
PROGRAM = """
import sys
sys.path.insert(0, "device")
import torch
from add import add

x = torch.arange(1000, device="cuda", dtype=torch.float32)
for _ in range(3):
    out = torch.empty_like(x)
    add[lambda given: (-(-1000 // given["BLOCK"]),)](out, x, 1000)
    assert torch.equal(out, x + 1)
"""


def test_triton_goes_on_as_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a launch computes is right, and the runs that measure configurations are not recorded."""
    pytest.importorskip("triton")
    table = '[tool.cuda_ext.modules."p.kernels"]\nsources = ["device/*.py"]\n'
    monkeypatch.chdir(write_project(tmp_path, table, {"device/add.py": ADD, "program.py": PROGRAM}))
    launches, _, errors = record(tmp_path, "program.py")
    assert errors == ""
    (launch,) = launches
    assert describe(launch).startswith("3 device/add.py add(out: *fp32:16, x: *fp32:16, n: i32, BLOCK=")


@pytest.mark.slow
@pytest.mark.parametrize("example", ["ported/torch_conv/after", "ported/torch_scan/after", "front_ends"])
def test_the_examples_own_tests_fill_their_tables(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if example == "front_ends":
        pytest.importorskip("triton")
        pytest.importorskip("cuda.tile")
    root = Path(shutil.copytree(EXAMPLES / example, tmp_path / "project"))
    monkeypatch.setenv("CUDAARCHS", "90-real")
    built = names(root)
    program = [root / "check.py"]
    if example != "front_ends":
        tests = EXAMPLES / "ported" / "test_extensions.py"
        chosen = "after and " + ("conv" if "conv" in example else "scan")
        program = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, tests, "-k", chosen]
    path = os.pathsep.join([str(root / "src"), os.environ.get("PYTHONPATH", "")])
    command = ["record", "--project", root, "--", sys.executable, *program]
    status, output, errors = run(*command, PYTHONPATH=path)
    assert status == 0, output + errors
    assert read_records(root / DIRECTORY)
    check_written_table(root, built)
