// y += a x
template <class T>
__global__ void axpy(long long n, T a, const T* x, T* y) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
