#include "common.cuh"

namespace sums {

// *result = the sum of n integers, by one warp
__global__ void reduce(int n, const int* x, long long* result) {
  long long own = NEUTRAL;
  for (int i = threadIdx.x; i < n; i += warpSize) own = OPERATION(own, x[i]);
  for (int distance = 16; distance > 0; distance /= 2) {
    const long long other = __shfl_down_sync(0xffffffff, own, distance);
    own = OPERATION(own, other);
  }
  if (threadIdx.x == 0) *result = own;
}

}  // namespace sums
