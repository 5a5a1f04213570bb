#include <cuda_fp16.h>

// The type of the arithmetic.
template <class T> struct Wide { using type = float; };
template <> struct Wide<double> { using type = double; };

template <class T>
__global__ void gelu_forward(long long n, const T* x, T* y) {
  using W = typename Wide<T>::type;
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const W v = static_cast<W>(x[i]);
  y[i] = static_cast<T>(W(0.5) * v * (W(1) + erf(v * W(0.70710678118654752))));
}

template <class T>
__global__ void gelu_backward(long long n, const T* dy, const T* x, T* dx) {
  using W = typename Wide<T>::type;
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const W v = static_cast<W>(x[i]);
  const W slope = W(0.5) * (W(1) + erf(v * W(0.70710678118654752))) + v * W(0.39894228040143268) * exp(W(-0.5) * v * v);
  dx[i] = static_cast<T>(static_cast<W>(dy[i]) * slope);
}
