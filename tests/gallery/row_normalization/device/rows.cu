#include <cuda_fp16.h>

#include "block_reduce.cuh"

namespace rows {

// Each row of y = softmax of the row of x. A block takes a row.
template <class T>
__global__ void softmax(int columns, const T* __restrict__ x, T* __restrict__ y) {
  const long long row = 1ll * blockIdx.x * columns;
  float largest = x[row];
  for (int i = threadIdx.x; i < columns; i += blockDim.x) largest = fmaxf(largest, float(x[row + i]));
  largest = block_reduce(largest, Maximum());
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += __expf(float(x[row + i]) - largest);
  sum = block_reduce(sum, Sum());
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    y[row + i] = T(__expf(float(x[row + i]) - largest) / sum);
  }
}

// Each row of y = (x - mean) / sqrt(variance + epsilon) * gamma + beta
template <class T>
__global__ void layer_norm(int columns, float epsilon, const T* __restrict__ x,
                           const float* __restrict__ gamma, const float* __restrict__ beta,
                           T* __restrict__ y) {
  const long long row = 1ll * blockIdx.x * columns;
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += float(x[row + i]);
  const float mean = block_reduce(sum, Sum()) / columns;
  float squares = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    const float difference = float(x[row + i]) - mean;
    squares += difference * difference;
  }
  const float scale = rsqrtf(block_reduce(squares, Sum()) / columns + epsilon);
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    y[row + i] = T((float(x[row + i]) - mean) * scale * gamma[i] + beta[i]);
  }
}

}  // namespace rows
