#include <cuda_fp16.h>

template <class From, class To>
__global__ void convert(int n, const From* from, To* to) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = static_cast<To>(from[i]);
}
