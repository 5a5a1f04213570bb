#include "detail/block_sum.cuh"

namespace blockwise {

// partial[blockIdx.x] = the sum of the elements that the block reads, in a grid-stride loop.
template <class T, int BLOCK>
__global__ void reduce(long long n, const T* x, T* partial) {
  T sum{};
  const long long step = static_cast<long long>(gridDim.x) * BLOCK;
  for (long long i = blockIdx.x * static_cast<long long>(BLOCK) + threadIdx.x; i < n; i += step) sum += x[i];
  sum = block_sum<BLOCK>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

}  // namespace blockwise
