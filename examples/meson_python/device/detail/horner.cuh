#pragma once

template <int DEGREE, class T>
__device__ T horner(const T* coefficients, T x) {
  T value = coefficients[DEGREE];
#pragma unroll
  for (int k = DEGREE - 1; k >= 0; --k) value = value * x + coefficients[k];
  return value;
}
