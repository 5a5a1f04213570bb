#pragma once

inline __device__ int thread_index() { return blockIdx.x * blockDim.x + threadIdx.x; }
