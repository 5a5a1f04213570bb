"""Kernels of CUDA Tile C++ on real GPUs, as cubins and as Tile IR, beside one of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cuda_ext
from cuda_ext.errors import TileIrError, ToolchainError
from cuda_ext.toolchain.tileiras import Tileiras

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_ext.gpu_available(), reason="there is no GPU that can be used"),
]

SOURCE = r"""
#include <cuda_tile.h>
namespace ct = cuda::tiles;
using namespace ct::literals;

__tile__ float factor;

__tile_global__ void axpy(int n, float a, const float* __restrict__ x, float* __restrict__ y) {
  const auto i = ct::bid().x;
  auto xs = ct::partition_view{ct::tensor_span{x, ct::extents{n}}, ct::shape{256_ic}};
  auto ys = ct::partition_view{ct::tensor_span{y, ct::extents{n}}, ct::shape{256_ic}};
  ys.store_masked(ys.load_masked(i) + xs.load_masked(i) * a, i);
}
template <int M, int N, int K>
__tile_global__ void matmul(int m, int n, int k, const float* a, const float* b, float* c) {
  auto as = ct::partition_view{ct::tensor_span{a, ct::extents{m, k}}, ct::shape<M, K>{}};
  auto bs = ct::partition_view{ct::tensor_span{b, ct::extents{k, n}}, ct::shape<K, N>{}};
  auto cs = ct::partition_view{ct::tensor_span{c, ct::extents{m, n}}, ct::shape<M, N>{}};
  auto sum = ct::zeros<ct::tile<float, ct::shape<M, N>>>();
  for (int i = 0; i < (k + K - 1) / K; ++i) {
    sum = ct::mma(as.load_masked(ct::bid().x, i), bs.load_masked(i, ct::bid().y), sum);
  }
  cs.store_masked(sum, ct::bid().x, ct::bid().y);
}
__tile_global__ void scale(float* x) { *x = *x * factor; }
__global__ void add(int n, float value, float* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += value;
}
"""


@pytest.fixture(scope="module", params=["native", "compute_80"])
def kernels(request: pytest.FixtureRequest) -> Any:
    try:
        Tileiras().version  # noqa: B018 - it shows whether it runs
    except ToolchainError as error:
        pytest.skip(str(error))
    names = ["native", "compute_80"] if request.param == "native" else ["compute_80"]
    compiled = cuda_ext.compile(SOURCE, architectures=names, instantiate=["matmul<32, 32, 32>"])
    if request.param != "native":
        try:
            compiled.scale(np.ones(1, "f4"), grid=1)
        except TileIrError as error:
            pytest.skip(str(error))
    return compiled


@pytest.mark.parametrize("n", [1, 256, 1000])
def test_masked_tiles_are_as_numpy_computes(kernels: Any, n: int) -> None:
    x, y = np.random.default_rng(n).random((2, n), "f4")
    expected = y + 3 * x
    kernels.axpy(n, 3.0, x, y, grid=-(-n // 256))
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize(("m", "n", "k"), [(32, 32, 32), (50, 70, 33)])
def test_products_are_as_numpy_computes(kernels: Any, m: int, n: int, k: int) -> None:
    random = np.random.default_rng(m)
    a, b, c = random.random((m, k), "f4"), random.random((k, n), "f4"), np.empty((m, n), "f4")
    kernels.matmul["32, 32, 32"](m, n, k, a, b, c, grid=(-(-m // 32), -(-n // 32)))
    np.testing.assert_allclose(c, a @ b, rtol=5e-3)  # it may be of TF32


def test_variables_of_tiles_and_kernels_of_threads(kernels: Any) -> None:
    x = np.full(1, 2, "f4")
    kernels.factor.copy_from(5.0)
    kernels.scale(x, grid=1)
    assert x == 10
    if any(i.kind == "cubin" for u in cuda_ext.describe(kernels).units for i in u.images):
        kernels.add(1, 0.5, x, threads=1)
        assert x == 10.5
