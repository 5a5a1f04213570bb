template <class T>
__global__ void axpy(int n, T a, const T* x, T* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
