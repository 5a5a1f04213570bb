#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <torch/extension.h>

#include <optional>
#include <tuple>

#include "conv_params.h"

template <class T>
void run_forward(const ConvParams& p, cudaStream_t stream);
template <class T>
void run_backward(const ConvGradients& g, cudaStream_t stream);

#define DISPATCH_FLOATING(type, name, ...)                                           \
  [&] {                                                                              \
    if (type == at::ScalarType::Float) {                                             \
      using T = float;                                                               \
      return __VA_ARGS__();                                                          \
    } else if (type == at::ScalarType::Half) {                                       \
      using T = __half;                                                              \
      return __VA_ARGS__();                                                          \
    } else if (type == at::ScalarType::BFloat16) {                                   \
      using T = __nv_bfloat16;                                                       \
      return __VA_ARGS__();                                                          \
    } else {                                                                         \
      TORCH_CHECK(false, name, ": unsupported dtype ", at::toString(type));          \
    }                                                                                \
  }()

static void check_input(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  TORCH_CHECK(x.is_cuda() && weight.is_cuda(), "x and weight must be on a GPU");
  TORCH_CHECK(x.dim() == 3, "x must have the shape (batch, channels, length)");
  TORCH_CHECK(weight.dim() == 2 && weight.size(0) == x.size(1), "weight must have the shape (channels, width)");
  TORCH_CHECK(weight.size(1) >= 2 && weight.size(1) <= 4, "width must be 2, 3 or 4");
  TORCH_CHECK(weight.scalar_type() == x.scalar_type(), "weight must have the dtype of x");
  if (bias) {
    TORCH_CHECK(bias->is_cuda() && bias->is_contiguous(), "bias must be contiguous on a GPU");
    TORCH_CHECK(bias->dim() == 1 && bias->size(0) == x.size(1), "bias must have the shape (channels,)");
    TORCH_CHECK(bias->scalar_type() == x.scalar_type(), "bias must have the dtype of x");
  }
}

static ConvParams make_params(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                              const at::Tensor* y, bool silu) {
  ConvParams p{};
  p.batch = x.size(0);
  p.channels = x.size(1);
  p.length = x.size(2);
  p.width = weight.size(1);
  p.silu = silu;
  p.x_batch = x.stride(0);
  p.x_channel = x.stride(1);
  p.x_time = x.stride(2);
  p.weight_channel = weight.stride(0);
  p.weight_tap = weight.stride(1);
  p.x = x.const_data_ptr();
  p.weight = weight.const_data_ptr();
  p.bias = bias ? bias->const_data_ptr() : nullptr;
  if (y) {
    p.y_batch = y->stride(0);
    p.y_channel = y->stride(1);
    p.y_time = y->stride(2);
    p.y = y->mutable_data_ptr();
  }
  return p;
}

at::Tensor forward(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias, bool silu) {
  check_input(x, weight, bias);
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor y = at::empty_like(x);
  if (x.numel() == 0) return y;
  const ConvParams p = make_params(x, weight, bias, &y, silu);
  DISPATCH_FLOATING(x.scalar_type(), "forward",
                    [&] { run_forward<T>(p, at::cuda::getCurrentCUDAStream()); });
  return y;
}

std::tuple<at::Tensor, at::Tensor, std::optional<at::Tensor>> backward(const at::Tensor& dy, const at::Tensor& x,
                                                                       const at::Tensor& weight,
                                                                       const std::optional<at::Tensor>& bias,
                                                                       bool silu) {
  check_input(x, weight, bias);
  TORCH_CHECK(dy.is_cuda() && dy.sizes() == x.sizes(), "dy must have the shape of x, on a GPU");
  TORCH_CHECK(dy.scalar_type() == x.scalar_type(), "dy must have the dtype of x");
  const c10::cuda::CUDAGuard guard(x.device());
  const auto wide = weight.options().dtype(at::kFloat);
  at::Tensor dx = at::empty_like(x);
  at::Tensor dweight = at::zeros(weight.sizes(), wide);
  std::optional<at::Tensor> dbias;
  if (bias) dbias = at::zeros(bias->sizes(), wide);
  if (x.numel()) {
    ConvGradients g{};
    g.forward = make_params(x, weight, bias, nullptr, silu);
    g.dy_batch = dy.stride(0);
    g.dy_channel = dy.stride(1);
    g.dy_time = dy.stride(2);
    g.dx_batch = dx.stride(0);
    g.dx_channel = dx.stride(1);
    g.dx_time = dx.stride(2);
    g.dweight_channel = dweight.stride(0);
    g.dweight_tap = dweight.stride(1);
    g.dy = dy.const_data_ptr();
    g.dx = dx.mutable_data_ptr();
    g.dweight = dweight.mutable_data_ptr<float>();
    g.dbias = dbias ? dbias->mutable_data_ptr<float>() : nullptr;
    DISPATCH_FLOATING(x.scalar_type(), "backward",
                      [&] { run_backward<T>(g, at::cuda::getCurrentCUDAStream()); });
  }
  dweight = dweight.to(weight.scalar_type());
  if (dbias) dbias = dbias->to(bias->scalar_type());
  return {dx, dweight, dbias};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward);
  m.def("backward", &backward);
}
