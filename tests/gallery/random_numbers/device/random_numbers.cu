#include <curand_kernel.h>

// Four random integers in each thread, from a generator that is a function of seed, thread and step.
extern "C" __global__ void random_bits(int n, unsigned long long seed, unsigned int* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  curandStatePhilox4_32_10_t state;
  curand_init(seed, i, 0, &state);
  const uint4 bits = curand4(&state);
  x[4 * i] = bits.x, x[4 * i + 1] = bits.y, x[4 * i + 2] = bits.z, x[4 * i + 3] = bits.w;
}

// n numbers, uniform in (0, 1]; each thread has its own sequence.
template <class State>
__global__ void uniform(int n, unsigned long long seed, float* x) {
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  const int threads = gridDim.x * blockDim.x;
  State state;
  curand_init(seed, thread, 0, &state);
  for (int i = thread; i < n; i += threads) x[i] = curand_uniform(&state);
}
