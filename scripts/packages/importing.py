"""What importing the installed package takes in a fresh process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from bench._processes import quiet_environment, run

from packages.environments import Place

__all__ = ["Imported", "import_once", "install"]

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
    """Milliseconds: of the framework, and then of the package."""

    framework: float
    package: float


def install(place: Place, wheels: Path) -> None:
    """Install the wheel in `wheels`, and import it once, which fills the system's file cache."""
    place.pip("install", "--no-deps", "--force-reinstall", *wheels.glob("*.whl"))
    import_once(place)


def import_once(place: Place) -> Imported:
    framework = place.contender.framework
    script = _SCRIPT.format(framework=f"import {framework}" if framework else "")
    told = run([place.python, "-c", script], directory=place.python.parent, environment=quiet_environment())
    return Imported(*json.loads(told.output))
