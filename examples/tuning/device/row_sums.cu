/* The sums of rows: THREADS of a block add ITEMS elements at a time, for ROWS rows one after another. */
template <int THREADS, int ITEMS, int ROWS>
__global__ void __launch_bounds__(THREADS)
row_sums(const float* __restrict__ x, float* __restrict__ sums, int rows, int columns) {
  __shared__ float of_warps[32];
  for (int i = 0; i < ROWS; i++) {
    const long long row = (long long)blockIdx.x * ROWS + i;
    if (row >= rows) return;
    const float* start = x + row * columns;
    float parts[ITEMS] = {};
    for (int at = threadIdx.x; at < columns; at += THREADS * ITEMS) {
#pragma unroll
      for (int j = 0; j < ITEMS; j++) {
        if (at + j * THREADS < columns) parts[j] += start[at + j * THREADS];
      }
    }
    float sum = 0;
#pragma unroll
    for (int j = 0; j < ITEMS; j++) sum += parts[j];
    for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
      sum = threadIdx.x < THREADS / 32 ? of_warps[threadIdx.x] : 0;
      for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
      if (threadIdx.x == 0) sums[row] = sum;
    }
    __syncthreads();
  }
}
