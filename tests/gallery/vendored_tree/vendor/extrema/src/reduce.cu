#include "common.cuh"

namespace extrema {

// *result = the largest of n integers, by one warp
__global__ void reduce(int n, const int* x, int* result) {
  int own = NEUTRAL;
  for (int i = threadIdx.x; i < n; i += warpSize) own = OPERATION(own, x[i]);
  for (int distance = 16; distance > 0; distance /= 2) {
    const int other = __shfl_down_sync(0xffffffff, own, distance);
    own = OPERATION(own, other);
  }
  if (threadIdx.x == 0) *result = own;
}

}  // namespace extrema
