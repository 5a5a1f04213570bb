"""``CUDA_EXT_DEBUG=1`` on a real GPU: faults are attributed to their kernels, and correct launches run."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

import cuda_ext
from tests.fixtures.loader import run_script

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
]

PRELUDE = r'''
import warnings
warnings.simplefilter("default")  # libraries are imported below
import cuda_ext
from cuda_ext.runtime.driver.driver import open_driver
from cuda_ext.runtime.driver.functions import OUT

kernels = cuda_ext.compile("""
    extern "C" __global__ void scale(int n, float a, float* x) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) x[i] *= a;
    }
    extern "C" __global__ void read(const float* x) { if (x[0] != 1) __trap(); }
    extern "C" __global__ void quads(float4* x) { x[threadIdx.x].w = 1; }
    extern "C" __global__ void wild(int* x, long long offset) { x[offset] = 1; }
    __device__ int counter;
    extern "C" __global__ void count() { counter++; }
    extern "C" __global__ void trap() { __trap(); }
""", architectures=["native"])
'''


def debugged(script: str, directory: Path, **variables: str) -> list[str]:
    variables = {"CUDA_EXT_DEBUG": "1", **variables}
    return run_script(PRELUDE + textwrap.dedent(script), directory, **variables).output


def test_correct_launches_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    output = debugged(
        """
        import torch
        x = torch.ones(1000, device="cuda")
        kernels.scale(1000, 2.0, x, grid=4, block=256)
        kernels.scale(500, 2.0, x[500:], grid=4, block=256)
        kernels.scale(1000, 2.0, x.data_ptr(), grid=4, block=256, like=x)
        kernels.scale.bind(grid=4, block=256)(1000, 2.0, x)
        kernels.scale(0, 2.0, x[:0], grid=4, block=256)
        kernels.scale(0, 2.0, None, grid=4, block=256)
        kernels.quads(x, grid=1, block=1)
        pinned = torch.ones(8).pin_memory()
        kernels.scale(8, 3.0, pinned.data_ptr(), grid=1, block=8, like=x)
        print(x[[0, 3, 999]].tolist(), pinned.tolist()[0])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernels.scale(1000, 0.5, x, grid=4, block=256)
        graph.replay()
        print(x[[0, 999]].tolist())
        """,
        tmp_path,
    )
    assert output == ["[8.0, 1.0, 16.0] 3.0", "[4.0, 8.0]"]


@pytest.mark.parametrize("library", ["cupy", "numba.cuda", "jax", "cuda.core"])
def test_arrays_of_every_library_pass(tmp_path: Path, library: str) -> None:
    pytest.importorskip(library)
    made = {
        "cupy": "import cupy; x = cupy.ones(64, 'f4')",
        "numba.cuda": "import numpy, numba.cuda; x = numba.cuda.to_device(numpy.ones(64, 'f4'))",
        "jax": "import jax; x = jax.numpy.ones(64, 'float32')",
        "cuda.core": "import cuda.core; d = cuda.core.Device(); d.set_current(); "
        "x = d.allocate(256, stream=d.create_stream()); d.sync()",
    }
    output = debugged(
        f"{made[library]}\n"
        # JAX's cannot be written to, and memory of cuda.core holds nothing yet.
        f"kernels.{'read(x' if library == 'jax' else 'scale(64, 2.0, x'}, grid=1, block=64)\nprint('done')",
        tmp_path,
    )
    assert output == ["done"]


def test_invalid_arrays_are_reported(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    output = debugged(
        """
        import torch
        x = torch.ones(1000, device="cuda")
        kernels.scale(0, 2.0, x[::2], grid=4, block=256)  # strided views are within the memory
        kernels.scale(0, 2.0, x[:900].view(30, 30).t(), grid=4, block=256)
        caught(kernels.quads, x[1:], grid=1, block=1)
        caught(kernels.scale, 1, 2.0, x.data_ptr() + 2, grid=1, block=1, stream=0)
        caught(kernels.scale, 1, 2.0, 0x10, grid=1, block=1, stream=0)
        driver = open_driver()
        address = driver.query("cuMemAlloc", OUT, 1024)
        kernels.scale(1, 2.0, address + 1020, grid=1, block=1, stream=0)

        class Beyond:
            def __init__(self, count, **strides):
                data = {"shape": (count,), "typestr": "<f4", "data": (address, False)}
                self.__cuda_array_interface__ = {**data, **strides}

        kernels.scale(0, 2.0, Beyond(128, strides=(8,)), grid=1, block=128)
        caught(kernels.scale, 0, 2.0, Beyond(129, strides=(8,)), grid=1, block=129)
        caught(kernels.scale, 257, 2.0, Beyond(257), grid=1, block=257)
        driver.call("cuMemFree", address)
        caught(kernels.scale, 1, 2.0, address, grid=1, block=1, stream=0)
        kernels.scale(1000, 2.0, x, grid=4, block=256)
        print(x.tolist() == [2.0] * 1000)
        """,
        tmp_path,
    )
    expected = [
        "a multiple of 16, as float4 is aligned",
        "a multiple of 4, as float is aligned",
        "found 0x10, which is in no allocation",
        "found one of 1028 bytes",
        "which ends 4 bytes behind",
        "which is in no allocation; perhaps it has been freed",
    ]
    assert output.pop() == "True"
    for line, text in zip(output, expected, strict=True):
        assert line.startswith("ArgumentError: argument 'x': "), line
        assert text in line


def test_a_fault_is_reported_at_once_and_in_every_later_error(tmp_path: Path) -> None:
    output = debugged(
        """
        driver = open_driver()
        driver.call("cuCtxSetCurrent", driver.device(0).context)
        address = driver.query("cuMemAlloc", OUT, 1024)
        kernels.count(grid=1, block=1)
        try:
            kernels.wild(address, 1 << 44, grid=(2, 1), block=(32, 1))
        except cuda_ext.errors.LaunchError as error:
            print(str(error).replace(hex(address), "ADDRESS"))
        caught(kernels.count, grid=1, block=1)
        caught(kernels.counter.numpy)
        other = cuda_ext.compile("__global__ void other() {}", architectures=["native"])
        caught(other.other, grid=1, block=1)
        """,
        tmp_path,
    )
    assert output[0].startswith("wild: cuStreamSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS (700): ")
    assert output[0].endswith("; launched with grid (2, 1, 1), block (32, 1, 1) in stream 0x0")
    assert output[1:4] == [
        "  in a launch of wild(int* x, long long offset)",
        "    x = ADDRESS on GPU 0",
        f"    offset = {1 << 44}",
    ]
    later = output[4:]
    assert len(later) == 3, later
    for line in later:
        since = "no work on the GPU succeeds in this process any more since wild: cuStreamSynchronize failed"
        assert since in line, line


def test_a_trap_is_reported(tmp_path: Path) -> None:
    (line,) = debugged("caught(kernels.trap, grid=1, block=1)", tmp_path)
    assert line.startswith("LaunchError: trap: cuStreamSynchronize failed: CUDA_ERROR_")
    assert line.endswith("in stream 0x0   in a launch of trap()")


def test_without_debug_mode_later_errors_name_the_fault(tmp_path: Path) -> None:
    output = debugged(
        """
        kernels.wild(16, 0, grid=1, block=1)
        caught(kernels.counter.numpy)
        caught(kernels.count, grid=1, block=1)
        """,
        tmp_path,
        CUDA_EXT_DEBUG="0",
    )
    first, later = output
    assert "CUDA_ERROR_ILLEGAL_ADDRESS (700)" in first
    assert "any more" not in first
    (cause,) = re.findall(r"cu[A-Z]\w+ failed: .*", first)
    assert f"any more since {cause}" in later
