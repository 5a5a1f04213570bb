#include "device/axpy.cu"

#include "launchers.h"

template <class T>
cudaError_t launch_axpy(int n, T a, const T* x, T* y, cudaStream_t stream) {
  axpy<T><<<(n + 255) / 256, 256, 0, stream>>>(n, a, x, y);
  return cudaGetLastError();
}

template cudaError_t launch_axpy(int, float, const float*, float*, cudaStream_t);
template cudaError_t launch_axpy(int, double, const double*, double*, cudaStream_t);
