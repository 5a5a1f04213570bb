"""Extras beside frameworks that pin CUDA's libraries: resolvers find versions for both."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fixtures.environments import run, uv

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="frameworks have GPUs on Linux"),
]

# With "===", pip passes builds for CPUs over, which have a version such as 2.13.0+cpu.
BESIDE = [
    ("cu13", ["torch===2.11.0"]),
    ("cu13", ["torch===2.12.1"]),
    ("cu13", ["torch===2.13.0"]),
    ("cu13", ["torch===2.14.1"]),
    ("cu13", ["torch===2.15.0"]),
    ("cu13", ["torch===2.11.0", "numba-cuda[cu13]", "cupy-cuda13x[ctk]"]),
    ("cu13", ["jax[cuda13]"]),
    ("cu13", ["cupy-cuda13x[ctk]"]),
    ("cu13", ["numba-cuda[cu13]"]),
    ("cu12", ["torch===2.6.0"]),
    ("cu12", ["torch===2.7.1"]),
    ("cu12", ["torch===2.8.0"]),
    ("cu12", ["torch===2.9.1"]),
    ("cu12", ["torch===2.10.0"]),
    ("cu12", ["jax[cuda12]"]),
    ("cu12", ["cupy-cuda12x[ctk]"]),
    ("cu12", ["numba-cuda[cu12]"]),
    ("nvcc-cu13", ["torch===2.11.0"]),
    ("cutile", ["torch===2.11.0"]),
    ("cu12,triton", ["torch===2.8.0"]),
    ("cu13,triton", ["torch===2.11.0"]),
    ("cu13,triton", ["torch===2.15.0"]),
]


def assert_complete(extra: str, versions: Mapping[str, str]) -> None:
    suffix = "-cu12" if extra.startswith("cu12") else ""
    nvrtc, runtime = (versions[f"nvidia-cuda-{name}{suffix}"].split(".")[:2] for name in ("nvrtc", "runtime"))
    assert nvrtc == runtime  # the headers are NVRTC's
    assert f"nvidia-cuda-cccl{suffix}" in versions


def test_uv_finds_versions(cuda_ext_wheel: Path, tmp_path: Path) -> None:
    extra, frameworks = BESIDE[0]
    wanted = tmp_path / "requirements.txt"
    wanted.write_text("\n".join([f"cuda-ext[{extra}] @ {cuda_ext_wheel.as_uri()}", *frameworks]))
    how = ("--quiet", "--no-header", "--no-annotate", "--no-config")
    found = uv("pip", "compile", *how, "--python", sys.executable, wanted, UV_CONSTRAINT="")
    assert_complete(extra, dict(re.findall(r"^(\S+)==(\S+)$", found, re.MULTILINE)))


@pytest.mark.slow
@pytest.mark.parametrize(("extra", "frameworks"), BESIDE)
def test_pip_finds_versions(extra: str, frameworks: list[str], cuda_ext_wheel: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    how = ("--dry-run", "--ignore-installed", "--only-binary", ":all:", "--report", report, "--quiet")
    cuda_ext = f"cuda-ext[{extra}] @ {cuda_ext_wheel.as_uri()}"
    # Constraints of this machine may exclude newer frameworks.
    no_constraints = {"PIP_CONSTRAINT": os.devnull}
    run(sys.executable, "-m", "pip", "install", *how, cuda_ext, *frameworks, **no_constraints)
    installed = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    assert_complete(extra, {metadata["name"]: metadata["version"] for metadata in installed})
