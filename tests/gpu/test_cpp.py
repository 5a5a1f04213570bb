"""The generated header on a GPU: C++ and Python launch the same kernels, and agree with numpy."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuda_ext
from cuda_ext.builder.cpp import generate_cpp
from cuda_ext.runtime.driver.driver import Device
from cuda_ext.runtime.driver.functions import OUT
from tests.fixtures.cpp_modules import INCLUDE, LOADER
from tests.fixtures.gpus import two_gpus
from tests.fixtures.projects import build, write_project

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
    pytest.mark.host_compiler,
    pytest.mark.skipif(shutil.which("g++") is None, reason="takes a C++ compiler"),
]

KERNELS = """
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
namespace blockwise {
template <class T, int BLOCK> __global__ void reduce(int n, const T* x, T* sums) {
  __shared__ T part[BLOCK];
  int i = blockIdx.x * BLOCK + threadIdx.x;
  part[threadIdx.x] = i < n ? x[i] : T(0);
  for (int half = BLOCK / 2; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}
}
extern __shared__ int dynamic[];
__global__ void reverse(int n, int* x) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) dynamic[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = dynamic[n - 1 - i];
}
__global__ void __launch_bounds__(64) bounded(int* x) { x[threadIdx.x] = 1; }
struct Particle { float x; int id; };
__global__ void move(Particle by, Particle* p) { p->x += by.x; p->id += by.id; }
__constant__ float weights[4];
__global__ void weigh(float* x) { x[threadIdx.x] *= weights[threadIdx.x]; }
__global__ void cluster_rank(unsigned* ranks) {
#if __CUDA_ARCH__ >= 900
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) ranks[blockIdx.x] = rank;
#endif
}
"""
PROGRAM = """
#include <app/kernels.h>
#include <cstring>
namespace k = app::kernels;
namespace {
thread_local char text[2000];
int status(const cuda_ext::Result<void>& result) {
  std::strncpy(text, result ? "" : result.error().message, sizeof text - 1);
  return result.ok();
}
struct Shift { float x; int id; };
}
template <>
inline constexpr const char* cuda_ext::device_name<Shift> = "Particle";
extern "C" {
const char* message() { return text; }
int axpy(int n, float a, const float* x, float* y, CUstream_st* stream) {
  return status(k::axpy<float>.try_launch({(n + 255) / 256, 256, stream}, n, a, x, y));
}
int axpy_double(int n, double a, const double* x, double* y) {
  return status(k::axpy<double>.try_launch(cuda_ext::threads(n), n, a, x, y));
}
int reduce(int n, const float* x, float* sums) {
  return status(k::blockwise::reduce<float, 128>.try_launch({(n + 127) / 128, 128}, n, x, sums));
}
int reverse(int n, int* x) {
  cuda_ext::LaunchConfig config{1, 128};
  config.shared = sizeof(int) * static_cast<unsigned>(n);
  return status(k::reverse.try_launch(config, n, x));
}
int bounded(int threads, int* x) { return status(k::bounded.try_launch({1, threads}, x)); }
int move(float x, int id, void* p) {
  return status(k::move.try_launch({1, 1}, Shift{x, id}, p));
}
int clusters(unsigned* ranks, int blocks, int size) {
  cuda_ext::LaunchConfig config{blocks, 32};
  config.cluster = size;
  return status(k::cluster_rank.try_launch(config, ranks));
}
int cooperative(int n, float a, const float* x, float* y, int blocks) {
  cuda_ext::LaunchConfig config{blocks, 256};
  config.cooperative = true;
  return status(k::axpy<float>.try_launch(config, n, a, x, y));
}
int dependent(int n, float a, const float* x, float* y) {
  cuda_ext::LaunchConfig config{(n + 255) / 256, 256};
  config.dependent = true;
  return status(k::axpy<float>.try_launch(config, n, a, x, y));
}
unsigned long long weights() {
  return reinterpret_cast<unsigned long long>(k::cuda_ext_library().symbol("weights").address);
}
int set_weights(const float* values) { return status(k::weights.try_copy_from(values)); }
int weigh(float* x) { return status(k::weigh.try_launch({1, 4}, x)); }
int load() { return status(k::cuda_ext_library().try_load()); }
int by_name(int n, float a, const float* x, float* y) {
  return status(k::cuda_ext_library().kernel("axpy<float>").try_launch({(n + 255) / 256, 256}, n, a, x, y));
}
}
"""
TABLE = """[tool.cuda_ext]
architectures = ["sm_90", "compute_80"]
[tool.cuda_ext.modules."app.kernels"]
instantiate = ["axpy<float>", "axpy<double>", "blockwise::reduce<float, 128>"]
"""
CDECLS = {
    "axpy": [ctypes.c_int, ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
    "axpy_double": [ctypes.c_int, ctypes.c_double, ctypes.c_void_p, ctypes.c_void_p],
    "reduce": [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p],
    "reverse": [ctypes.c_int, ctypes.c_void_p],
    "bounded": [ctypes.c_int, ctypes.c_void_p],
    "move": [ctypes.c_float, ctypes.c_int, ctypes.c_void_p],
    "clusters": [ctypes.c_void_p, ctypes.c_int, ctypes.c_int],
    "cooperative": [ctypes.c_int, ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int],
    "dependent": [ctypes.c_int, ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p],
    "set_weights": [ctypes.c_void_p],
    "weigh": [ctypes.c_void_p],
    "load": [],
    "by_name": [ctypes.c_int, ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p],
}


class Compiled:
    """The functions of PROGRAM. Each raises the loader's error."""

    def __init__(self, file: Path) -> None:
        self.library = ctypes.CDLL(str(file))
        self.library.message.restype = ctypes.c_char_p
        self.library.weights.restype = ctypes.c_ulonglong
        for name, types in CDECLS.items():
            getattr(self.library, name).argtypes = types

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.library, name)

        def call(*arguments: Any) -> None:
            if not function(*(a.data.ptr if hasattr(a, "data") else a for a in arguments)):
                raise RuntimeError(self.library.message().decode())

        return call


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the Python package, and the shared object of PROGRAM, ``program.so``."""
    root = write_project(tmp_path_factory.mktemp("app"), TABLE, {"device/all.cu": KERNELS})
    package = build(root)["app.kernels"]
    place = root / "site" / "app" / "kernels"
    package.write(place)
    for name, content in generate_cpp.render(package, (), place, "incbin").files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (root / "program.cpp").write_text(PROGRAM)
    flags = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    include = (f"-I{root / 'include'}", f"-I{INCLUDE}")
    sources = (root / "program.cpp", root / "kernels.cpp", LOADER)
    subprocess.run(["g++", *flags, *include, *sources, "-o", root / "program.so", "-ldl"], check=True)
    return root


@pytest.fixture(scope="module")
def program(place: Path, device: Device) -> Compiled:
    return Compiled(place / "program.so")


@pytest.fixture(scope="module")
def kernels(place: Path) -> Iterator[Any]:
    """The Python module of the same package."""
    sys.path.insert(0, str(place / "site"))
    import app.kernels

    yield app.kernels
    sys.path.remove(str(place / "site"))


class OnDevice:
    """A copy of a numpy array on the GPU."""

    def __init__(self, device: Device, array: np.ndarray[Any, Any]) -> None:
        self.call, self.like = device.driver.call, array
        (self.address,) = self.call("cuMemAlloc", OUT, array.nbytes)
        self.call("cuMemcpyHtoD", self.address, array.ctypes.data, array.nbytes)

    def numpy(self) -> np.ndarray[Any, Any]:
        self.call("cuCtxSynchronize")
        host = np.empty_like(self.like)
        self.call("cuMemcpyDtoH", host.ctypes.data, self.address, host.nbytes)
        return host

    def __del__(self) -> None:
        self.call("cuMemFree", self.address)


N = 1000
X = np.arange(N, dtype="f4") / 7
Y = np.cos(X)


def test_cpp_and_python_agree_with_numpy(program: Compiled, kernels: Any, device: Device) -> None:
    for dtype, launch in {"f4": program.axpy, "f8": program.axpy_double}.items():
        x, y, other = (OnDevice(device, a.astype(dtype)) for a in (X, Y, Y))
        launch(N, 2.5, x.address, y.address, *([None] if dtype == "f4" else []))
        template = {"f4": "float", "f8": "double"}[dtype]
        kernels.axpy[template](N, 2.5, x.address, other.address, threads=N, stream=0)
        np.testing.assert_array_equal(y.numpy(), other.numpy())
        np.testing.assert_allclose(
            y.numpy(), Y.astype(dtype) + dtype_of(dtype, 2.5) * X.astype(dtype), rtol=1e-6
        )


def dtype_of(dtype: str, value: float) -> Any:
    return np.dtype(dtype).type(value)


def test_a_template_in_a_namespace(program: Compiled, device: Device) -> None:
    x, sums = OnDevice(device, X), OnDevice(device, np.zeros(8, "f4"))
    program.reduce(N, x.address, sums.address)
    np.testing.assert_allclose(sums.numpy().sum(), X.sum(dtype="f8"), rtol=1e-5)


@pytest.mark.parametrize("n", [1000, 30_000])  # the second takes more than 48 KiB
def test_dynamic_shared_memory(program: Compiled, device: Device, n: int) -> None:
    x = OnDevice(device, np.arange(n, dtype="i4"))
    program.reverse(n, x.address)
    np.testing.assert_array_equal(x.numpy(), np.arange(n)[::-1])


def test_more_shared_memory_than_there_is(program: Compiled, device: Device) -> None:
    x = OnDevice(device, np.arange(100, dtype="i4"))
    with pytest.raises(RuntimeError, match=r"shared: expected at most \d+ bytes, found 400000"):
        program.reverse(100_000, x.address)
    program.reverse(100, x.address)


def test_more_threads_than_the_kernel_was_compiled_for(program: Compiled, device: Device) -> None:
    x = OnDevice(device, np.zeros(64, "i4"))
    with pytest.raises(RuntimeError, match="block: expected at most 64 threads"):
        program.bounded(65, x.address)
    program.bounded(64, x.address)
    assert x.numpy().sum() == 64


def test_a_structure_that_mirrors_one_of_device_code(program: Compiled, device: Device) -> None:
    particle = OnDevice(device, np.array([(1.5, 7)], [("x", "f4"), ("id", "i4")]))
    program.move(0.25, 3, particle.address)
    assert particle.numpy().tolist() == [(1.75, 10)]


@pytest.mark.parametrize("size", [2, 16])  # the second needs leave
def test_clusters(program: Compiled, device: Device, size: int) -> None:
    if device.capability < 90:
        pytest.skip("clusters take sm_90")
    ranks = OnDevice(device, np.zeros(16, "u4"))
    program.clusters(ranks.address, 16, size)
    np.testing.assert_array_equal(ranks.numpy(), np.arange(16) % size)


def test_cooperative_and_dependent_launches(program: Compiled, device: Device) -> None:
    x, y = OnDevice(device, X), OnDevice(device, Y)
    program.cooperative(N, 1.0, x.address, y.address, 4)
    program.dependent(N, 1.0, x.address, y.address)
    np.testing.assert_allclose(y.numpy(), Y + X + X, rtol=1e-5)
    with pytest.raises(RuntimeError, match=r"grid: expected at most \d+ blocks"):
        program.cooperative(N, 1.0, x.address, y.address, 1_000_000)


def test_variables_and_kernels_by_name(program: Compiled, kernels: Any, device: Device) -> None:
    values = np.array([1, 2, 3, 4], "f4")
    address = program.library.weights()
    program.set_weights(values.ctypes.data)
    read = np.empty_like(values)
    device.driver.call("cuMemcpyDtoH", read.ctypes.data, address, read.nbytes)
    np.testing.assert_array_equal(read, values)
    x = OnDevice(device, values)
    program.weigh(x.address)
    np.testing.assert_array_equal(x.numpy(), values**2)
    x, y = OnDevice(device, X), OnDevice(device, Y)
    program.by_name(N, 2.0, x.address, y.address)
    np.testing.assert_allclose(y.numpy(), Y + 2 * X, rtol=1e-5)


def test_streams(program: Compiled, device: Device) -> None:
    stream = device.driver.query("cuStreamCreate", OUT, 1)
    x, y = OnDevice(device, X), OnDevice(device, Y)
    program.axpy(N, 2.0, x.address, y.address, stream)
    device.driver.call("cuStreamSynchronize", stream)
    np.testing.assert_allclose(y.numpy(), Y + 2 * X, rtol=1e-5)


@two_gpus
@pytest.mark.parametrize("number", [1, 0])
def test_each_gpu_is_loaded_and_launched_on_while_the_other_is_current(
    program: Compiled, device: Device, number: int
) -> None:
    here, other = (device.driver.device(ordinal) for ordinal in (number, 1 - number))
    weights = np.array([2, 3, 4, 5], "f4") + np.float32(number)
    with here.current():
        program.load()
        stream = device.driver.query("cuStreamCreate", OUT, 1)
        x, y, four = (OnDevice(here, values) for values in (X, Y, np.ones(4, "f4")))
        program.set_weights(weights.ctypes.data)
    with other.current():
        program.load()
        program.set_weights(np.zeros(4, "f4").ctypes.data)
        launch = threading.Thread(target=program.axpy, args=(N, 1.0, x.address, y.address, stream))
        launch.start()
        launch.join()
        program.axpy(N, 1.0, x.address, y.address, stream)
        device.driver.call("cuStreamSynchronize", stream)
        assert device.driver.current_device() is other
    with here.current():
        program.weigh(four.address)
        np.testing.assert_array_equal(four.numpy(), weights)
        np.testing.assert_allclose(y.numpy(), Y + 2 * X, rtol=1e-5)
        del x, y, four


def test_threads_without_a_context(program: Compiled, device: Device) -> None:
    x, y = OnDevice(device, np.ones(N, "f4")), OnDevice(device, np.zeros(N, "f4"))
    failures: list[Exception] = []

    def work() -> None:
        try:
            for _ in range(200):
                program.axpy(N, 1.0, x.address, y.address, None)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    # They all add in the default stream, one after the other.
    np.testing.assert_array_equal(y.numpy(), np.full(N, 3200, "f4"))
