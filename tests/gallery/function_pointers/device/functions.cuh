#pragma once

__device__ inline float relu(float x) { return x > 0 ? x : 0; }
__device__ inline float square(float x) { return x * x; }
__device__ inline float minus_one(float x) { return x - 1; }

namespace ops {

template <class T>
__device__ T sum(T a, T b) {
  return a + b;
}

template <class T>
__device__ T larger(T a, T b) {
  return a > b ? a : b;
}

}  // namespace ops
