// Memory on the first GPU through the driver API, under Linux. A larger application uses the CUDA runtime, for example,
// and passes its pointers and streams to the kernels in the same way.

#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <dlfcn.h>

// Call a driver function in its version of CUDA 12.0.
template <class... Arguments>
void call_driver(const char* name, Arguments... arguments) {
  using GetFunction = int (*)(const char* name, void** function, int version, std::uint64_t flags, int* status);
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  static void* const find = library ? dlsym(library, "cuGetProcAddress_v2") : nullptr;
  void* function = nullptr;
  if (find) reinterpret_cast<GetFunction>(find)(name, &function, 12000, 0, nullptr);
  if (!function) throw std::runtime_error(std::string("the CUDA driver has no ") + name);
  if (const int error = reinterpret_cast<int (*)(Arguments...)>(function)(arguments...)) {
    throw std::runtime_error(std::string(name) + " failed with CUDA error " + std::to_string(error));
  }
}

// Make the primary context of the first GPU current; kernels are launched in it.
inline void use_first_gpu() {
  void* context = nullptr;
  call_driver("cuInit", 0U);
  call_driver("cuDevicePrimaryCtxRetain", &context, 0);
  call_driver("cuCtxSetCurrent", context);
}

template <class T>
class DeviceVector {
 public:
  explicit DeviceVector(std::size_t size) : size_(size) { call_driver("cuMemAlloc", &address_, size * sizeof(T)); }
  DeviceVector(const DeviceVector&) = delete;
  DeviceVector& operator=(const DeviceVector&) = delete;
  ~DeviceVector() {
    try {
      call_driver("cuMemFree", address_);
    } catch (const std::runtime_error&) {
      // An earlier error is the one to report.
    }
  }

  T* data() const { return reinterpret_cast<T*>(address_); }

  // A copy of the content after all kernels in the default stream.
  std::vector<T> to_host() const {
    std::vector<T> copy(size_);
    call_driver("cuMemcpyDtoH", static_cast<void*>(copy.data()), address_, size_ * sizeof(T));
    return copy;
  }

 private:
  std::size_t size_;
  std::uint64_t address_ = 0;
};
