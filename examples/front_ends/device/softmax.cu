// The softmax of kernels/softmax.py in CUDA C++: a warp for each row.
#include <cuda_fp16.h>

namespace simt {

template <class Combine>
__device__ float reduce(float value, Combine combine) {
  for (int offset = 16; offset; offset /= 2) value = combine(value, __shfl_xor_sync(0xffffffff, value, offset));
  return value;
}

template <class T>
__global__ void softmax(T* out, const T* x, int stride, int n_cols, float scale) {
  const T* row = x + blockIdx.x * (long long)stride;
  T* result = out + blockIdx.x * (long long)stride;
  float highest = scale * float(row[0]);
  for (int i = threadIdx.x; i < n_cols; i += 32) highest = fmaxf(highest, scale * float(row[i]));
  highest = reduce(highest, [](float a, float b) { return fmaxf(a, b); });
  float sum = 0;
  for (int i = threadIdx.x; i < n_cols; i += 32) sum += __expf(scale * float(row[i]) - highest);
  sum = reduce(sum, [](float a, float b) { return a + b; });
  for (int i = threadIdx.x; i < n_cols; i += 32) result[i] = T(__expf(scale * float(row[i]) - highest) / sum);
}

}  // namespace simt
