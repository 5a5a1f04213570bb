// Compiles an expression of x and y to a kernel, evaluates it for 16 million elements, and prints the times:
//
//   expressions "gelu(x) * y" "x + y"

#include "device_memory.hpp"

#include <application/headers.h>
#include <application/headers/compile.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

constexpr int n = 1 << 24;
constexpr int launches = 100;

// The milliseconds that `function` takes, with its work on the GPU.
template <class Function>
double time(Function function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  call_driver("cuCtxSynchronize");
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

cuda_ext::Library compile(const std::string& expression) {
  cuda_ext::CompileOptions options;
  options.name = expression;
  options.headers = &application::headers::cuda_ext_headers();  // device/*.cuh, in this program
  return cuda_ext::compile(R"(
    #include "activations.cuh"
    #include "elementwise.cuh"
    extern "C" __global__ void evaluate(int n, const float* xs, const float* ys, float* zs) {
      for_each_element(n, [=](int i) {
        const float x = xs[i], y = ys[i];
        zs[i] = )" + expression + R"(;
      });
    })",
                           {"evaluate"}, options);
}

}  // namespace

int main(int count, char** arguments) try {
  if (!application::headers::cuda_ext_library().gpu_available()) {
    std::puts("There is no GPU here: nothing was launched.");
    return 0;
  }
  std::vector<std::string> expressions(arguments + 1, arguments + count);
  if (expressions.empty()) expressions = {"x + y", "gelu(x) * y", "silu(x) * relu(y)"};
  use_first_gpu();
  const DeviceVector<float> x(n);
  const DeviceVector<float> y(n);
  const DeviceVector<float> z(n);

  std::printf("%-30s %12s %12s %12s %10s\n", "expression", "compile", "from cache", "launch", "GB/s");
  bool are_valid = true;
  for (const std::string& expression : expressions) try {
    // The first time, the kernel is compiled unless an earlier run has cached it.
    const double compiled = time([&] { compile(expression).kernel("evaluate").handle(); });
    const double cached = time([&] { compile(expression).kernel("evaluate").handle(); });

    const cuda_ext::Library library = compile(expression);
    const cuda_ext::Kernel evaluate = library.kernel("evaluate");
    const auto launch = [&] { evaluate.launch({1024, 256}, n, x.data(), y.data(), z.data()); };
    time(launch);
    const double launched = time([&] { for (int i = 0; i < launches; i++) launch(); }) / launches;
    std::printf("%-30s %9.2f ms %9.2f ms %9.1f us %10.0f\n", expression.c_str(), compiled, cached, 1e3 * launched,
                3.0 * n * sizeof(float) / launched / 1e6);
  } catch (const cuda_ext::CompilationError& error) {
    std::printf("%s\n", error.what());
    are_valid = false;
  }
  return are_valid ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
