#pragma once

// Return the sum of the values of all threads of a block, in the first thread only.
template <int BLOCK, class T>
__device__ T block_sum(T value) {
  static_assert((BLOCK & (BLOCK - 1)) == 0, "BLOCK must be a power of two");
  __shared__ T values[BLOCK];
  values[threadIdx.x] = value;
  for (int half = BLOCK / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
  }
  return values[0];  // written by the first thread itself
}
