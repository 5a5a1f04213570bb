// A shared library, opened when the program runs: the driver, or NVRTC.

#pragma once

#include <cstdint>
#include <string>

#include "../interface.hpp"
#include "failure.hpp"

#if defined(_WIN32)
// Declared as in windows.h, which is large and full of macros.
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

// Windows searches the system's directory and, for the dependencies of a library with a full path, that
// library's directory. It never searches the current directory.
enum class LibrarySearch : unsigned long { system = 0x800, its_directory = 0x1100 };

// The constructor opens it. It is never closed: the driver does not survive that.
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
  // `name` is a path, or a name that the system's linker finds.
  SharedLibrary(const char* name, LibrarySearch) : handle_(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_) return;
    const char* reason = ::dlerror();
    reason_ = reason ? reason : joined({name, " cannot be opened"});
  }
#endif

  // Says why it could not be opened; empty if it could.
  const std::string& reason() const noexcept { return reason_; }

  // Sets `function` to the symbol `name` of the library, or to nullptr; returns true if it exists.
  template <class Function>
  bool find(Function& function, const char* name) const noexcept {
    function = nullptr;
    if (!handle_) return false;  // dlsym would take nullptr for all libraries of the process
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
