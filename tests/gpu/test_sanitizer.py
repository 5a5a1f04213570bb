"""Programs under ``compute-sanitizer``, which reports every driver call that fails: none of ours does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cuda_ext
from tests.fixtures.loader import CHECKOUT

SANITIZER = shutil.which("compute-sanitizer", path=f"{os.environ['PATH']}:/usr/local/cuda/bin")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
    pytest.mark.skipif(SANITIZER is None, reason="there is no compute-sanitizer"),
]

PRELUDE = r'''
import numpy as np
import cuda_ext

kernels = cuda_ext.compile("""
    struct Job { float* x; float by; };
    template <class T> __global__ void scale(int n, T a, T* x) {
      const int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) x[i] *= a;
    }
    __device__ float buffer[1000];
    __constant__ float weights[4];
    extern "C" __global__ void run(Job job) { job.x[threadIdx.x] = job.by; }
    extern "C" __global__ void count() { buffer[threadIdx.x] += weights[0]; }
""", architectures=["native"], instantiate=["scale<float>"])
x = np.ones(1000, "f4")
'''

PROGRAMS = {
    "numpy arrays": """
kernels.scale["float"](1000, 2.0, x, threads=1000)
large = np.ones(5_000_000, "f4")  # through page-locked memory
with cuda_ext.device_scope():
    for _ in range(3):
        kernels.scale["float"](large.size, 2.0, large, threads=large.size)
assert x[999] == 2 and large[-1] == 8
""",
    "polling a pending launch": """
pending = kernels.scale["float"](1000, 2.0, x, threads=1000, wait=False)
while not pending.done:
    pass
pending.wait()
""",
    "a pending launch": """
pending = kernels.scale["float"](1000, 2.0, x, threads=1000, wait=False)
pending.wait()
assert pending.done and x[0] == 2
""",
    "variables, addresses and structures": """
import struct
kernels.weights.copy_from(np.full(4, 3, "f4"))
kernels.buffer.copy_from(np.ones(1000, "f4"))
bound = kernels.scale["float"].bind(grid=4, block=256)
for _ in range(3):
    kernels.count(grid=1, block=10)
    kernels.scale["float"](10, 2.0, kernels.buffer.address, threads=10)
    bound(10, 0.5, kernels.buffer.address)
    kernels.run(struct.pack("Qf4x", kernels.buffer.address + 400, 7), grid=1, block=1)
assert kernels.buffer.numpy()[[0, 50, 100]].tolist() == [10, 1, 7]
print(kernels.count.attributes(), kernels.count.occupancy(256))
""",
    "threads and streams": """
from concurrent.futures import ThreadPoolExecutor
from cuda_ext.runtime.driver.driver import open_driver
from cuda_ext.runtime.driver.functions import OUT
device = open_driver().device(0)
with device.current():
    stream = device.driver.query("cuStreamCreate", OUT, 1)
kernels.count(grid=1, block=10)
with ThreadPoolExecutor(4) as pool:
    for _ in range(20):
        pool.submit(kernels.count, grid=1, block=10)
        pool.submit(kernels.count, grid=1, block=10, stream=stream)
""",
    "clusters, cooperative and dependent launches": """
for more in ({"cooperative": True}, {"dependent": True}, {"shared": 100 << 10}):
    kernels.count(grid=2, block=32, **more)
    kernels.count(grid=2, block=32, **more)
""",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_call_of_the_driver_fails(tmp_path: Path, program: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(PRELUDE + PROGRAMS[program])
    done = subprocess.run(
        [str(SANITIZER), "--report-api-errors", "all", sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ERROR SUMMARY: 0 errors" in done.stdout, done.stdout
