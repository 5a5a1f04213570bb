#include "segment.cuh"

__device__ int launches;

__global__ void scale_segment(int n, float factor, float* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factor;
  if (i == 0) atomicAdd(&launches, 1);
}
