#pragma once

// Combine one value of every thread in the block, and return the result to every thread: with
// shuffles in a warp, through shared memory between warps. Blocks consist of whole warps.
template <class Operation>
__device__ float block_all_reduce(float value, Operation operation) {
  __shared__ float warp_values[32];  // a block has at most 1024 threads, which is 32 warps
  for (int distance = warpSize / 2; distance > 0; distance /= 2) {
    value = operation(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  if (threadIdx.x % warpSize == 0) warp_values[threadIdx.x / warpSize] = value;
  __syncthreads();
  value = warp_values[0];
  for (int warp = 1; warp < blockDim.x / warpSize; ++warp) {
    value = operation(value, warp_values[warp]);
  }
  __syncthreads();  // so that the next call may write warp_values
  return value;
}
