// y = a * x + y, one thread per element. Threads share no data, so the simplest kernel is limited by
// memory bandwidth. 64-bit indices, since an index in the last block can exceed INT_MAX.
template <class T>
__global__ void axpy(int n, T a, const T* x, T* y) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
