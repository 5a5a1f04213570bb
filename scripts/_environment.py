"""The checkout, and virtual environments made with nothing but Python and pip.

Importing this module lets a script import the checkout's ``cuda_ext`` without installing it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


class Environment:
    """A virtual environment at `path`, created anew unless `reuse` is set and it exists."""

    def __init__(self, path: Path, *, reuse: bool = False) -> None:
        self.path = path
        scripts = "Scripts" if os.name == "nt" else "bin"
        self.python = path / scripts / ("python.exe" if os.name == "nt" else "python")
        if not (reuse and self.python.is_file()):
            venv.create(path, clear=True, with_pip=True)

    def run(self, *arguments: object, cwd: Path = ROOT, **variables: str) -> int:
        """Run this environment's Python; return the exit status."""
        command = [str(self.python), *map(str, arguments)]
        return subprocess.run(command, cwd=cwd, env={**os.environ, **variables}, check=False).returncode

    def pip(self, *arguments: object, **variables: str) -> None:
        """Run pip quietly; end the script if it fails."""
        variables.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        if status := self.run("-m", "pip", "-q", *arguments, **variables):
            sys.exit(status)


def step(text: str) -> None:
    """Print the heading of a step."""
    print(f"==> {text}", flush=True)
