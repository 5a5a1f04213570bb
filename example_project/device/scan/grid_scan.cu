#include <cooperative_groups.h>

#include "scan/block_scan.cuh"

// y = inclusive prefix sums of x (y may be x), in one cooperative launch: each block puts its sum
// into block_totals, the grid synchronizes, and each block scans, starting from the preceding sums.
__global__ void grid_scan(long long n, const int* x, int* y, int* block_totals) {
  const long long stretch = (n + gridDim.x - 1) / gridDim.x;
  const long long begin = min(n, stretch * blockIdx.x);
  const long long end = min(n, begin + stretch);

  int sum = 0;
  int total;
  for (long long i = begin + threadIdx.x; i < end; i += blockDim.x) sum += x[i];
  block_scan(sum, total);
  if (threadIdx.x == 0) block_totals[blockIdx.x] = total;
  cooperative_groups::this_grid().sync();

  sum = 0;
  for (int i = threadIdx.x; i < blockIdx.x; i += blockDim.x) sum += block_totals[i];
  int before;
  block_scan(sum, before);
  for (long long start = begin; start < end; start += blockDim.x) {
    const long long i = start + threadIdx.x;
    const int scanned = block_scan(i < end ? x[i] : 0, total);
    if (i < end) y[i] = before + scanned;
    before += total;
  }
}
