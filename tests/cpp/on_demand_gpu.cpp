// Adds arrays on the GPU with an instantiation of axpy, and prints the sums: `program float`, `program
// double`. Last comes whether NVRTC was opened.

#include <p/kernels.h>

#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

// Of the driver, what memory takes.
struct Memory {
  Memory() {
    find(allocate, "cuMemAlloc_v2");
    find(to_device, "cuMemcpyHtoD_v2");
    find(to_host, "cuMemcpyDtoH_v2");
  }

  template <class Function>
  static void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(::dlopen("libcuda.so.1", RTLD_NOW), name));
  }

  int (*allocate)(unsigned long long* address, std::size_t size);
  int (*to_device)(unsigned long long to, const void* from, std::size_t size);
  int (*to_host)(void* to, unsigned long long from, std::size_t size);
};

template <class T>
int add(const std::string& type) {
  constexpr int count = 1000;
  const cuda_ext::Kernel axpy = p::kernels::cuda_ext_library().kernel("axpy<" + type + ">");
  axpy.handle();  // which makes a context current
  const Memory memory;
  std::vector<T> x(count);
  std::vector<T> y(count);
  for (std::size_t i = 0; i < x.size(); i++) {
    x[i] = static_cast<T>(i);
    y[i] = static_cast<T>(3 * i);
  }
  unsigned long long at[2] = {};
  for (unsigned long long& address : at) {
    if (memory.allocate(&address, count * sizeof(T))) return 2;
  }
  if (memory.to_device(at[0], x.data(), count * sizeof(T))) return 2;
  if (memory.to_device(at[1], y.data(), count * sizeof(T))) return 2;
  axpy.launch({(count + 255) / 256, 256}, count, T{2}, at[0], at[1]);
  if (memory.to_host(y.data(), at[1], count * sizeof(T))) return 2;
  for (const T value : y) std::printf("%.17g ", static_cast<double>(value));
  std::printf("\n%s\n", ::dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_NOLOAD) ? "nvrtc" : "no nvrtc");
  return 0;
}

}  // namespace

int main(int, char** arguments) {
  const std::string type = arguments[1];
  try {
    return type == "float" ? add<float>(type) : add<double>(type);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
