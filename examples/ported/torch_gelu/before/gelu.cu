#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

// The type of the arithmetic.
template <class T> struct Wide { using type = float; };
template <> struct Wide<double> { using type = double; };

template <class T>
__global__ void gelu_forward(int64_t n, const T* x, T* y) {
  using W = typename Wide<T>::type;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const W v = static_cast<W>(x[i]);
  y[i] = static_cast<T>(W(0.5) * v * (W(1) + erf(v * W(0.70710678118654752))));
}

template <class T>
__global__ void gelu_backward(int64_t n, const T* dy, const T* x, T* dx) {
  using W = typename Wide<T>::type;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const W v = static_cast<W>(x[i]);
  const W slope = W(0.5) * (W(1) + erf(v * W(0.70710678118654752))) + v * W(0.39894228040143268) * exp(W(-0.5) * v * v);
  dx[i] = static_cast<T>(static_cast<W>(dy[i]) * slope);
}

constexpr int BLOCK = 256;

torch::Tensor forward(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda(), "x must be on a GPU");
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  const c10::cuda::CUDAGuard guard(x.device());
  torch::Tensor y = torch::empty_like(x);
  const int64_t n = x.numel();
  if (n == 0) return y;
  AT_DISPATCH_FLOATING_TYPES_AND(at::ScalarType::Half, x.scalar_type(), "gelu_forward", [&] {
    gelu_forward<scalar_t><<<(n + BLOCK - 1) / BLOCK, BLOCK, 0, at::cuda::getCurrentCUDAStream()>>>(
        n, x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

torch::Tensor backward(torch::Tensor dy, torch::Tensor x) {
  TORCH_CHECK(dy.is_cuda() && x.is_cuda(), "dy and x must be on a GPU");
  TORCH_CHECK(dy.is_contiguous() && x.is_contiguous(), "dy and x must be contiguous");
  TORCH_CHECK(dy.scalar_type() == x.scalar_type(), "dy and x must have the same dtype");
  const c10::cuda::CUDAGuard guard(x.device());
  torch::Tensor dx = torch::empty_like(x);
  const int64_t n = x.numel();
  if (n == 0) return dx;
  AT_DISPATCH_FLOATING_TYPES_AND(at::ScalarType::Half, x.scalar_type(), "gelu_backward", [&] {
    gelu_backward<scalar_t><<<(n + BLOCK - 1) / BLOCK, BLOCK, 0, at::cuda::getCurrentCUDAStream()>>>(
        n, dy.data_ptr<scalar_t>(), x.data_ptr<scalar_t>(), dx.data_ptr<scalar_t>());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return dx;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward);
  m.def("backward", &backward);
}
