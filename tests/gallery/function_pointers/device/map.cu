#include "functions.cuh"

// y = the functions applied to x, the first one first
template <float (*... FUNCTIONS)(float)>
__global__ void map(int n, const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float value = x[i];
  ((value = FUNCTIONS(value)), ...);
  y[i] = value;
}

template <class T, T (*OPERATOR)(T, T)>
__global__ void combine(int n, const T* x, const T* y, T* z) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = OPERATOR(x[i], y[i]);
}
