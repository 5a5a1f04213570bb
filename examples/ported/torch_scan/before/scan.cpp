#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/complex.h>
#include <cuda_fp16.h>
#include <torch/extension.h>

#include <optional>
#include <tuple>

#include "scan_params.h"

template <class T, class W>
void run_forward(const ScanParams& p, cudaStream_t stream);

static void check_shape(const at::Tensor& tensor, at::IntArrayRef shape, at::ScalarType type, const char* name) {
  TORCH_CHECK(tensor.is_cuda(), name, " must be on a GPU");
  TORCH_CHECK(tensor.sizes() == shape, name, " has another shape");
  TORCH_CHECK(tensor.scalar_type() == type, name, " must have the dtype ", at::toString(type));
}

static void check_time(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.stride(-1) == 1 || tensor.size(-1) <= 1, name, " must be contiguous in time");
}

std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& A,
                                           const at::Tensor& B, const at::Tensor& C,
                                           const std::optional<at::Tensor>& D, bool softplus) {
  TORCH_CHECK(x.is_cuda() && x.dim() == 3, "x must have the shape (batch, channels, length), on a GPU");
  TORCH_CHECK(A.dim() == 2 && A.size(1) <= 64, "A must have the shape (channels, at most 64 states)");
  const auto batch = x.size(0), channels = x.size(1), length = x.size(2), states = A.size(1);
  const auto wide = A.scalar_type();
  TORCH_CHECK(wide == at::kFloat || wide == at::kComplexFloat, "A must be float32 or complex64");
  check_shape(delta, x.sizes(), x.scalar_type(), "delta");
  check_shape(A, {channels, states}, wide, "A");
  check_shape(B, {batch, states, length}, wide, "B");
  check_shape(C, {batch, states, length}, wide, "C");
  if (D) check_shape(*D, {channels}, at::kFloat, "D");
  check_time(x, "x");
  check_time(delta, "delta");
  check_time(B, "B");
  check_time(C, "C");
  TORCH_CHECK(!D || D->is_contiguous(), "D must be contiguous");
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor y = at::empty(x.sizes(), x.options());
  at::Tensor last = at::empty({batch, channels, states}, A.options());
  if (x.numel() == 0) return {y, last.zero_()};
  ScanParams p{};
  p.batch = batch;
  p.channels = channels;
  p.length = length;
  p.states = states;
  p.softplus = softplus;
  p.x_batch = x.stride(0);
  p.x_channel = x.stride(1);
  p.delta_batch = delta.stride(0);
  p.delta_channel = delta.stride(1);
  p.A_channel = A.stride(0);
  p.A_state = A.stride(1);
  p.B_batch = B.stride(0);
  p.B_state = B.stride(1);
  p.C_batch = C.stride(0);
  p.C_state = C.stride(1);
  p.y_batch = y.stride(0);
  p.y_channel = y.stride(1);
  p.last_batch = last.stride(0);
  p.last_channel = last.stride(1);
  p.x = x.const_data_ptr();
  p.delta = delta.const_data_ptr();
  p.A = A.const_data_ptr();
  p.B = B.const_data_ptr();
  p.C = C.const_data_ptr();
  p.D = D ? D->const_data_ptr<float>() : nullptr;
  p.y = y.mutable_data_ptr();
  p.last = last.mutable_data_ptr();
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  const bool is_complex = wide == at::kComplexFloat;
  if (x.scalar_type() == at::kFloat)
    is_complex ? run_forward<float, c10::complex<float>>(p, stream) : run_forward<float, float>(p, stream);
  else if (x.scalar_type() == at::kHalf)
    is_complex ? run_forward<__half, c10::complex<float>>(p, stream) : run_forward<__half, float>(p, stream);
  else
    TORCH_CHECK(false, "forward: unsupported dtype ", at::toString(x.scalar_type()));
  return {y, last};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
