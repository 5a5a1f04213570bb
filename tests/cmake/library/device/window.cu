__global__ void window(int n, float* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= sinpif((i + 0.5f) / n);
}
