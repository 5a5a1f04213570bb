#include "detail/horner.cuh"

// y = c[0] + c[1] x + ... + c[DEGREE] x^DEGREE
template <class T, int DEGREE>
__global__ void polynomial(long long n, const T* coefficients, const T* x, T* y) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = horner<DEGREE>(coefficients, x[i]);
}
