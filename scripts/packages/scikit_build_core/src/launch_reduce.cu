#include "device/reduce.cu"

#include "launchers.h"

template <class T>
cudaError_t launch_reduce(int blocks, int n, const T* x, T* partial, cudaStream_t stream) {
  reduce<T, 256><<<blocks, 256, 0, stream>>>(n, x, partial);
  return cudaGetLastError();
}

template cudaError_t launch_reduce(int, int, const float*, float*, cudaStream_t);
template cudaError_t launch_reduce(int, int, const double*, double*, cudaStream_t);
