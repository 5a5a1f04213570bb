// bins[v] += the number of bytes v in data. Blocks count in shared memory, where atomics are fast, and
// add to global memory once per bin. extern "C" leaves the name unmangled for other loaders.
extern "C" __global__ void histogram(const unsigned char* data, unsigned long long n,
                                     unsigned int* bins) {
  __shared__ unsigned int block_bins[256];
  for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) block_bins[bin] = 0;
  __syncthreads();

  const unsigned long long stride = 1ull * gridDim.x * blockDim.x;
  for (unsigned long long i = 1ull * blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    atomicAdd(&block_bins[data[i]], 1);
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) {
    atomicAdd(&bins[bin], block_bins[bin]);
  }
}
