// What projects do that have neither exceptions nor type information.

#include "sample.h"

#include <cstdio>
#include <type_traits>
#include <utility>

namespace kernels = sample::kernels;

static_assert(!CUDA_EXT_EXCEPTIONS);
static_assert(!std::is_copy_constructible_v<cuda_ext::Kernel> &&
              std::is_nothrow_move_constructible_v<cuda_ext::Kernel>);
static_assert(!std::is_copy_constructible_v<cuda_ext::Library>);
static_assert(noexcept(kernels::plain.try_launch({1, 1})));

static void print(const cuda_ext::Result<void>& result) {
  if (result) {
    std::puts("launched");
  } else {
    std::printf("%d %d %s\n", static_cast<int>(result.error().kind), result.error().code,
                result.error().message);
  }
}

int main() {
  const cuda_ext::LaunchConfig config{1, 1};
  print(kernels::plain.try_launch(config));
  print(kernels::axpy<float>.try_launch(config, 1, 2.0f, nullptr, nullptr));

  cuda_ext::Library library(kernels::cuda_ext_module);
  auto kernel = library.try_kernel("ov(int)");
  if (kernel) {
    print(kernel->try_launch(config, 1));
    print(kernel->try_launch(config));
  }
  const cuda_ext::Kernel moved = std::move(*kernel);
  int n = 2;
  void* arguments[] = {&n};
  print(moved.try_launch_raw(config, arguments));
  auto attribute = moved.try_attribute(0);
  std::printf("%d\n", attribute ? *attribute : attribute.error().code);
  auto symbol = library.try_symbol("weights");
  std::printf("%d\n", symbol ? static_cast<int>(symbol->size) : symbol.error().code);
  auto none = library.try_kernel("lain");
  std::puts(none ? "found" : none.error().message);
}
