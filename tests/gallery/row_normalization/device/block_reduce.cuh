#pragma once

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct Maximum {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Returns to every thread of the block the combined values of all. Blocks consist of whole warps.
template <class Operator>
__device__ float block_reduce(float value, Operator combine) {
  __shared__ float of_warps[32];
  for (int distance = 16; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  __syncthreads();  // an earlier call has been read
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warps[0];
  for (int warp = 1; warp < blockDim.x / 32; ++warp) value = combine(value, of_warps[warp]);
  return value;
}
