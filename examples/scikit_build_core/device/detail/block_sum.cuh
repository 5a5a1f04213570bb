#pragma once

// The sum of the values of all threads of a block, in its first thread.
template <int BLOCK, class T>
__device__ T block_sum(T value) {
  static_assert((BLOCK & (BLOCK - 1)) == 0, "halves are added to each other");
  __shared__ T values[BLOCK];
  values[threadIdx.x] = value;
  for (int half = BLOCK / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
  }
  return values[0];  // which the first thread wrote itself
}
