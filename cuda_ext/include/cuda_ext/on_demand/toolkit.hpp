// A CUDA toolkit: find NVRTC, nvJitLink, and the headers of CUDA and CCCL (cuda_ext/toolchain/cuda_packages.py).

#pragma once

#include "../loader/shared_library.hpp"
#include "store.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

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

// NVRTC's library, its include directories, nvJitLink, and the identities of all, found without loading a library.
struct Toolkit {
  fs::path library, linker;
  Paths include_directories;
  std::string identity, linker_identity;

  // A driver runs the output of NVRTC of its own major version or of an older one.
  explicit Toolkit(int driver) {
    Paths roots = toolkit_roots();
    int major = driver ? std::min(driver / 1000, 13) : 13;
    for (; major >= 12 && library.empty(); major--) {
      library = find_library(roots, "nvrtc", major, "nvrtcVersion");
      if (!library.empty()) linker = find_library(roots, "nvJitLink", major, "nvJitLinkCreate");
    }
    if (library.empty()) return;
    linker_identity = sha256(sample(linker));
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
  // Finds the library `stem`, which has `function`, of the major version of CUDA; returns an empty path without one.
  static fs::path find_library(Paths roots, const char* stem, int major, [[maybe_unused]] const char* function) {
#if defined(_WIN32)
    const std::string name = joined({stem, std::string_view(stem) == "nvrtc" ? "64_" : "_", major, "0_0.dll"});
    constexpr const char* places[] = {"bin", "bin/x64", "bin/x86_64", "."};
    // Windows would search the current directory, too.
    std::string path = setting("PATH") + ";";
    for (std::size_t end; (end = path.find(';')) != path.npos; path.erase(0, end + 1)) {
      if (fs::path(path.substr(0, end)).is_absolute()) roots.emplace_back(path.substr(0, end));
    }
#else
    const std::string name = joined({"lib", stem, ".so.", major});
    constexpr const char* places[] = {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"};
    roots.emplace_back("/usr/local/cuda");
#endif
    for (const fs::path& root : roots) {
      for (const char* place : places) {
        std::error_code error;
        const fs::path file = (root / place / name).lexically_normal();
        if (fs::is_regular_file(file, error)) return file;
      }
    }
#if !defined(_WIN32)
    const void* found = nullptr;
    if (SharedLibrary(name.c_str(), LibrarySearch::system).find(found, function)) return file_of(found);
#endif
    return {};
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

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
