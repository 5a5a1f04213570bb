"""What a build tool does in its process, measured from within.

``_child.py build ROOT OUTPUT`` or ``_child.py plan ROOT``, in a process of its own, because its start is part
of what is measured. Prints one line of JSON.
"""

from __future__ import annotations

import time

_BEGAN = time.perf_counter()

import json  # noqa: E402 - all that comes from here on is measured
import resource  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

import cuda_ext.builder.config.modules  # noqa: E402, F401 - what a project imports when it is needed
from cuda_ext.builder import session  # noqa: E402
from cuda_ext.builder.project import Project  # noqa: E402


def build(root: Path, output: Path) -> None:
    """As ``cuda_ext.integrations.setuptools`` does, after its options are read."""
    project = Project.load(root)
    assert project is not None
    for package in session.build_project(project):
        package.write(output.joinpath(*package.name.split(".")))


def plan(root: Path) -> None:
    """All that comes before the first compilation or look into the cache."""
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
