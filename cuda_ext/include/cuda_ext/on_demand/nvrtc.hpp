// NVRTC's library and programs: the part of nvrtc.h that compiling takes.

#pragma once

#include "../data.hpp"
#include "../text.hpp"
#include "paths.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>

// As nvrtc.h declares it, which may be included too.
struct _nvrtcProgram;

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

namespace nvrtc_api {

using Program = ::_nvrtcProgram*;
using Code = int;  // nvrtcResult

inline constexpr Code success = 0;

struct Functions {
  Code (*version)(int* major, int* minor);
  const char* (*error_string)(Code code);
  Code (*architecture_count)(int* count);
  Code (*architectures)(int* numbers);
  Code (*create)(Program* program, const char* source, const char* name, int count,
                 const char* const* headers, const char* const* names);
  Code (*destroy)(Program* program);
  Code (*add_name_expression)(Program program, const char* expression);
  Code (*compile)(Program program, int count, const char* const* options);
  Code (*lowered_name)(Program program, const char* expression, const char** lowered);
  Code (*log_size)(Program program, std::size_t* size);
  Code (*log)(Program program, char* text);
  Code (*cubin_size)(Program program, std::size_t* size);
  Code (*cubin)(Program program, char* bytes);
  Code (*ptx_size)(Program program, std::size_t* size);
  Code (*ptx)(Program program, char* text);
  Code (*install_headers)(const char* directory, unsigned flags, const char** log);  // since 13.3
};

}  // namespace nvrtc_api

// The library, once it could be opened. It is never closed.
class Nvrtc {
 public:
  nvrtc_api::Functions call{};
  std::vector<int> architectures;  // sorted
  std::string version;             // "13.5"

  // What went wrong, or nothing.
  std::string open(const std::string& path) {
    library_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library_) {
      const char* reason = ::dlerror();
      return reason ? reason : path;
    }
    if (!find_all()) return path + ": is no NVRTC of CUDA 12 or newer";
    int major = 0;
    int minor = 0;
    int count = 0;
    if (call.version(&major, &minor) || call.architecture_count(&count) || count <= 0) {
      return path + ": does not work";
    }
    architectures.resize(static_cast<std::size_t>(count));
    if (call.architectures(architectures.data())) return path + ": does not work";
    std::sort(architectures.begin(), architectures.end());
    version = joined({major, ".", minor});
    // It opens this by name, which the dlopen of a sanitizer does not find beside it.
    ::dlopen(joined({parent(path), "/libnvrtc-builtins.so.", version}).c_str(), RTLD_NOW | RTLD_LOCAL);
    return "";
  }

  bool supports(int architecture) const noexcept {
    return std::binary_search(architectures.begin(), architectures.end(), architecture);
  }

 private:
  template <class Function>
  bool find(Function& function, const char* name) noexcept {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
    return function != nullptr;
  }

  bool find_all() noexcept {
    find(call.install_headers, "nvrtcInstallBundledHeaders");
    return find(call.version, "nvrtcVersion") && find(call.error_string, "nvrtcGetErrorString") &&
           find(call.architecture_count, "nvrtcGetNumSupportedArchs") &&
           find(call.architectures, "nvrtcGetSupportedArchs") && find(call.create, "nvrtcCreateProgram") &&
           find(call.destroy, "nvrtcDestroyProgram") &&
           find(call.add_name_expression, "nvrtcAddNameExpression") &&
           find(call.compile, "nvrtcCompileProgram") && find(call.lowered_name, "nvrtcGetLoweredName") &&
           find(call.log_size, "nvrtcGetProgramLogSize") && find(call.log, "nvrtcGetProgramLog") &&
           find(call.cubin_size, "nvrtcGetCUBINSize") && find(call.cubin, "nvrtcGetCUBIN") &&
           find(call.ptx_size, "nvrtcGetPTXSize") && find(call.ptx, "nvrtcGetPTX");
  }

  void* library_ = nullptr;
};

// One program, destroyed with the object.
class NvrtcProgram {
 public:
  // `headers` are texts and `names` theirs.
  NvrtcProgram(const Nvrtc& nvrtc, const char* source, const char* name,
               const std::vector<const char*>& headers, const std::vector<const char*>& names)
      : call_(nvrtc.call) {
    const int count = static_cast<int>(headers.size());
    check(call_.create(&program_, source, name, count, headers.data(), names.data()));
  }
  NvrtcProgram(const NvrtcProgram&) = delete;
  NvrtcProgram& operator=(const NvrtcProgram&) = delete;
  ~NvrtcProgram() {
    if (program_) call_.destroy(&program_);
  }

  void add_name_expression(const char* expression) {
    if (program_) check(call_.add_name_expression(program_, expression));
  }

  // Whether it succeeded; log() has the compiler's text either way.
  bool compile(const std::vector<std::string>& options) {
    std::vector<const char*> arguments;
    for (const std::string& option : options) arguments.push_back(option.c_str());
    const int count = static_cast<int>(arguments.size());
    return program_ && call_.compile(program_, count, arguments.data()) == nvrtc_api::success;
  }

  std::string log() {
    std::string text = result(call_.log_size, call_.log);
    text.erase(text.find_last_not_of(std::string_view("\0 \n", 3)) + 1);
    return text;
  }

  std::string cubin() { return result(call_.cubin_size, call_.cubin); }

  std::string ptx() {
    std::string text = result(call_.ptx_size, call_.ptx);
    text.erase(text.find_last_not_of('\0') + 1);
    return text;
  }

  // Once it is compiled.
  std::string lowered_name(const char* expression) {
    const char* lowered = nullptr;
    check(call_.lowered_name(program_, expression, &lowered));
    return lowered ? lowered : "";
  }

  // The first function that failed, apart from compile(); empty if none did.
  const std::string& failure() const noexcept { return failure_; }

 private:
  using GetSize = nvrtc_api::Code (*)(nvrtc_api::Program, std::size_t*);
  using Get = nvrtc_api::Code (*)(nvrtc_api::Program, char*);

  std::string result(GetSize get_size, Get get) {
    std::size_t size = 0;
    if (!program_ || !check(get_size(program_, &size))) return "";
    std::string bytes(size, '\0');
    if (size) check(get(program_, bytes.data()));
    return bytes;
  }

  bool check(nvrtc_api::Code code) {
    if (code != nvrtc_api::success && failure_.empty()) {
      failure_ = joined({"NVRTC: ", call_.error_string(code)});
    }
    return code == nvrtc_api::success;
  }

  const nvrtc_api::Functions& call_;
  nvrtc_api::Program program_ = nullptr;
  std::string failure_;
};

}  // namespace
}  // namespace v1
}  // namespace cuda_ext
