"""Measure a build or a plan in this process.

``child.py build ROOT OUTPUT`` or ``child.py plan ROOT``. Each measurement runs in a new process, because
imports are part of it. Prints one line of JSON.
"""

from __future__ import annotations

import time

_BEGAN = time.perf_counter()

import json  # noqa: E402 - imports from here on are measured
import resource  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

import cuda_ext.builder.config.modules  # noqa: E402, F401 - a project imports it on first use
from cuda_ext.builder import session  # noqa: E402
from cuda_ext.builder.project import Project  # noqa: E402


def build(root: Path, output: Path) -> None:
    """Build as ``cuda_ext.integrations.setuptools`` does after reading its options."""
    project = Project.load(root)
    assert project is not None
    for package in session.build_project(project):
        package.write(output.joinpath(*package.name.split(".")))


def plan(root: Path) -> None:
    """Do everything that comes before the first compilation or cache lookup."""
    project = Project.load(root)
    assert project is not None
    session.plan(project)


def main(action: str, *paths: str) -> None:
    began = time.perf_counter()
    {"build": build, "plan": plan}[action](*map(Path, paths))
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({"imports": began - _BEGAN, "seconds": seconds, "peak_bytes": peak}))


if __name__ == "__main__":
    main(*sys.argv[1:])
