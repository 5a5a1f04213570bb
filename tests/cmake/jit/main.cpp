// Compiles a kernel that is made at run time, with the headers that the module embeds, and an instantiation that was
// not built ahead.

#include <app/kernels.h>
#include <app/kernels/compile.hpp>

#include <cstdio>
#include <string>

namespace {

// Includes by the path below an include directory, and by the path within the project.
constexpr const char* made_at_run_time = R"(
#include "ops/unary.cuh"
#include "device/ops/binary.cuh"
#include <shared/limits.cuh>

template <class Op, class T>
__global__ void zip(int n, const T* x, T* y) {
  const int i = thread_index();
  if (n <= most_elements && i < n) y[i] = ops::Negate{}(Op{}(x[i], y[i]));
}
)";

}  // namespace

int main() {
  const cuda_ext::HeaderData& headers = app::kernels::cuda_ext_headers();
  for (int i = 0; i < headers.count; i++) std::printf("header %s\n", headers.names[i]);
  const cuda_ext::SourceData& named = app::kernels::cuda_ext_sources::device_ops_binary_cuh;
  std::printf("%s has %zu bytes\n", named.name, std::string(named.text).size());

  cuda_ext::CompileOptions options;
  options.headers = &headers;
  const std::string name = "zip<ops::Subtract, __half>";
  const auto library = cuda_ext::compile(made_at_run_time, {name, "zip<ops::Subtract, float>"}, options);
  const void* x = nullptr;
  library.kernel(name).launch({1, 32}, 32, x, x);
  app::kernels::cuda_ext_library().kernel("copy<double>").launch({1, 32}, 32, x, x);
}
