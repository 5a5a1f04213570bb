// The compiler, NVRTC, with the headers of CUDA and CCCL that it contains, and the linker, nvJitLink.

#pragma once

#include "../compile.hpp"
#include "toolkit.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

// As nvrtc.h declares it; that header may be included too.
struct _nvrtcProgram;

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

// Says why `library` cannot be used.
std::string unusable(const char* library, std::string_view reason) {
  return joined(
      {library, " cannot be loaded (", reason,
       "); install it with \"cuda-ext[cu13]\" (or \"cuda-ext[cu12]\"), or set CUDA_PATH to a CUDA toolkit"});
}

// Reads the bytes of a program or a link with two functions, for their size and for them; returns the code of an
// error.
template <class Handle>
int read(Handle handle, int (*get_size)(Handle, std::size_t*), int (*get)(Handle, char*), std::string& bytes) {
  std::size_t size = 0;
  const int code = get_size(handle, &size);
  bytes.resize(size);
  return code || !size ? code : get(handle, bytes.data());
}

std::string trimmed(std::string log) {
  log.erase(log.find_last_not_of(std::string_view("\0 \n", 3)) + 1);
  return log;
}

// Words errors about name expressions for the user: NVRTC appends these to the source, sorted, and names its
// own text, __nv_name_map(2) for the first one.
std::string describe_errors(const std::string& log, const Array<const char*>& expressions) {
  constexpr std::string_view map = "__nv_name_map(";
  std::vector<std::string_view> sorted(expressions.begin(), expressions.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::string text;
  std::size_t last = 0;  // the line of the last error, since one mistake may have several
  bool is_shown = true;
  for (std::size_t begin = 0; begin < log.size();) {
    const std::size_t end = std::min(log.find('\n', begin), log.size());
    std::string line = log.substr(begin, end - begin);
    begin = end + 1;
    if (line.compare(0, map.size(), map) == 0) {
      const std::size_t number = std::strtoull(line.c_str() + map.size(), nullptr, 10);
      is_shown = number != last && number >= 2 && number - 2 < sorted.size();
      last = number;
      if (is_shown) text += joined({"'", sorted[number - 2], "': ", line.substr(line.find("error: ")), "\n"});
      is_shown = false;  // not the lines that quote the map
    } else if (!is_shown) {
      is_shown = line.empty();
    } else if (line.find(" detected in the compilation of ") == line.npos) {
      text += line + "\n";
    }
  }
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

// The constructors open these libraries; they are never closed.
class Nvrtc {
 public:
  std::string reason;              // why it cannot be used; empty if it can
  std::string version;             // "13.5"
  std::vector<int> architectures;  // sorted

  explicit Nvrtc(const fs::path& path) {
    reason = unusable("NVRTC", "it is neither in the active environment nor in CUDA_PATH");
    if (path.empty()) return;
    const SharedLibrary library(path.c_str(), LibrarySearch::its_directory);
    reason = library.reason().empty() ? "" : unusable("NVRTC", library.reason());
    if (!reason.empty()) return;
    Code (*get_version)(int* major, int* minor) = nullptr;
    Code (*count_architectures)(int* count) = nullptr;
    Code (*list_architectures)(int* numbers) = nullptr;
    library.find(install_headers_, "nvrtcInstallBundledHeaders");
    library.find(describe_headers_, "nvrtcGetBundledHeadersInfo");
    const bool is_whole =
        library.find(get_version, "nvrtcVersion") &&
        library.find(count_architectures, "nvrtcGetNumSupportedArchs") &&
        library.find(list_architectures, "nvrtcGetSupportedArchs") &&
        library.find(create_, "nvrtcCreateProgram") && library.find(destroy_, "nvrtcDestroyProgram") &&
        library.find(add_name_, "nvrtcAddNameExpression") && library.find(compile_, "nvrtcCompileProgram") &&
        library.find(get_lowered_, "nvrtcGetLoweredName") && library.find(describe_, "nvrtcGetErrorString") &&
        library.find(log_size_, "nvrtcGetProgramLogSize") && library.find(log_, "nvrtcGetProgramLog") &&
        library.find(cubin_size_, "nvrtcGetCUBINSize") && library.find(cubin_, "nvrtcGetCUBIN") &&
        library.find(ptx_size_, "nvrtcGetPTXSize") && library.find(ptx_, "nvrtcGetPTX") &&
        library.find(ltoir_size_, "nvrtcGetLTOIRSize") && library.find(ltoir_, "nvrtcGetLTOIR");
    int major = 0;
    int minor = 0;
    int count = 0;
    if (!is_whole || get_version(&major, &minor) || count_architectures(&count)) {
      reason = unusable("NVRTC", path.string() + " is not that of CUDA 12 or newer");
      return;
    }
    architectures.resize(static_cast<std::size_t>(count));
    list_architectures(architectures.data());
    std::sort(architectures.begin(), architectures.end());
    version = joined({major, ".", minor});
    // NVRTC opens it by name. Neither Windows nor a sanitizer's dlopen finds it beside NVRTC.
#if defined(_WIN32)
    const fs::path builtins = path.parent_path() / joined({"nvrtc-builtins64_", major, minor, ".dll"});
#else
    const fs::path builtins = path.parent_path() / ("libnvrtc-builtins.so." + version);
#endif
    static_cast<void>(SharedLibrary(builtins.c_str(), LibrarySearch::its_directory));
  }

  // Compiles `recipe` with `options` to the data of `image` and the lowered names of `expressions`. Returns NVRTC's
  // message if that fails.
  std::string compile(const RecipeData& recipe, std::vector<const char*> options,
                      const Array<const char*>& expressions, Image& image) const {
    constexpr const char* seed = "--frandom-seed=";  // since 12.9: internal names are the same in each run
    if (!knows(seed)) {
      const auto is_seed = [&](const std::string_view option) { return option.rfind(seed, 0) == 0; };
      options.erase(std::remove_if(options.begin(), options.end(), is_seed), options.end());
    }
    Program program = nullptr;
    Code code = create_(&program, recipe.text, recipe.name, recipe.headers.count, recipe.headers.texts,
                        recipe.headers.names);
    for (const char* each : expressions) code = code ? code : add_name_(program, each);
    code = code ? code : compile_(program, static_cast<int>(options.size()), options.data());
    const char kind = image.architecture[0];
    const GetSize get_size = kind == 'c' ? ptx_size_ : kind == 'l' ? ltoir_size_ : cubin_size_;
    code = code ? code : read(program, get_size, kind == 'c' ? ptx_ : kind == 'l' ? ltoir_ : cubin_, image.data);
    for (const char* each : expressions) {
      const char* lowered = "";
      code = code ? code : get_lowered_(program, each, &lowered);
      image.names.emplace_back(each, lowered);
    }
    std::string log;
    if (program) read(program, log_size_, log_, log);
    log = trimmed(std::move(log));
    destroy_(&program);
    if (code) return log.empty() ? joined({"NVRTC: ", describe_(code)}) : describe_errors(log, expressions);
    if (image.data.size() <= 1) return "NVRTC: the result is empty; an option asks for an image of another kind";
    image.log = log;
    return "";
  }

  // Since 13.3, NVRTC contains the headers of CUDA and CCCL. Unpacks them once for each version, into the
  // user's cache or, if it cannot be used, the directory of temporary files, and puts them first in
  // `include`. NVRTC locks the directory, and marks it at the end; any file may vanish afterwards.
  Failure unpack_headers(Paths& include) const {
    if (!install_headers_) return nullptr;
    std::string why = "neither the cache nor the directory of temporary files can be used";
    std::error_code error;
    const fs::path temporary = fs::temp_directory_path(error) / ("cuda_ext-" + user_name());
    for (const fs::path& place : {cache_directory(), temporary}) {
      if (!place.is_absolute() || !make_directories(place)) continue;
      const fs::path directory = place / ("nvrtc-headers-" + version);
      // NVRTC empties the directory before it unpacks again. Another user may put a link among temporary files.
      const bool is_foreign = place == temporary && fs::is_symlink(place, error);
      const bool is_link = is_foreign || fs::is_symlink(directory, error);
      why = is_link ? directory.string() + " is a link" : distrust(place);
      if (!why.empty()) continue;
      BundledHeaders bundled{};
      const char* log = nullptr;
      const auto install = [&](bool again) {
        unsigned count = 0;  // without NVRTC's own files, which begin with a dot
        if (install_headers_(directory.string().c_str(), again, &log)) return false;
        for (const auto& [time, size, path] : list_files(directory)) {
          count += fs::path(path).filename().string()[0] != '.';
        }
        return !describe_headers_(&bundled, &log) && count == bundled.count;
      };
      if (install(false) || install(true)) {
        include.insert(include.begin(), {directory, directory / "cccl"});
        return nullptr;
      }
      why = log ? log : "they cannot be written";
    }
    return failure(ErrorKind::toolchain,
                   {"NVRTC's headers cannot be unpacked: ", why,
                    "; set CUDA_EXT_CACHE to a directory that only you can write, with room for 30 MiB"});
  }

 private:
  // nvrtcBundledHeadersInfo.
  struct BundledHeaders {
    int is_available;
    std::size_t compressed_size, size;
    int major, minor;
    unsigned count;
  };

  using Program = ::_nvrtcProgram*;
  using Code = int;  // nvrtcResult
  using GetSize = Code (*)(Program program, std::size_t* size);
  using Get = Code (*)(Program program, char* bytes);

  // True if NVRTC has `option`. A second option, which does not exist, ends the call before anything is
  // compiled.
  bool knows(const char* option) const {
    Program program = nullptr;
    const char* const options[] = {option, "--cuda-ext-none"};
    std::string log;
    if (!create_(&program, "", "options.cu", 0, nullptr, nullptr)) compile_(program, 2, options);
    if (program) read(program, log_size_, log_, log);
    destroy_(&program);
    return log.find(joined({"unrecognized option ", option, " found"})) == log.npos;
  }

  Code (*create_)(Program* program, const char* source, const char* name, int count,
                  const char* const* headers, const char* const* names) = nullptr;
  Code (*destroy_)(Program* program) = nullptr;
  Code (*add_name_)(Program program, const char* expression) = nullptr;
  Code (*compile_)(Program program, int count, const char* const* options) = nullptr;
  Code (*get_lowered_)(Program program, const char* expression, const char** lowered) = nullptr;
  const char* (*describe_)(Code code) = nullptr;
  GetSize log_size_ = nullptr, cubin_size_ = nullptr, ptx_size_ = nullptr, ltoir_size_ = nullptr;
  Get log_ = nullptr, cubin_ = nullptr, ptx_ = nullptr, ltoir_ = nullptr;
  // Available since 13.3.
  Code (*install_headers_)(const char* directory, unsigned flags, const char** log) = nullptr;
  Code (*describe_headers_)(BundledHeaders* bundled, const char** log) = nullptr;
};

class NvJitLink {
 public:
  std::string reason;  // why it cannot be used; empty if it can

  explicit NvJitLink(const fs::path& path) {
    reason = "it is not beside NVRTC";
    if (!path.empty()) {
      const SharedLibrary library(path.c_str(), LibrarySearch::its_directory);
      reason = library.reason();
      const bool is_whole =
          library.find(create_, "nvJitLinkCreate") && library.find(destroy_, "nvJitLinkDestroy") &&
          library.find(add_, "nvJitLinkAddData") && library.find(complete_, "nvJitLinkComplete") &&
          library.find(cubin_size_, "nvJitLinkGetLinkedCubinSize") && library.find(cubin_, "nvJitLinkGetLinkedCubin") &&
          library.find(ptx_size_, "nvJitLinkGetLinkedPtxSize") && library.find(ptx_, "nvJitLinkGetLinkedPtx") &&
          library.find(error_size_, "nvJitLinkGetErrorLogSize") && library.find(error_, "nvJitLinkGetErrorLog") &&
          library.find(info_size_, "nvJitLinkGetInfoLogSize") && library.find(info_, "nvJitLinkGetInfoLog");
      if (reason.empty() && !is_whole) reason = path.string() + " is not that of CUDA 12 or newer";
    }
    if (!reason.empty()) reason = unusable("nvJitLink", reason);
  }

  // Links `images` with `options` to the data of `linked`. Returns the linker's message if that fails.
  //
  // nvJitLink keeps state for each thread: after an error, all links in the thread may fail, or succeed wrongly.
  std::string link(const std::vector<Image>& images, const std::vector<const char*>& options, Image& linked) const {
    std::string failure;
    std::thread([&] { failure = link_here(images, options, linked); }).join();
    return failure;
  }

 private:
  using Handle = void*;
  using Code = int;  // nvJitLinkResult
  using GetSize = Code (*)(Handle handle, std::size_t* size);
  using Get = Code (*)(Handle handle, char* bytes);

  std::string link_here(const std::vector<Image>& images, const std::vector<const char*>& options, Image& linked) const {
    Handle handle = nullptr;
    Code code = create_(&handle, static_cast<std::uint32_t>(options.size()), options.data());
    if (code) {
      std::string refused = "nvJitLink refuses the options";
      for (const char* option : options) refused += joined({" ", option});
      return refused;
    }
    std::vector<std::string> names;
    for (std::size_t i = 0; i < images.size(); i++) names.push_back(joined({"image ", i + 1}));
    for (std::size_t i = 0; i < images.size() && !code; i++) {
      const std::string& data = images[i].data;
      code = add_(handle, any, data.data(), data.size(), names[i].c_str());
    }
    code = code ? code : complete_(handle);
    const bool is_ptx = linked.architecture[0] == 'c';
    if (!code) code = read(handle, is_ptx ? ptx_size_ : cubin_size_, is_ptx ? ptx_ : cubin_, linked.data);
    std::string log;
    read(handle, code ? error_size_ : info_size_, code ? error_ : info_, log);
    log.erase(std::min(log.rfind("\nERROR "), log.size()));  // only says that there was one
    log = trimmed(std::move(log));
    destroy_(&handle);
    if (code) return log.empty() ? joined({"nvJitLink: error ", code}) : log;
    linked.log = log;
    return "";
  }

  static constexpr int any = 10;  // nvJitLinkInputType: the linker sees what the data is

  Code (*create_)(Handle* handle, std::uint32_t count, const char* const* options) = nullptr;
  Code (*destroy_)(Handle* handle) = nullptr;
  Code (*add_)(Handle handle, int type, const void* data, std::size_t size, const char* name) = nullptr;
  Code (*complete_)(Handle handle) = nullptr;
  GetSize cubin_size_ = nullptr, ptx_size_ = nullptr, error_size_ = nullptr, info_size_ = nullptr;
  Get cubin_ = nullptr, ptx_ = nullptr, error_ = nullptr, info_ = nullptr;
};

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
