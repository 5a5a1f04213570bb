#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <limits>

#include "launchers.h"

// With PyTorch's stable ABI, so that one wheel is for all its versions from 2.10 on. PyTorch checks that
// tensors are tensors and on a GPU; all else is up to us.
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

static int checked_size(int64_t size) {
  STD_TORCH_CHECK(size <= std::numeric_limits<int>::max(), "the kernels count in int");
  return static_cast<int>(size);
}

static void check_alike(const Tensor& x, const Tensor& y) {
  STD_TORCH_CHECK(x.get_device_index() == y.get_device_index(), "x and y must be on one device");
  STD_TORCH_CHECK(x.scalar_type() == y.scalar_type(), "x and y must be of one dtype");
  STD_TORCH_CHECK(x.is_contiguous() && y.is_contiguous(), "x and y must be contiguous");
}

template <class Launch>
void dispatch(const Tensor& x, Launch launch) {
  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream));
  const bool single = x.scalar_type() == ScalarType::Float;
  STD_TORCH_CHECK(single || x.scalar_type() == ScalarType::Double, "x must be float or double");
  const cudaStream_t into = static_cast<cudaStream_t>(stream);
  const cudaError_t error = single ? launch(float{}, into) : launch(double{}, into);
  STD_TORCH_CHECK(error == cudaSuccess, cudaGetErrorString(error));
}

static void axpy(double a, const Tensor& x, Tensor y) {
  check_alike(x, y);
  STD_TORCH_CHECK(x.numel() == y.numel(), "x and y must be of one length");
  dispatch(x, [&]<class T>(T, cudaStream_t stream) {
    const int n = checked_size(x.numel());
    return launch_axpy<T>(n, static_cast<T>(a), x.const_data_ptr<T>(), y.mutable_data_ptr<T>(), stream);
  });
}

static void reduce(const Tensor& x, Tensor partial) {
  check_alike(x, partial);
  dispatch(x, [&]<class T>(T, cudaStream_t stream) {
    const int n = checked_size(x.numel()), blocks = checked_size(partial.numel());
    return launch_reduce<T>(blocks, n, x.const_data_ptr<T>(), partial.mutable_data_ptr<T>(), stream);
  });
}

static void softmax(const Tensor& x, Tensor y) {
  check_alike(x, y);
  STD_TORCH_CHECK(x.dim() == 2 && y.dim() == 2, "x and y must be matrices");
  STD_TORCH_CHECK(x.size(0) == y.size(0) && x.size(1) == y.size(1), "x and y must be of one shape");
  dispatch(x, [&]<class T>(T, cudaStream_t stream) {
    const int rows = checked_size(x.size(0)), columns = checked_size(x.size(1));
    return launch_softmax<T>(rows, columns, x.const_data_ptr<T>(), y.mutable_data_ptr<T>(), stream);
  });
}

STABLE_TORCH_LIBRARY(vector_kernels, m) {
  m.def("axpy(float a, Tensor x, Tensor(a!) y) -> ()");
  m.def("reduce(Tensor x, Tensor(a!) partial) -> ()");
  m.def("softmax(Tensor x, Tensor(a!) y) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(vector_kernels, CUDA, m) {
  m.impl("axpy", TORCH_BOX(&axpy));
  m.impl("reduce", TORCH_BOX(&reduce));
  m.impl("softmax", TORCH_BOX(&softmax));
}
