"""Measure each step from the start of a process to its first result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from _environment import ROOT
from bench.tables import format_spread

from launching.kernels import NAME

__all__ = ["measure"]

_SCRIPT = f"""
import time
steps = [("interpreter", time.time())]
def step(name):
    steps.append((name, time.time()))
import {NAME} as kernels
step("import of the module")
from cuda_ext.runtime.driver.driver import open_driver
driver = open_driver()
step("driver: cuda-bindings and cuInit")
device = driver.device(0)
device.context
step("primary context")
with device.current():
    x, y = (int(driver.call("cuMemAlloc", 128)) for _ in range(2))
    driver.call("cuMemsetD8", x, 0, 128)
    driver.call("cuMemsetD8", y, 0, 128)
step("memory, by hand")
axpy = kernels.axpy["float"]
step("manifest and look-up")
axpy(32, 2.0, x, y, grid=1, block=32)
step("first launch: image, kernel, launch")
with device.current():
    driver.call("cuCtxSynchronize")
step("result")
axpy(32, 2.0, x, y, grid=1, block=32)
step("second launch")
import json
print(json.dumps(steps))
"""
_TIMES = 7


def measure(package: Path) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (package, ROOT)))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    taken: dict[str, list[float]] = {}
    for _ in range(_TIMES):
        before = time.time()
        command = [sys.executable, "-c", _SCRIPT]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        steps = json.loads(done.stdout)
        for name, at in steps:
            taken.setdefault(name, []).append(1e3 * (at - before))
            before = at
        taken.setdefault("all", []).append(1e3 * (steps[-1][1] - steps[0][1]))
    return {name: format_spread(samples, 2) for name, samples in taken.items()}
