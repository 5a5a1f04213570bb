#include <cuda/std/complex>

template <class T>
__global__ void scale(int n, T factor, T* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factor;
}

namespace signal {

template <class T, int TAPS>
struct Window {
  T weights[TAPS];
};

// y = x filtered by a window that is centred on each element; zeros lie beyond the ends.
template <class T, int TAPS>
__global__ void filter(int n, Window<T, TAPS> window, const T* x, T* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  T sum = 0;
  for (int tap = 0; tap < TAPS; ++tap) {
    const int from = i + tap - TAPS / 2;
    if (from >= 0 && from < n) sum += window.weights[tap] * x[from];
  }
  y[i] = sum;
}

enum class Edge { Zero, Wrap };

// y[i] = x[i] - x[i - 1]; EDGE is what comes before the first element.
template <Edge EDGE>
__global__ void difference(int n, const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float before = i > 0 ? x[i - 1] : EDGE == Edge::Wrap ? x[n - 1] : 0;
  y[i] = x[i] - before;
}

}  // namespace signal

__global__ void fill(int n, int value, int* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = value;
}

__global__ void fill(int n, float value, float* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = value;
}
