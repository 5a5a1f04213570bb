"""What importing a generated module costs, beside a package with nothing in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median, quantiles

from _environment import ROOT

from launching.kernels import NAME

__all__ = ["measure"]

_SCRIPT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
_TIMES = 21


def measure(package: Path, empty: Path) -> dict[str, str]:
    """Both by turns, in fresh processes that find bytecode."""
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
    ours, nothing = (median(samples) for samples in taken.values())
    least, *_, most = quantiles(taken[NAME], n=10)
    return {
        "generated module": f"{ours:.2f} ({least:.2f} .. {most:.2f})",
        "empty package": f"{nothing:.2f}",
        "over an empty package": f"{ours - nothing:.2f}",
    }
