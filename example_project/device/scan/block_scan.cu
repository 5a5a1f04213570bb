#include "scan/block_scan.cuh"

// Scan each warp with shuffles, then add the totals of the preceding warps. A separate translation
// unit: kernels in other units call it as relocatable device code (`link = true`).
__device__ int block_scan(int value, int& total) {
  __shared__ int warp_totals[32];  // a block has at most 1024 threads, which is 32 warps
  const int warp = threadIdx.x / warpSize;
  const int lane = threadIdx.x % warpSize;
  const int warps = blockDim.x / warpSize;

  for (int distance = 1; distance < warpSize; distance *= 2) {
    const int before = __shfl_up_sync(0xffffffff, value, distance);
    if (lane >= distance) value += before;
  }
  if (lane == warpSize - 1) warp_totals[warp] = value;
  __syncthreads();
  total = 0;
  for (int other = 0; other < warps; ++other) {
    if (other < warp) value += warp_totals[other];
    total += warp_totals[other];
  }
  __syncthreads();  // so that the next call may write warp_totals
  return value;
}
