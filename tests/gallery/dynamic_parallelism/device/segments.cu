#include "segment.cuh"

// Scales x[offsets[s]] to x[offsets[s + 1] - 1] by factors[s], for each segment s. One thread per segment
// launches as many blocks as that segment needs. The kernel is over when those that it launched are.
extern "C" __global__ void scale_segments(int segments, const int* offsets, const float* factors, float* x) {
  const int s = blockIdx.x * blockDim.x + threadIdx.x;
  if (s >= segments) return;
  const int n = offsets[s + 1] - offsets[s];
  if (n > 0) scale_segment<<<(n + 127) / 128, 128>>>(n, factors[s], x + offsets[s]);
}
