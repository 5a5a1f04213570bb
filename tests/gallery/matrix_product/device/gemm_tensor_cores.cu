#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

// c = a * b; m, n and k are multiples of 16. A warp computes a tile of 16 x 16 values.
extern "C" __global__ void gemm_tensor_cores(int m, int n, int k, const __half* a, const __half* b,
                                             float* c) {
  const int tile = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize;
  if (tile >= m / 16 * (n / 16)) return;
  const long long row = tile / (n / 16) * 16;
  const long long column = tile % (n / 16) * 16;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a_tile;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b_tile;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums;
  wmma::fill_fragment(sums, 0.0f);
  for (int start = 0; start < k; start += 16) {
    wmma::load_matrix_sync(a_tile, a + row * k + start, k);
    wmma::load_matrix_sync(b_tile, b + 1ll * start * n + column, n);
    wmma::mma_sync(sums, a_tile, b_tile, sums);
  }
  wmma::store_matrix_sync(c + row * n + column, sums, n, wmma::mem_row_major);
}
