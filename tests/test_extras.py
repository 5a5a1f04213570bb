"""Extras beside frameworks that pin CUDA's libraries: pip's resolver finds versions for both."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.fixtures.environments import run

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="frameworks have GPUs on Linux"),
]
slow = pytest.mark.slow

# With "===", pip passes builds for CPUs over, which have a version such as 2.13.0+cpu.
BESIDE = [
    pytest.param("cu13", ["torch===2.11.0"]),
    pytest.param("cu13", ["torch===2.12.1"], marks=slow),
    pytest.param("cu13", ["torch===2.13.0"], marks=slow),
    pytest.param("cu13", ["torch===2.14.1"], marks=slow),
    pytest.param("cu13", ["torch===2.15.0"], marks=slow),
    pytest.param("cu13", ["torch===2.11.0", "numba-cuda[cu13]", "cupy-cuda13x[ctk]"], marks=slow),
    pytest.param("cu13", ["jax[cuda13]"], marks=slow),
    pytest.param("cu13", ["cupy-cuda13x[ctk]"], marks=slow),
    pytest.param("cu13", ["numba-cuda[cu13]"], marks=slow),
    pytest.param("cu12", ["torch===2.6.0"], marks=slow),
    pytest.param("cu12", ["torch===2.7.1"], marks=slow),
    pytest.param("cu12", ["torch===2.8.0"], marks=slow),
    pytest.param("cu12", ["torch===2.9.1"], marks=slow),
    pytest.param("cu12", ["torch===2.10.0"], marks=slow),
    pytest.param("cu12", ["jax[cuda12]"], marks=slow),
    pytest.param("cu12", ["cupy-cuda12x[ctk]"], marks=slow),
    pytest.param("cu12", ["numba-cuda[cu12]"], marks=slow),
    pytest.param("nvcc-cu13", ["torch===2.11.0"], marks=slow),
    pytest.param("cutile", ["torch===2.11.0"], marks=slow),
    pytest.param("cu13,triton", ["torch===2.15.0"], marks=slow),
]


@pytest.mark.parametrize(("extra", "frameworks"), BESIDE)
def test_an_extra_is_installed_beside(
    extra: str, frameworks: list[str], cuda_ext_wheel: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    how = ("--dry-run", "--ignore-installed", "--only-binary", ":all:", "--report", report, "--quiet")
    cuda_ext = f"cuda-ext[{extra}] @ {cuda_ext_wheel.as_uri()}"
    # Constraints of this machine may exclude newer frameworks.
    no_constraints = {"PIP_CONSTRAINT": os.devnull}
    run(sys.executable, "-m", "pip", "install", *how, cuda_ext, *frameworks, **no_constraints)
    installed = {
        item["metadata"]["name"]: item["metadata"] for item in json.loads(report.read_text())["install"]
    }
    suffix = "-cu12" if extra == "cu12" else ""
    nvrtc, runtime = (
        installed[f"nvidia-cuda-{name}{suffix}"]["version"].split(".")[:2] for name in ("nvrtc", "runtime")
    )
    assert nvrtc == runtime  # the headers are NVRTC's
    assert f"nvidia-cuda-cccl{suffix}" in installed
