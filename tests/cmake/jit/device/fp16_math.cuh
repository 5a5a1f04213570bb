#pragma once
#include <cuda_fp16.h>
#include <shared/limits.cuh>

template <class T>
inline __device__ T plus(T x, T y) {
  return x + y;
}
inline __device__ __half plus(__half x, __half y) { return __hadd(x, y); }
