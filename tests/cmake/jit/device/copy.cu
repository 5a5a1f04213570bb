#include "utils.cuh"
#include <shared/limits.cuh>

template <class T>
__global__ void copy(int n, const T* x, T* y) {
  if (n <= most_elements && thread_index() < n) y[thread_index()] = x[thread_index()];
}
