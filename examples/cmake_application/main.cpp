#include "device_memory.hpp"

#include <application/kernels.h>

#include <algorithm>
#include <cstdio>
#include <exception>

namespace kernels = application::kernels;

int main() try {
  std::printf("%s, compiled by %s:", kernels::cuda_ext_module.name, kernels::cuda_ext_module.compiler);
  for (const auto& kernel : kernels::cuda_ext_module.kernels) std::printf(" %s", kernel.expression);
  std::puts("");
  if (!kernels::cuda_ext_library().gpu_available()) {
    std::puts("There is no GPU here: nothing was launched.");
    return 0;
  }

  constexpr unsigned n = 1'000'000;
  constexpr unsigned block = 256;
  use_first_gpu();
  const DeviceVector<unsigned> steps(n);
  kernels::collatz({(n + block - 1) / block, block}, n, steps.data());

  const auto found = steps.to_host();
  const auto longest = std::max_element(found.begin(), found.end());
  std::printf("Below %u, it takes longest from %td to one: %u steps.\n", n, longest - found.begin(), *longest);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
