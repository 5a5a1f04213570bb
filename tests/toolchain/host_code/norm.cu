// instantiate: norm_kernel<float>
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <vector>
#include <cmath>
#include <cuda_runtime.h>
#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
#define HD __host__ __device__ __forceinline__
namespace {
HD float square(float x) { return x * x; }
constexpr int blocks(int n) { return (n + 255) / 256; }
struct Params {
  int n; float eps;
  Params(int n) : n(n), eps{1e-5f} {}
  HD float at(int i) const { return i * eps; }
};
template <typename scalar_t>
__global__ void norm_kernel(const scalar_t* __restrict__ x, scalar_t* y, Params p) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.n) y[i] = std::sqrt(square(x[i]) + p.at(blocks(i)));
}
}
static int counter = 0;
torch::Tensor norm_cuda(torch::Tensor x, double eps) {
  CHECK_CUDA(x);
  auto y = torch::empty_like(x);
  Params p(x.numel());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "norm", ([&] {
    norm_kernel<scalar_t><<<blocks(p.n), 256>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), p);
  }));
  return y;
}
std::vector<torch::Tensor> both(torch::Tensor a);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("norm", &norm_cuda, "norm (CUDA)"); }
