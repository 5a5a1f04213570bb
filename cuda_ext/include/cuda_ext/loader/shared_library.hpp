// A shared library, opened when the program runs: the driver, or NVRTC.

#pragma once

#include <cstdint>
#include <string>

#include "../interface.hpp"
#include "text.hpp"

#if defined(_WIN32)
// Declared as windows.h does, which is large and full of macros.
struct HINSTANCE__;
extern "C" {
__declspec(dllimport) HINSTANCE__* __stdcall LoadLibraryExW(const wchar_t*, void*, unsigned long);
__declspec(dllimport) unsigned long __stdcall GetLastError();
__declspec(dllimport) long long(__stdcall* __stdcall GetProcAddress(HINSTANCE__*, const char*))();
}
#else
#include <dlfcn.h>
#endif

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// Where Windows searches: in the system's directory, or, for the libraries that one with a full path needs,
// in its own. Never in the current directory.
enum class LibrarySearch : unsigned long { system = 0x800, its_directory = 0x1100 };

// Opened by the constructor, and never closed: the driver does not survive that.
class SharedLibrary {
 public:
#if defined(_WIN32)
  SharedLibrary(const wchar_t* name, LibrarySearch search)
      : handle_(::LoadLibraryExW(name, nullptr, static_cast<unsigned long>(search))) {
    if (handle_) return;
    const unsigned long error = ::GetLastError();
    for (; *name; name++) reason_ += *name < 128 ? static_cast<char>(*name) : '?';
    reason_ += joined({": error ", error});
  }
#else
  // `name` is one that the system's linker finds, or a path.
  SharedLibrary(const char* name, LibrarySearch) : handle_(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_) return;
    const char* reason = ::dlerror();
    reason_ = reason ? reason : joined({name, " cannot be opened"});
  }
#endif

  // Why it could not be opened; empty if it could.
  const std::string& reason() const noexcept { return reason_; }

  // Let `function` be what the library exports as `name`, or nullptr; return whether it does.
  template <class Function>
  bool find(Function& function, const char* name) const noexcept {
    function = nullptr;
    if (!handle_) return false;  // which dlsym would take for all libraries of the process
#if defined(_WIN32)
    function = reinterpret_cast<Function>(reinterpret_cast<void*>(::GetProcAddress(handle_, name)));
#else
    function = reinterpret_cast<Function>(::dlsym(handle_, name));
#endif
    return function != nullptr;
  }

 private:
#if defined(_WIN32)
  ::HINSTANCE__* handle_;
#else
  void* handle_;
#endif
  std::string reason_;
};

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
