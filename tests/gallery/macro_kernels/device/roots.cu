#include "elementwise.cuh"

ELEMENTWISE(root_of, float, sqrtf(x))
ELEMENTWISE(inverse_root_of, double, rsqrt(x))

KERNEL hypotenuse(int n, const float* x, const float* y, float* z) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = sqrtf(x[i] * x[i] + y[i] * y[i]);
}
