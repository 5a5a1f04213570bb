#include "elementwise.cuh"

ELEMENTWISE(half_of, float, x / 2)
ELEMENTWISE(third_of, int, x / 3)

namespace powers {

template <int N>
KERNEL power(int n, const double* x, double* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = 1;
  for (int factor = 0; factor < N; ++factor) y[i] *= x[i];
}

}  // namespace powers
