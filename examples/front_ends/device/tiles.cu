// CUDA Tile C++: a block has tiles of the arrays, and the compiler divides the work among its threads.
#include <cuda_fp16.h>
#include <cuda_tile.h>

namespace tile {

namespace ct = cuda::tiles;
using namespace ct::literals;

template <class T>
__tile_global__ void axpy(int n, T a, const T* __restrict__ x, T* __restrict__ y) {
  const auto i = ct::bid().x;
  auto xs = ct::partition_view{ct::tensor_span{x, ct::extents{n}}, ct::shape{1024_ic}};
  auto ys = ct::partition_view{ct::tensor_span{y, ct::extents{n}}, ct::shape{1024_ic}};
  ys.store_masked(ys.load_masked(i) + xs.load_masked(i) * a, i);
}

// c = a * b, of m x k and k x n elements; a block has M x N elements of c.
template <class T, int M, int N, int K>
__tile_global__ void matmul(int m, int n, int k, const T* __restrict__ a, const T* __restrict__ b,
                            float* __restrict__ c) {
  const auto row = ct::bid().x, column = ct::bid().y;
  auto as = ct::partition_view{ct::tensor_span{a, ct::extents{m, k}}, ct::shape<M, K>{}};
  auto bs = ct::partition_view{ct::tensor_span{b, ct::extents{k, n}}, ct::shape<K, N>{}};
  auto cs = ct::partition_view{ct::tensor_span{c, ct::extents{m, n}}, ct::shape<M, N>{}};
  auto sum = ct::zeros<ct::tile<float, ct::shape<M, N>>>();
  for (int i = 0; i < (k + K - 1) / K; ++i) {
    sum = ct::mma(as.load_masked(row, i), bs.load_masked(i, column), sum);
  }
  cs.store_masked(sum, row, column);
}

}  // namespace tile
