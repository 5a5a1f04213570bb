#pragma once

// Call `function` for each of `n` elements, in a grid of any size.
template <class Function>
__device__ void for_each_element(int n, Function function) {
  const int step = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) function(i);
}
