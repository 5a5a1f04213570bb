"""The example with a library of Triton kernels: built as it is, to the same bytes everywhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_ext.facts.manifest import loads
from tests.fixtures.projects import KERNELS, build, write_project

pytest.importorskip("triton", reason="Triton runs under Linux only")

EXAMPLE = Path(__file__).parents[2] / "examples" / "triton_library"
# It imports its package and its helpers, which import PyTorch, and has two kernels.
FILES = ("rms_norm",)


def _copy(directory: Path, files: tuple[str, ...]) -> Path:
    """Copy the example, with the tables of `files` alone if there are any."""
    root = Path(shutil.copytree(EXAMPLE, directory, ignore=shutil.ignore_patterns("kernels", "__pycache__")))
    head, *overrides = re.split(r"(?m)^(?=\[\[)", (root / "pyproject.toml").read_text())
    if files:
        names = ", ".join(f'"src/triton_library/ops/{file}.py"' for file in files)
        head = re.sub(r"sources = .*", f"sources = [{names}]", head)
        overrides = [each for each in overrides if any(f"/{file}.py" in each for file in files)]
    (root / "pyproject.toml").write_text(head + "".join(overrides))
    return root


def _build(root: Path, *options: str, **variables: str) -> dict[str, bytes]:
    """Build in a new process with an empty cache; return the files of the package."""
    environment = {**os.environ, "CUDAARCHS": "90-real", "CUDA_EXT_CACHE": f"{root}-cache", **variables}
    command = [sys.executable, "-m", "cuda_ext", "build", "--output", root / "out", *options]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    package = root / "out" / "triton_library" / "kernels"
    return {file.name: file.read_bytes() for file in package.iterdir() if file.is_file()}


def test_workers_and_pytorch_change_no_byte(tmp_path: Path) -> None:
    torch = tmp_path / "site" / "torch" / "__init__.py"
    torch.parent.mkdir(parents=True)
    torch.write_text("raise SystemExit('PyTorch was imported')")
    with_torch = _build(_copy(tmp_path / "one", FILES), "-j", "1", PYTHONPATH=str(tmp_path / "site"))
    assert with_torch == _build(_copy(tmp_path / "two", FILES), "-j", "2")


@pytest.mark.slow
def test_all_kernels_are_built_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDAARCHS", "90-real")
    files = build(_copy(tmp_path / "example", ()))["triton_library.kernels"].files
    manifest = loads(files["manifest.json"], "example")
    names = {kernel.expression.partition("<")[0] for kernel in manifest.named_kernels}
    assert len(names) == 53
    written = "".join(file.read_text() for file in EXAMPLE.glob("src/triton_library/ops/*.py"))
    decorated = re.findall(r"@triton\.jit.*\ndef ([a-z]\w*)\(", written)
    helpers = {"identity", "merge", "relu"}
    assert names == {*decorated} - helpers


HOOKED = """
import triton
import triton.language as tl

def zero(names):
    return lambda given: [given[name].zero_() for name in names]

ONE = triton.Config({"BLOCK": 128}, pre_hook=zero(["out"]))
CONFIGS = [ONE, triton.Config({"BLOCK": 256})]

@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def add(out, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + at % 128, tl.load(x + at, mask=at < n, other=0.0))

@triton.autotune([triton.Config({}, pre_hook=None)], key=["n"])
@triton.jit
def not_built(out, x, n, BLOCK: tl.constexpr):
    pass
"""


def test_hooks_of_configurations_are_said_to_be_left_out(tmp_path: Path) -> None:
    instantiation = "add(out: *fp32, x: *fp32, n: i32, BLOCK=128)"
    table = f'{KERNELS}sources = ["device/add.py"]\ninstantiate = ["{instantiation}"]\n'
    log: list[str] = []
    build(write_project(tmp_path / "project", table, {"device/add.py": HOOKED}), log)
    (said,) = [text for text in log if "pre_hook" in text]
    assert "device/add.py: configurations of add have a pre_hook, which no launch runs" in said
