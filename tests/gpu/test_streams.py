"""Launches whose arguments are addresses and structures, beside PyTorch and CuPy on a real GPU, or on two."""

from __future__ import annotations

import struct
from typing import Any

import pytest

import cuda_ext
from cuda_ext.errors import ArgumentError
from tests.fixtures.gpus import two_gpus

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
]

SOURCE = r"""
struct Job { int* counter; long long cycles; };

// So slow that work in another stream overtakes it.
__device__ void count(int* counter, long long cycles) {
  const long long began = clock64();
  const int before = *counter;
  while (clock64() - began < cycles) {}
  *counter = before + 1;
}

__global__ void run(Job job) { count(job.counter, job.cycles); }
__global__ void run_at(int* counter, long long cycles) { count(counter, cycles); }
__device__ int where;
__global__ void find(int* out) { *out = where; }
"""
SLOW = 20_000_000


@pytest.fixture(scope="module")
def kernels() -> Any:
    return cuda_ext.compile(SOURCE, architectures=["native"])


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch")
    torch.cuda.init()
    return torch


def job(tensor: Any) -> bytes:
    return struct.pack("Qq", tensor.data_ptr(), SLOW)


def test_work_in_a_side_stream_is_ordered(kernels: Any, torch: Any) -> None:
    one = {"grid": 1, "block": 1}
    x = torch.zeros(1, dtype=torch.int32, device="cuda")
    run, run_at = kernels.run.bind(like=x, **one), kernels.run_at.bind(like=x, **one)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for turn in range(3):  # the second launch of each is one in C
            kernels.run(job(x), like=x, **one)
            kernels.run(job(x), stream=torch.cuda.current_stream(), **one)
            kernels.run_at(x.data_ptr(), SLOW, like=x, **one)
            run(job(x))
            run_at(x.data_ptr(), SLOW)
            x.mul_(2)
            assert x.item() == 10 * (2 ** (turn + 1) - 1)


def test_what_may_hold_addresses_takes_a_stream(kernels: Any, torch: Any) -> None:
    x = torch.zeros(1, dtype=torch.int32, device="cuda")
    for _ in range(2):
        for launch, arguments in ((kernels.run, (job(x),)), (kernels.run_at, (x.data_ptr(), 1))):
            with pytest.raises(ArgumentError, match=r"give stream=torch\.cuda\.current_stream\(\), or one"):
                launch(*arguments, grid=1, block=1)
            with pytest.raises(ArgumentError, match="may hold an address of memory that PyTorch uses"):
                launch.bind(grid=1, block=1)(*arguments)
        kernels.run_at(x, 1, grid=1, block=1)
    assert x.item() == 2


@two_gpus
@pytest.mark.parametrize("library", ["torch", "cupy"])
@pytest.mark.filterwarnings("ignore:ExternalStream is deprecated")
def test_a_default_stream_brings_its_gpu(kernels: Any, library: str) -> None:
    module = pytest.importorskip(library)
    one = {"grid": 1, "block": 1}
    for _ in range(2):
        for number in (1, 0):
            if library == "torch":
                x = module.zeros(1, dtype=module.int32, device=f"cuda:{number}")
                address, stream = x.data_ptr(), module.cuda.current_stream(number)
            else:
                with module.cuda.Device(number):
                    x = module.zeros(1, "i4")
                address, stream = x.data.ptr, module.cuda.ExternalStream(0, device_id=number)
            kernels.run_at(address, 1, stream=stream, **one)
            kernels.run_at.bind(stream=stream, **one)(address, 1)
            kernels.run_at(address, 1, like=x, **one)
            kernels.run_at.bind(like=x, **one)(address, 1)
            kernels.where.copy_from(number + 5, stream=stream)
            kernels.find(x, **one)
            found = int(x.item())
            assert found == number + 5
            kernels.run_at(x, 1, **one)
            assert int(x.item()) == number + 6


@two_gpus
def test_a_stream_of_another_gpu_is_refused(kernels: Any, torch: Any) -> None:
    here, there = (torch.zeros(1, dtype=torch.int32, device=f"cuda:{number}") for number in (0, 1))
    for _ in range(2):
        kernels.run_at(here, 1, grid=1, block=1)
        with pytest.raises(ArgumentError, match="stream: is on GPU 1, and 'counter' is on GPU 0"):
            kernels.run_at(here, 1, grid=1, block=1, stream=torch.cuda.current_stream(1))
        with pytest.raises(ArgumentError, match="like: is on GPU 1, and 'counter' is on GPU 0"):
            kernels.run_at(here, 1, grid=1, block=1, like=there)
