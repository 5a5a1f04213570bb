"""Measure the import of the installed package in a new process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from bench.processes import benchmark_environment, run

from packages.environments import Place

__all__ = ["Imported", "measure_import", "install"]

_SCRIPT = """
import time
began = time.perf_counter()
{framework}
between = time.perf_counter()
import vector_kernels
print([1e3 * (between - began), 1e3 * (time.perf_counter() - between)])
"""


@dataclass(frozen=True, slots=True)
class Imported:
    """The import times of the framework and then of the package, in milliseconds."""

    framework: float
    package: float


def install(place: Place, wheels: Path) -> None:
    """Install the wheel in `wheels` there, and import it once to fill the file cache of the system."""
    place.pip("install", "--no-deps", "--target", wheels / "installed", *wheels.glob("*.whl"))
    measure_import(place, wheels)


def measure_import(place: Place, wheels: Path) -> Imported:
    """Import the package that :func:`install` has installed."""
    framework = place.contender.framework
    script = _SCRIPT.format(framework=f"import {framework}" if framework else "")
    completed = run(
        [place.python, "-c", script],
        directory=place.python.parent,
        environment=benchmark_environment(PYTHONPATH=wheels / "installed"),
    )
    return Imported(*json.loads(completed.output))
