"""scripts/compare_sass.py: the code of lean images is that of NVRTC, over a whole project."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from shutil import which

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_project_has_the_same_code_with_and_without_unused_variables() -> None:
    try:
        distribution("nvidia-cuda-nvdisasm")
    except PackageNotFoundError:
        if not which("nvdisasm"):
            pytest.skip("nvdisasm is not installed")
    command = [sys.executable, "scripts/compare_sass.py", "direct", "nvrtc", "tests/gallery/grid_sync"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("gallery.grid_sync: 4 identical; bytes [")
