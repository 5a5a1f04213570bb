#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cuda/std/limits>

// sums[b] = sum of the elements of block b
template <class T, int BLOCK>
__global__ void block_sum(int n, const T* x, T* sums) {
  using Reduce = cub::BlockReduce<T, BLOCK>;
  __shared__ typename Reduce::TempStorage storage;
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  const T sum = Reduce(storage).Sum(i < n ? x[i] : T(0));
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// y = inclusive prefix sums of x, separately for each block
template <class T, int BLOCK>
__global__ void block_prefix_sum(int n, const T* x, T* y) {
  using Scan = cub::BlockScan<T, BLOCK>;
  __shared__ typename Scan::TempStorage storage;
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  T value = i < n ? x[i] : T(0);
  Scan(storage).InclusiveSum(value, value);
  if (i < n) y[i] = value;
}

// Sorts each BLOCK * ITEMS keys in place.
template <class Key, int BLOCK, int ITEMS>
__global__ void block_sort(int n, Key* keys) {
  using Sort = cub::BlockRadixSort<Key, BLOCK, ITEMS>;
  __shared__ typename Sort::TempStorage storage;
  const int first = (blockIdx.x * BLOCK + threadIdx.x) * ITEMS;
  Key own[ITEMS];
  for (int j = 0; j < ITEMS; ++j) {
    own[j] = first + j < n ? keys[first + j] : cuda::std::numeric_limits<Key>::max();
  }
  Sort(storage).Sort(own);
  for (int j = 0; j < ITEMS; ++j) {
    if (first + j < n) keys[first + j] = own[j];
  }
}
