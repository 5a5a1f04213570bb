#include <cub/block/block_reduce.cuh>

// partial[b] = the sum of what block b reads, in strides of the grid.
template <class T, int BLOCK>
__global__ void __launch_bounds__(BLOCK) reduce(int n, const T* x, T* partial) {
  using BlockReduce = cub::BlockReduce<T, BLOCK>;
  __shared__ typename BlockReduce::TempStorage storage;
  T sum = 0;
  const long long stride = static_cast<long long>(gridDim.x) * BLOCK;
  for (long long i = static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x; i < n; i += stride) {
    sum += x[i];
  }
  sum = BlockReduce(storage).Sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
