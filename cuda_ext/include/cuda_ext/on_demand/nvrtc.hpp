// NVRTC and the headers of CUDA and CCCL: find them (cuda_ext/toolchain/cuda_packages.py), and compile.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "../data.hpp"
#include "../error.hpp"
#include "../shared_library.hpp"
#include "../text.hpp"
#include "hash.hpp"
#include "store.hpp"

// As nvrtc.h declares it, which may be included too.
struct _nvrtcProgram;

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

using Paths = std::vector<fs::path>;

void add_directory(Paths& known, const fs::path& directory) {
  if (std::find(known.begin(), known.end(), directory) == known.end() && is_existing_directory(directory)) {
    known.push_back(directory);
  }
}

// What is in a directory, sorted.
Paths list(const fs::path& directory) {
  Paths paths;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    paths.push_back(at->path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// The file that contains `address`; empty where that is unknown, and on Windows.
fs::path file_of(const void* address) {
  std::error_code error;
#if !defined(_WIN32)
  ::Dl_info info{};
  if (::dladdr(address, &info) && info.dli_fname) return fs::absolute(info.dli_fname, error);
#endif
  static_cast<void>(address);
  return {};
}

// The directories that may contain NVRTC and headers: of the registry's packages, in the site-packages that
// this code is in and in those of the active environment, and of the toolkits that the environment names.
Paths toolkit_roots() {
  static constexpr char here = 0;
  Paths nvidia;
  std::error_code error;
  const fs::path own = file_of(&here);
  for (const fs::path& file : {own, fs::weakly_canonical(own, error)}) {
    for (fs::path above = file.parent_path(); above.has_relative_path(); above = above.parent_path()) {
      add_directory(nvidia, above / "nvidia");
    }
  }
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const fs::path prefix = setting(variable);
    if (prefix.empty()) continue;
    for (const fs::path& library : list(prefix / "lib"))
      add_directory(nvidia, library / "site-packages/nvidia");
    add_directory(nvidia, prefix / "Lib/site-packages/nvidia");
  }
  Paths roots;
  for (const fs::path& each : nvidia) {
    for (const fs::path& package : list(each)) roots.push_back(package);
  }
  for (const char* variable : {"CUDA_PATH", "CUDA_HOME"}) add_directory(roots, setting(variable));
#if defined(_WIN32)
  std::stringstream path(setting("PATH"));
  for (std::string directory; std::getline(path, directory, ';');)
    add_directory(roots, fs::path(directory).parent_path());
#endif
  return roots;
}

// NVRTC's library, the include directories that belong to it, and the identity of both; without loading it.
struct Toolkit {
  std::string library;
  Paths include_directories;
  std::string identity;

  // A driver runs what NVRTC of its own major version, `newest`, or of an older one compiles.
  explicit Toolkit(int newest) {
    for (int major = std::min(newest, 13); major >= 12 && library.empty(); major--) find_library(major);
    if (library.empty()) return;
    const fs::path own_root = fs::path(library).parent_path().parent_path();
    Paths roots = toolkit_roots();
    roots.push_back(own_root);
    identity = sample(library);
    for (const fs::path& root : roots) {
      // The registry has a directory of each major version, cu13, and before 13 one for each library.
      const std::string name = root.filename().string();
      if (name.size() == 4 && name.rfind("cu1", 0) == 0 && name != own_root.filename().string()) continue;
      add_directory(include_directories, root / "include");
      add_directory(include_directories, root / "include/cccl");
    }
    for (const fs::path& directory : include_directories) {
      // These contain the versions of CUDA and CCCL.
      identity += sample(directory / "cuda.h") + sample(directory / "cuda/std/__cccl/version.h");
    }
  }

 private:
  void find_library(int major) {
#if defined(_WIN32)
    const std::string name = joined({"nvrtc64_", major, "0_0.dll"});
    constexpr const char* places[] = {"bin", "bin/x64", "bin/x86_64"};
#else
    const std::string name = joined({"libnvrtc.so.", major});
    constexpr const char* places[] = {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"};
#endif
    const auto search = [&](const fs::path& root) {
      for (const char* place : places) {
        std::error_code error;
        const fs::path file = root / place / name;
        if (library.empty() && fs::is_regular_file(file, error)) library = file.string();
      }
    };
    for (const fs::path& root : toolkit_roots()) search(root);
#if !defined(_WIN32)
    const void* function = nullptr;
    if (library.empty() && SharedLibrary(name, LibrarySearch::by_default).find(function, "nvrtcVersion")) {
      library = file_of(function).string();
    }
    search("/usr/local/cuda");
#endif
  }

  // The size of a file, its beginning and its end, one of which contains a library's build ID.
  static std::string sample(const fs::path& file) {
    constexpr std::uintmax_t enough = 1 << 16;
    std::error_code error;
    const std::uintmax_t size = fs::file_size(file, error);
    if (error) return encode({"", file.filename().string()});
    return encode({size, read_file(file, 0, enough), read_file(file, size - std::min(size, enough))});
  }
};

// NVRTC's functions, once it could be opened.
class Nvrtc {
 public:
  using Program = ::_nvrtcProgram*;
  using Code = int;  // nvrtcResult

  Code (*create)(Program* program, const char* source, const char* name, int count,
                 const char* const* headers, const char* const* names) = nullptr;
  Code (*destroy)(Program* program) = nullptr;
  Code (*add_name_expression)(Program program, const char* expression) = nullptr;
  Code (*compile)(Program program, int count, const char* const* options) = nullptr;
  Code (*lowered_name)(Program program, const char* expression, const char** lowered) = nullptr;
  Code (*log_size)(Program program, std::size_t* size) = nullptr;
  Code (*log)(Program program, char* text) = nullptr;
  Code (*cubin_size)(Program program, std::size_t* size) = nullptr;
  Code (*cubin)(Program program, char* bytes) = nullptr;
  Code (*ptx_size)(Program program, std::size_t* size) = nullptr;
  Code (*ptx)(Program program, char* text) = nullptr;
  const char* (*error_string)(Code code) = nullptr;
  Code (*install_headers)(const char* directory, unsigned flags, const char** log) = nullptr;  // since 13.3
  std::vector<int> architectures;                                                              // sorted
  std::string version;                                                                         // "13.5"
  std::string reason;  // why NVRTC cannot be used; empty if it can

  explicit Nvrtc(const std::string& path) {
    const SharedLibrary library(path, LibrarySearch::its_directory);
    reason = library.reason();
    if (!reason.empty()) return;
    Code (*get_version)(int* major, int* minor) = nullptr;
    Code (*count_architectures)(int* count) = nullptr;
    Code (*list_architectures)(int* numbers) = nullptr;
    library.find(install_headers, "nvrtcInstallBundledHeaders");
    const bool is_whole =
        library.find(get_version, "nvrtcVersion") && library.find(error_string, "nvrtcGetErrorString") &&
        library.find(count_architectures, "nvrtcGetNumSupportedArchs") &&
        library.find(list_architectures, "nvrtcGetSupportedArchs") &&
        library.find(create, "nvrtcCreateProgram") && library.find(destroy, "nvrtcDestroyProgram") &&
        library.find(add_name_expression, "nvrtcAddNameExpression") &&
        library.find(compile, "nvrtcCompileProgram") && library.find(lowered_name, "nvrtcGetLoweredName") &&
        library.find(log_size, "nvrtcGetProgramLogSize") && library.find(log, "nvrtcGetProgramLog") &&
        library.find(cubin_size, "nvrtcGetCUBINSize") && library.find(cubin, "nvrtcGetCUBIN") &&
        library.find(ptx_size, "nvrtcGetPTXSize") && library.find(ptx, "nvrtcGetPTX");
    int major = 0;
    int minor = 0;
    int count = 0;
    if (!is_whole || get_version(&major, &minor) || count_architectures(&count)) {
      reason = path + " is not a working NVRTC of CUDA 12 or newer";
      return;
    }
    architectures.resize(static_cast<std::size_t>(count));
    list_architectures(architectures.data());
    std::sort(architectures.begin(), architectures.end());
    version = joined({major, ".", minor});
    // NVRTC opens it by name, which a sanitizer's dlopen does not find beside NVRTC.
    const fs::path beside = fs::path(path).parent_path() / ("libnvrtc-builtins.so." + version);
    static_cast<void>(SharedLibrary(beside.string(), LibrarySearch::its_directory));
  }

  // The headers of CUDA and CCCL that NVRTC contains since 13.3 are unpacked once for each version, into the
  // user's cache or, if it cannot be used, the directory of temporary files. `directory` is empty without
  // them.
  Failure unpack_headers(fs::path& directory) const {
    if (!install_headers) return nullptr;
    std::error_code error;
    fs::path place = cache_directory();
    if (!place.is_absolute() || !make_directories(place)) place = fs::temp_directory_path(error) / "cuda_ext";
    directory = place / ("nvrtc-headers-" + version);
    if (!is_existing_directory(directory)) {
      const fs::path aside = directory.string() + "." + Store::unique_name();
      const char* reason_given = nullptr;
      const bool is_made =
          make_directories(place) && !install_headers(aside.string().c_str(), 0, &reason_given);
      if (is_made) {
        fs::permissions(aside, fs::perms::owner_all, error);
        fs::rename(aside, directory, error);
      }
      fs::remove_all(aside, error);
      if (!is_existing_directory(directory)) {
        return failure(ErrorKind::toolchain, {place.string(), ": cannot unpack NVRTC's headers there",
                                              reason_given ? ": " : "", reason_given ? reason_given : "",
                                              "; set CUDA_EXT_CACHE to a directory with room for 30 MB"});
      }
    }
    const std::string why = distrust(directory);
    if (why.empty()) return nullptr;
    return failure(ErrorKind::toolchain,
                   {directory.string(), ": NVRTC's headers there are not used: ", why,
                    "; remove it, or set CUDA_EXT_CACHE to a directory that only you can write"});
  }
};

// One program, destroyed with the object.
class NvrtcProgram {
 public:
  explicit NvrtcProgram(const Nvrtc& nvrtc) noexcept : nvrtc_(nvrtc) {}
  NvrtcProgram(const NvrtcProgram&) = delete;
  NvrtcProgram& operator=(const NvrtcProgram&) = delete;
  ~NvrtcProgram() {
    if (program_) nvrtc_.destroy(&program_);
  }

  // Whether it succeeded; if not, log() says why.
  bool compile(const RecipeData& recipe, const std::vector<const char*>& texts,
               const std::vector<const char*>& names, const std::vector<std::string>& expressions,
               const std::vector<std::string>& options) {
    const int count = static_cast<int>(texts.size());
    code_ = nvrtc_.create(&program_, recipe.text, recipe.name, count, texts.data(), names.data());
    for (const std::string& each : expressions) {
      if (!code_) code_ = nvrtc_.add_name_expression(program_, each.c_str());
    }
    std::vector<const char*> given;
    for (const std::string& option : options) given.push_back(option.c_str());
    if (!code_) code_ = nvrtc_.compile(program_, static_cast<int>(given.size()), given.data());
    return !code_;
  }

  std::string log() const {
    std::string text = program_ ? output(nvrtc_.log_size, nvrtc_.log) : "";
    text.erase(text.find_last_not_of(std::string_view("\0 \n", 3)) + 1);
    return text.empty() ? joined({"NVRTC: ", nvrtc_.error_string(code_)}) : text;
  }

  std::string image(bool is_ptx) const {
    return is_ptx ? output(nvrtc_.ptx_size, nvrtc_.ptx) : output(nvrtc_.cubin_size, nvrtc_.cubin);
  }

  std::string lowered_name(const std::string& expression) const {
    const char* lowered = nullptr;
    return nvrtc_.lowered_name(program_, expression.c_str(), &lowered) || !lowered ? "" : lowered;
  }

 private:
  template <class GetSize, class Get>
  std::string output(GetSize get_size, Get get) const {
    std::size_t size = 0;
    if (get_size(program_, &size)) return "";
    std::string bytes(size, '\0');
    return get(program_, bytes.data()) ? "" : bytes;
  }

  const Nvrtc& nvrtc_;
  Nvrtc::Program program_ = nullptr;
  Nvrtc::Code code_ = 0;
};

}  // namespace
}  // namespace v1
}  // namespace cuda_ext CUDA_EXT_HIDDEN
