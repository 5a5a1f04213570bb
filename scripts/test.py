"""Install what the tests need, then run them: ``python scripts/test.py [pytest arguments]``.

Needs Python 3.11 and pip. The environment in ``.test`` is kept, and the next run updates it.
"""

from __future__ import annotations

import os
import shutil
import sys

from _environment import ROOT, Environment, step

WORK = ROOT / ".test"
# One more than cores: a test that waits, for a signal or a lock, leaves its core idle.
PROCESSES = str((os.cpu_count() or 1) + 1)
# In seconds. A test that hangs fails with its stack, and the others go on.
LONGEST_TEST = "900"
# A registry may be slow for a while, and no test is about that.
PATIENCE = {"UV_HTTP_RETRIES": "10", "UV_HTTP_TIMEOUT": "120"}
# Programs that tests run and pip cannot install, with their names.
PROGRAMS = {
    "a C++ compiler": ("g++", "clang++"),
    "ccache": ("ccache",),
    "Chromium": ("chromium", "chromium-browser", "google-chrome"),
}


def main(arguments: list[str]) -> int:
    step("preparing the environment")
    environment = Environment(WORK / "venv", reuse=True)
    environment.pip("install", "uv")  # much faster than pip
    packages = ("--editable", f"{ROOT}[cu13,nvcc-cu13,test]")
    if status := environment.run(
        "-m", "uv", "pip", "install", "--quiet", "--python", environment.python, *packages, **PATIENCE
    ):
        return status
    checks = {
        "ruff check": ("ruff", "check", "."),
        "ruff format": ("ruff", "format", "--check", "."),
        "mypy --strict": ("mypy",),
    }
    failed = []
    for name, command in checks.items():
        step(name)
        if environment.run("-m", *command):
            failed.append(name)
    step("pytest")
    # Most tests start Python, which must not compile our modules each time.
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(WORK / "bytecode")}
    if environment.run(
        "-m",
        "pytest",
        "--numprocesses",
        PROCESSES,
        "--timeout",
        LONGEST_TEST,
        *arguments,
        **bytecode,
        **PATIENCE,
    ):
        failed.append("pytest")
    if missing := [title for title, names in PROGRAMS.items() if not any(map(shutil.which, names))]:
        print(f"not installed, so some tests were skipped: {', '.join(missing)}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
