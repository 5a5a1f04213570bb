#include "device/softmax.cu"

#include "launchers.h"

template <class T>
cudaError_t launch_softmax(int rows, int columns, const T* x, T* y, cudaStream_t stream) {
  softmax<T><<<(rows + 7) / 8, 256, 0, stream>>>(rows, columns, x, y);
  return cudaGetLastError();
}

template cudaError_t launch_softmax(int, int, const float*, float*, cudaStream_t);
template cudaError_t launch_softmax(int, int, const double*, double*, cudaStream_t);
