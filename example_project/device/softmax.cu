#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

#include "block_all_reduce.cuh"

// y = softmax of each row of x, one block per row. The row's maximum is subtracted first, so that
// exp never overflows; narrow types are read and written, but all arithmetic is in float.
template <class T>
__global__ void softmax(int columns, const T* x, T* y) {
  x += static_cast<long long>(blockIdx.x) * columns;
  y += static_cast<long long>(blockIdx.x) * columns;

  float largest = -CUDART_INF_F;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    largest = fmaxf(largest, static_cast<float>(x[i]));
  }
  largest = block_all_reduce(largest, [](float a, float b) { return fmaxf(a, b); });

  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    sum += expf(static_cast<float>(x[i]) - largest);
  }
  sum = block_all_reduce(sum, [](float a, float b) { return a + b; });

  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    y[i] = static_cast<T>(expf(static_cast<float>(x[i]) - largest) / sum);
  }
}
