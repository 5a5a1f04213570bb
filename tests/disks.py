"""Real file systems for tests, mounted where that is allowed; elsewhere the test is skipped and says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

needs_mount = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("mount") is None,
    reason="only root on Linux with mount(8) can mount a file system",
)


@contextmanager
def mounted(directory: Path, *options: str) -> Iterator[Path]:
    """Mount a file system on `directory`, as mount(8) does with those options."""
    directory.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", *options, str(directory)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)
