#pragma once
#include <cuda_runtime_api.h>

template <class T>
cudaError_t launch_axpy(int n, T a, const T* x, T* y, cudaStream_t stream);
template <class T>
cudaError_t launch_reduce(int blocks, int n, const T* x, T* partial, cudaStream_t stream);
template <class T>
cudaError_t launch_softmax(int rows, int columns, const T* x, T* y, cudaStream_t stream);
