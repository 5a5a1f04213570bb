// y = a * x + y, one thread per element: with nothing to share between threads, the plainest
// kernel already runs at the speed of memory. 64-bit indices, as the last block may pass INT_MAX.
template <class T>
__global__ void axpy(int n, T a, const T* x, T* y) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
