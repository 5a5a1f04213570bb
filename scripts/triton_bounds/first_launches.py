"""The first launch in a new process: ours, and Triton's with a warm cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from _environment import ROOT

# The context and the tensors exist before the measurement; imports of the kernels count.
_BEGIN = """
import json, time, torch
x = torch.zeros(4, 1024, device="cuda")
out = torch.empty_like(x)
torch.cuda.synchronize()
began = time.perf_counter()
"""
_END = """
torch.cuda.synchronize()
print(json.dumps(1e3 * (time.perf_counter() - began)))
"""
_OURS = "from front_ends import kernels\nkernels.softmax(out, x, 1024, 1024, 1.0, BLOCK=1024, grid=4)"
_TRITON = (
    "from kernels.softmax import softmax\nsoftmax[(4,)](out, x, 1024, 1024, 1.0, BLOCK=1024, num_warps=8)"
)


def measure(package: Path, work: Path, rounds: int) -> dict[str, list[float]]:
    """The milliseconds from the import of the kernels to the first result, in turns."""
    places = (package, ROOT, ROOT / "examples" / "front_ends")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*map(str, places), os.environ.get("PYTHONPATH", "")]),
        "TRITON_CACHE_DIR": str(work / "triton-cache"),
        "PYTHONPYCACHEPREFIX": str(work / "bytecode"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    samples: dict[str, list[float]] = {"cuda_ext": [], "Triton, warm cache": []}
    for round_ in range(rounds + 1):  # the first fills Triton's cache and writes bytecode
        for name, script in zip(samples, (_OURS, _TRITON), strict=True):
            command = [sys.executable, "-c", _BEGIN + script + _END]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(done.stderr)
            if round_:
                samples[name].append(json.loads(done.stdout))
    return samples
