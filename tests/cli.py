"""The command line, run as people run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULE = (sys.executable, "-m", "cuda_ext")
SCRIPT = (str(Path(sys.executable).with_name("cuda-ext")),)


def run(*arguments: object, door: tuple[str, ...] = MODULE, **environ: object) -> tuple[int, str, str]:
    """Run ``cuda-ext`` on a terminal of 80 columns; its exit code, and what it wrote to the two streams."""
    variables = {name: str(value) for name, value in environ.items()}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [*door, *map(str, arguments)],
        env={**os.environ, "COLUMNS": "80", "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr
