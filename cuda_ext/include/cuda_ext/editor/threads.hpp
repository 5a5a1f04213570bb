// Threads: indices, synchronisation, and exchange of values.

#pragma once

extern const __device__ uint3 threadIdx;
extern const __device__ uint3 blockIdx;
extern const __device__ dim3 blockDim;
extern const __device__ dim3 gridDim;
extern const __device__ int warpSize;

extern "C" {

__device__ void __syncthreads();
__device__ int __syncthreads_count(int predicate);
__device__ int __syncthreads_and(int predicate);
__device__ int __syncthreads_or(int predicate);
__device__ void __barrier_sync(unsigned int id);
__device__ void __barrier_sync_count(unsigned int id, unsigned int count);
__device__ void __threadfence();
__device__ void __threadfence_block();
__device__ void __threadfence_cluster();
__device__ void __threadfence_system();

__device__ unsigned int __activemask();
__device__ int __all_sync(unsigned int mask, int predicate);
__device__ int __any_sync(unsigned int mask, int predicate);
__device__ int __uni_sync(unsigned int mask, int predicate);
__device__ unsigned int __ballot_sync(unsigned int mask, int predicate);

__device__ unsigned int __clusterDimIsSpecified();
__device__ unsigned int __clusterRelativeBlockRank();
__device__ unsigned int __clusterSizeInBlocks();
__device__ void __cluster_barrier_arrive();
__device__ void __cluster_barrier_arrive_relaxed();
__device__ void __cluster_barrier_wait();
__device__ void* __cluster_map_shared_rank(const void* address, unsigned int rank);
__device__ unsigned int __cluster_query_shared_rank(const void* address);
__device__ uint2 __cluster_map_shared_multicast(const void* address, unsigned int mask);

__device__ clock_t clock();
__device__ long long clock64();
__device__ void __nanosleep(unsigned int nanoseconds);
__device__ void __prof_trigger(int counter);
__device__ void __brkpt();
__device__ void __trap();
__host__ __device__ int printf(const char* format, ...);
__host__ __device__ void __assert_fail(const char* condition, const char* file, unsigned int line,
                                       const char* function) noexcept;
__host__ __device__ void __assertfail(const char* condition, const char* file, unsigned int line,
                                      const char* function, size_t size) noexcept;

__device__ cudaError_t cudaGetLastError();
__device__ cudaError_t cudaPeekAtLastError();
__device__ const char* cudaGetErrorString(cudaError_t error);
__device__ const char* cudaGetErrorName(cudaError_t error);
__device__ void cudaTriggerProgrammaticLaunchCompletion();
__device__ void cudaGridDependencySynchronize();

}  // extern "C"

__device__ dim3 __clusterDim();
__device__ dim3 __clusterRelativeBlockIdx();
__device__ dim3 __clusterGridDimInClusters();
__device__ dim3 __clusterIdx();
__device__ void __syncwarp(unsigned int mask = 0xffffffff);

#define EXCHANGED(type)                                                                                  \
  __device__ type __shfl_sync(unsigned int mask, type value, int source, int width = warpSize);          \
  __device__ type __shfl_up_sync(unsigned int mask, type value, unsigned int delta, int width = warpSize);   \
  __device__ type __shfl_down_sync(unsigned int mask, type value, unsigned int delta, int width = warpSize); \
  __device__ type __shfl_xor_sync(unsigned int mask, type value, int lanes, int width = warpSize);       \
  __device__ unsigned int __match_any_sync(unsigned int mask, type value);                               \
  __device__ unsigned int __match_all_sync(unsigned int mask, type value, int* all);
EXCHANGED(int) EXCHANGED(unsigned int) EXCHANGED(long) EXCHANGED(unsigned long) EXCHANGED(long long)
EXCHANGED(unsigned long long) EXCHANGED(float) EXCHANGED(double)
#undef EXCHANGED

#define REDUCED(type)                                                          \
  __device__ type __reduce_add_sync(unsigned int mask, type value);            \
  __device__ type __reduce_min_sync(unsigned int mask, type value);            \
  __device__ type __reduce_max_sync(unsigned int mask, type value);
REDUCED(int) REDUCED(unsigned int)
#undef REDUCED
__device__ unsigned int __reduce_and_sync(unsigned int mask, unsigned int value);
__device__ unsigned int __reduce_or_sync(unsigned int mask, unsigned int value);
__device__ unsigned int __reduce_xor_sync(unsigned int mask, unsigned int value);

// The launch configuration between <<< and >>>.
extern "C" __host__ __device__ unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block,
                                                                        size_t shared = 0,
                                                                        CUstream_st* stream = nullptr);
