#include <cuda_fp16.h>

constexpr int TILE = 16;

// c = a * transpose(b), with a (m x k), b (n x k) and c (m x n) row by row; halves in, float out.
// Each 16 x 16 block reads 16 columns of a and b at a time into shared memory: runs on every GPU.
__global__ void __launch_bounds__(TILE* TILE)
    gemm(int m, int n, int k, const __half* a, const __half* b, float* c) {
  __shared__ float a_tile[TILE][TILE];
  __shared__ float b_tile[TILE][TILE + 1];  // padded: a column is read without bank conflicts
  const int x = threadIdx.x;
  const int y = threadIdx.y;
  const int row = blockIdx.y * TILE + y;
  const int column = blockIdx.x * TILE + x;
  const int b_row = blockIdx.x * TILE + y;  // b's rows are c's columns

  float sum = 0;
  for (int start = 0; start < k; start += TILE) {
    const bool inside = x < k - start;
    a_tile[y][x] = inside && row < m ? __half2float(a[1ll * row * k + start + x]) : 0.0f;
    b_tile[y][x] = inside && b_row < n ? __half2float(b[1ll * b_row * k + start + x]) : 0.0f;
    __syncthreads();
    for (int i = 0; i < TILE; ++i) sum += a_tile[y][i] * b_tile[x][i];
    __syncthreads();
  }
  if (row < m && column < n) c[1ll * row * n + column] = sum;
}
