#include <cub/block/block_reduce.cuh>

namespace blockwise {

// partial[b] = the sum of what block b read; each thread first adds up a strided share, so that any
// grid covers any n. BLOCK is a template parameter because CUB lays out its shared memory by it.
template <class T, int BLOCK>
__global__ void __launch_bounds__(BLOCK) reduce(long long n, const T* x, T* partial) {
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

}  // namespace blockwise
