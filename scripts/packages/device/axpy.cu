// y += a * x, one thread per element.
template <class T>
__global__ void axpy(int n, T a, const T* x, T* y) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
