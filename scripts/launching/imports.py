"""Measure the import of a generated module, and that of an empty package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median, quantiles

from _environment import ROOT

from launching.kernels import NAME

_SCRIPT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
_TIMES = 21


def measure(package: Path, empty: Path) -> dict[str, str]:
    """Import both in turns, in new processes and with compiled bytecode."""
    (empty / "nothing").mkdir(parents=True)
    (empty / "nothing" / "__init__.py").touch()
    path = os.pathsep.join(map(str, (package, empty, ROOT)))
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    taken: dict[str, list[float]] = {NAME: [], "nothing": []}
    for _ in range(_TIMES):
        for name, samples in taken.items():
            command = [sys.executable, "-c", _SCRIPT.format(name)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            samples.append(1e3 * float(done.stdout))
    module, empty_package = (median(samples) for samples in taken.values())
    least, *_, most = quantiles(taken[NAME], n=10)
    return {
        "generated module": f"{module:.2f} ({least:.2f} .. {most:.2f})",
        "empty package": f"{empty_package:.2f}",
        "over an empty package": f"{module - empty_package:.2f}",
    }
