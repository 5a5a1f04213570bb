#include "limits.cuh"

#include <headers/math.cuh>

extern "C" __global__ void clamp(int n, float* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = clamped(x[i], LOW, HIGH);
}
