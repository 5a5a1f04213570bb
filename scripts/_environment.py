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
            venv.create(path, clear=True)
            self.pip("install", "--no-compile", "pip")  # venv would compile all of it, for seconds

    def run(self, *arguments: object, cwd: Path = ROOT, **variables: str) -> int:
        """Run this environment's Python; return the exit status."""
        command = [str(self.python), *map(str, arguments)]
        return subprocess.run(command, cwd=cwd, env={**os.environ, **variables}, check=False).returncode

    def pip(self, *arguments: object, **variables: str) -> None:
        """Run the pip of this process quietly for this environment; end the script if it fails."""
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "-q", *map(str, arguments)]
        environment = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", **os.environ, **variables}
        if status := subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
            sys.exit(status)


def step(text: str) -> None:
    """Print the heading of a step."""
    print(f"==> {text}", flush=True)
