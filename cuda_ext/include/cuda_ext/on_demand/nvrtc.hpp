// NVRTC and the headers of CUDA and CCCL: find them (cuda_ext/toolchain/cuda_packages.py), and compile.

#pragma once

#include "../loader/demand.hpp"
#include "../loader/failure.hpp"
#include "../loader/shared_library.hpp"
#include "../loader/text.hpp"
#include "store.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

// As nvrtc.h declares it; that header may be included too.
struct _nvrtcProgram;
#if defined(_WIN32)
extern "C" {
__declspec(dllimport) int __stdcall GetModuleHandleExW(unsigned long, const wchar_t*, HINSTANCE__**);
__declspec(dllimport) unsigned long __stdcall GetModuleFileNameW(HINSTANCE__*, wchar_t*, unsigned long);
}
#endif

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

using Paths = std::vector<fs::path>;

// Adds an existing directory, with an absolute path.
void add_directory(Paths& known, const fs::path& directory) {
  if (!is_existing_directory(directory)) return;
  std::error_code error;
  const fs::path path = fs::absolute(directory, error).make_preferred();
  if (std::find(known.begin(), known.end(), path) == known.end()) known.push_back(path);
}

// Lists the files in `directory`, sorted.
Paths entries_of(const fs::path& directory) {
  Paths entries;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    entries.push_back(at->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Finds the program or shared library that contains `address`; empty if unknown.
fs::path file_of(const void* address) {
#if defined(_WIN32)
  constexpr unsigned long by_address = 4;
  constexpr unsigned long longest = 1 << 15;
  ::HINSTANCE__* module = nullptr;
  std::wstring name(longest, L'\0');
  if (!::GetModuleHandleExW(by_address, static_cast<const wchar_t*>(address), &module)) return {};
  name.resize(::GetModuleFileNameW(module, name.data(), longest));
  return name;
#else
  std::error_code error;
  ::Dl_info info{};
  const bool is_known = ::dladdr(address, &info) && info.dli_fname;
  return is_known ? fs::absolute(info.dli_fname, error) : fs::path();
#endif
}

// Lists the directories that may contain NVRTC and headers: the site-packages around this code and of the
// active environment, with the registry's packages, and the toolkits that the environment names.
Paths toolkit_roots() {
  static constexpr char here = 0;
  Paths sites, roots;
  std::error_code error;
  const fs::path own = file_of(&here);
  for (const fs::path& file : {own, fs::weakly_canonical(own, error)}) {
    for (fs::path above = file.parent_path(); above.has_relative_path(); above = above.parent_path()) {
      const fs::path name = above.filename();  // other directories, such as /tmp, may belong to anyone
      if (name == "site-packages" || name == "dist-packages") sites.push_back(above);
    }
  }
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const fs::path prefix = setting(variable);
    if (prefix.empty()) continue;
    for (const fs::path& python : entries_of(prefix / "lib")) sites.push_back(python / "site-packages");
    sites.push_back(prefix / "Lib/site-packages");
  }
  for (const fs::path& site : sites) {
    for (const fs::path& package : entries_of(site / "nvidia")) add_directory(roots, package);
  }
  for (const char* variable : {"CUDA_PATH", "CUDA_HOME"}) add_directory(roots, setting(variable));
  return roots;
}

// NVRTC's library, its include directories, and the identity of both, found without loading the library.
struct Toolkit {
  fs::path library;
  Paths include_directories;
  std::string identity;

  // A driver runs the output of NVRTC of its own major version or of an older one.
  explicit Toolkit(int driver) {
    Paths roots = toolkit_roots();
    for (int major = driver ? std::min(driver / 1000, 13) : 13; major >= 12 && library.empty(); major--)
      find_library(roots, major);
    if (library.empty()) return;
    roots.push_back(library.parent_path().parent_path());
    const fs::path own = roots.back().filename();
    identity = sample(library);
    for (const fs::path& root : roots) {
      // The registry's packages have one directory for a major version, cu13; before 13, one for each
      // library.
      const std::string name = root.filename().string();
      if (name.size() == 4 && name.rfind("cu1", 0) == 0 && name != own) continue;
      add_directory(include_directories, root / "include");
      add_directory(include_directories, root / "include/cccl");
    }
    for (const fs::path& directory : include_directories) {
      // These files contain the versions of CUDA and CCCL.
      identity += sample(directory / "cuda.h") + sample(directory / "cuda/std/__cccl/version.h");
    }
    identity = sha256(identity);
  }

 private:
  void find_library(Paths roots, int major) {
#if defined(_WIN32)
    const std::string name = joined({"nvrtc64_", major, "0_0.dll"});
    constexpr const char* places[] = {"bin", "bin/x64", "bin/x86_64", "."};
    // Windows would search the current directory, too.
    std::string path = setting("PATH") + ";";
    for (std::size_t end; (end = path.find(';')) != path.npos; path.erase(0, end + 1)) {
      if (fs::path(path.substr(0, end)).is_absolute()) roots.emplace_back(path.substr(0, end));
    }
#else
    const std::string name = joined({"libnvrtc.so.", major});
    constexpr const char* places[] = {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"};
    roots.emplace_back("/usr/local/cuda");
#endif
    for (const fs::path& root : roots) {
      for (const char* place : places) {
        std::error_code error;
        const fs::path file = (root / place / name).lexically_normal();
        if (library.empty() && fs::is_regular_file(file, error)) library = file;
      }
    }
#if !defined(_WIN32)
    const void* function = nullptr;
    if (library.empty() &&
        SharedLibrary(name.c_str(), LibrarySearch::system).find(function, "nvrtcVersion")) {
      library = file_of(function);
    }
#endif
  }

  // Describe a file by its size, beginning and end. One of these contains a library's build ID.
  static std::string sample(const fs::path& path) {
    constexpr int enough = 1 << 16;
    std::error_code error;
    const std::uintmax_t size = fs::file_size(path, error);
    std::ifstream file(path, std::ios::binary);
    std::string ends(2 * enough, '\0');
    file.read(&ends[0], enough).seekg(-enough, std::ios::end).read(&ends[enough], enough);
    return encode({error ? 0 : size, ends});
  }
};

// Says why nothing can be compiled.
std::string no_nvrtc(std::string_view reason) {
  return joined(
      {"NVRTC cannot be loaded (", reason,
       "); install it with \"cuda-ext[cu13]\" (or \"cuda-ext[cu12]\"), or set CUDA_PATH to a CUDA toolkit"});
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

// NVRTC. The constructor opens it; it is never closed.
class Nvrtc {
 public:
  std::string reason;              // why it cannot be used; empty if it can
  std::string version;             // "13.5"
  std::vector<int> architectures;  // sorted

  explicit Nvrtc(const fs::path& path) {
    reason = no_nvrtc("it is neither in the active environment nor in CUDA_PATH");
    if (path.empty()) return;
    const SharedLibrary library(path.c_str(), LibrarySearch::its_directory);
    reason = library.reason().empty() ? "" : no_nvrtc(library.reason());
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
        library.find(ptx_size_, "nvrtcGetPTXSize") && library.find(ptx_, "nvrtcGetPTX");
    int major = 0;
    int minor = 0;
    int count = 0;
    if (!is_whole || get_version(&major, &minor) || count_architectures(&count)) {
      reason = no_nvrtc(path.string() + " is not that of CUDA 12 or newer");
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

  // Compiles `recipe` with `options` to the image of `unit` and the lowered names of `expressions`. Returns
  // NVRTC's message if that fails.
  std::string compile(const RecipeData& recipe, std::vector<const char*> options,
                      const Array<const char*>& expressions, CompiledUnit& unit) const {
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
    const bool is_ptx = unit.architecture[0] == 'c';
    code = code ? code : read(program, is_ptx ? ptx_size_ : cubin_size_, is_ptx ? ptx_ : cubin_, unit.image);
    for (const char* each : expressions) {
      const char* lowered = "";
      code = code ? code : get_lowered_(program, each, &lowered);
      unit.names.emplace_back(each, lowered);
    }
    std::string log;
    if (code && program) read(program, log_size_, log_, log);
    log.erase(log.find_last_not_of(std::string_view("\0 \n", 3)) + 1);
    destroy_(&program);
    return code && log.empty() ? joined({"NVRTC: ", describe_(code)}) : describe_errors(log, expressions);
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

  static Code read(Program program, GetSize get_size, Get get, std::string& bytes) {
    std::size_t size = 0;
    const Code code = get_size(program, &size);
    bytes.resize(size);
    return code ? code : get(program, bytes.data());
  }

  Code (*create_)(Program* program, const char* source, const char* name, int count,
                  const char* const* headers, const char* const* names) = nullptr;
  Code (*destroy_)(Program* program) = nullptr;
  Code (*add_name_)(Program program, const char* expression) = nullptr;
  Code (*compile_)(Program program, int count, const char* const* options) = nullptr;
  Code (*get_lowered_)(Program program, const char* expression, const char** lowered) = nullptr;
  const char* (*describe_)(Code code) = nullptr;
  GetSize log_size_ = nullptr, cubin_size_ = nullptr, ptx_size_ = nullptr;
  Get log_ = nullptr, cubin_ = nullptr, ptx_ = nullptr;
  // Available since 13.3.
  Code (*install_headers_)(const char* directory, unsigned flags, const char** log) = nullptr;
  Code (*describe_headers_)(BundledHeaders* bundled, const char** log) = nullptr;
};

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
