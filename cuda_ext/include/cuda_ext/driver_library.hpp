// The driver's own shared library, libcuda.so.1 or nvcuda.dll.

#pragma once

#include "data.hpp"
#include "text.hpp"

#include <cstdint>
#include <string>

#if defined(_WIN32)
// Declared as windows.h does, which is large and full of macros.
struct HINSTANCE__;
extern "C" {
__declspec(dllimport) HINSTANCE__* __stdcall LoadLibraryExA(const char*, void*, unsigned long);
__declspec(dllimport) unsigned long __stdcall GetLastError();
__declspec(dllimport) long long(__stdcall* __stdcall GetProcAddress(HINSTANCE__*, const char*))();
}
#else
#include <dlfcn.h>
#endif

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {

// Opened by the constructor, and never closed: the driver does not survive that.
class DriverLibrary {
 public:
#if defined(_WIN32)
  DriverLibrary() : handle_(::LoadLibraryExA("nvcuda.dll", nullptr, search_system32_only)) {
    if (!handle_) reason_ = joined({"nvcuda.dll: error ", ::GetLastError()});
  }
#else
  DriverLibrary() : handle_(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (handle_) return;
    const char* reason = ::dlerror();
    reason_ = reason ? reason : "libcuda.so.1 cannot be opened";
  }
#endif

  // Why it could not be opened; empty if it could.
  const std::string& reason() const noexcept { return reason_; }

  // Let `function` be what the library exports as `name`, or nullptr.
  template <class Function>
  void find(Function& function, const char* name) const noexcept {
#if defined(_WIN32)
    function = reinterpret_cast<Function>(reinterpret_cast<void*>(::GetProcAddress(handle_, name)));
#else
    function = reinterpret_cast<Function>(::dlsym(handle_, name));
#endif
  }

 private:
#if defined(_WIN32)
  static constexpr unsigned long search_system32_only = 0x800;
  ::HINSTANCE__* handle_;
#else
  void* handle_;
#endif
  std::string reason_;
};

}  // namespace v1
}  // namespace cuda_ext
