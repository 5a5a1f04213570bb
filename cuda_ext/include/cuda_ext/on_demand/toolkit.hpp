// Find NVRTC and the headers of the tool chain: cuda_ext/toolchain/cuda_packages.py in C++.

#pragma once

#include "../data.hpp"
#include "../names.hpp"
#include "../text.hpp"
#include "expressions.hpp"
#include "fields.hpp"
#include "files.hpp"
#include "paths.hpp"
#include "sha256.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <sys/stat.h>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

// NVRTC and its identity, determined without opening the library, which is slow.
struct Toolkit {
  std::string library;
  std::vector<std::string> header_directories;  // CUDA's and CCCL's, but for those that NVRTC brings
  std::string identity;
};

// The file that holds this code.
inline std::string own_file() {
  static constexpr char somewhere = 0;
  ::Dl_info info{};
  return ::dladdr(&somewhere, &info) && info.dli_fname ? absolute_path(info.dli_fname) : "";
}

// The directories in which the registry's CUDA packages lie: in a site-packages that this code is in, or in
// that of the active environment.
inline std::vector<std::string> nvidia_packages() {
  std::vector<std::string> found;
  const auto add = [&](const std::string& directory) {
    const bool is_known = std::find(found.begin(), found.end(), directory) != found.end();
    if (!is_known && is_directory(directory)) found.push_back(directory);
  };
  const std::string own = own_file();
  for (const std::string& file : {own, real_path(own)}) {
    for (std::string_view above = parent(file); !above.empty(); above = parent(above)) {
      add(joined({above, "/nvidia"}));
    }
  }
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string prefix = setting(variable);
    if (prefix.empty()) continue;
    for (const std::string& directory : matching(prefix, "/lib/python3*/site-packages/nvidia"))
      add(directory);
  }
  return found;
}

// The toolkits that the environment names.
inline std::vector<std::string> configured_toolkits() {
  std::vector<std::string> found;
  for (const char* variable : {"CUDA_PATH", "CUDA_HOME"}) {
    if (const std::string root = setting(variable); !root.empty()) found.push_back(root);
  }
  return found;
}

// Finds NVRTC, and the headers that belong to it.
class ToolkitSearch {
 public:
  // Drivers run what NVRTC of their own major version makes, `newest`, or of an older one.
  explicit ToolkitSearch(int newest) : packages_(nvidia_packages()) {
    for (int major = std::min(newest, 13); major >= 12 && found_.library.empty(); major--) {
      if (find_library(major)) describe(major);
    }
  }

  // `library` is empty where there is none.
  const Toolkit& found() const noexcept { return found_; }

  // Why there is none.
  std::string reason() const {
    if (tried_.empty()) return "this driver is too old for any";
    return joined({"none of these is there: ", tried_.text()});
  }

 private:
  bool find_library(int major) {
    const std::string name = joined({"libnvrtc.so.", major});
    const std::string place = major >= 13 ? joined({"/cu", major, "/lib/"}) : "/cuda_nvrtc/lib/";
    for (const std::string& package : packages_) {
      if (is_there(joined({package, place, name}))) return true;
    }
    for (const std::string& root : configured_toolkits()) {
      if (is_there(joined({root, "/lib64/", name})) || is_there(joined({root, "/lib/", name}))) return true;
      for (const std::string& file : matching(root, "/targets/*/lib/" + name)) {
        if (is_there(file)) return true;
      }
    }
    return is_loadable(name) || is_there("/usr/local/cuda/lib64/" + name);
  }

  bool is_there(const std::string& file) {
    if (is_file(file)) {
      found_.library = file;
      return true;
    }
    tried_.add(file);
    return false;
  }

  // Whether the dynamic linker finds it, which shows by opening it only.
  bool is_loadable(const std::string& name) {
    void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* function = library ? ::dlsym(library, "nvrtcVersion") : nullptr;
    ::Dl_info info{};
    if (function && ::dladdr(function, &info) && info.dli_fname) {
      found_.library = absolute_path(info.dli_fname);
      return true;
    }
    tried_.add(name);
    return false;
  }

  void describe(int major) {
    for (const std::string& root : roots(major)) {
      for (const char* place : {"/include", "/include/cccl"}) add_headers(root + place);
    }
    FieldWriter told;
    told.add("nvrtc");
    tell(told, found_.library, joined({"libnvrtc.so.", major}));
    for (const std::string& directory : found_.header_directories) {
      // They tell which CUDA and which CCCL a directory is of.
      for (const char* header : {"cuda.h", "cuda/std/__cccl/version.h"}) {
        const std::string file = joined({directory, "/", header});
        if (is_file(file)) tell(told, file, std::string(base_name(file)));
      }
    }
    found_.identity = sha256_hex(told.bytes());
  }

  void add_headers(const std::string& directory) {
    std::vector<std::string>& known = found_.header_directories;
    const bool is_known = std::find(known.begin(), known.end(), directory) != known.end();
    if (!is_known && is_directory(directory)) known.push_back(directory);
  }

  // Where headers may lie. The toolkit that NVRTC itself is from comes last: mostly it is one of the others.
  std::vector<std::string> roots(int major) const {
    std::vector<std::string> found;
    for (const std::string& package : packages_) {
      if (major >= 13) {
        found.push_back(joined({package, "/cu", major}));
        continue;
      }
      found.push_back(package + "/cuda_runtime");
      found.push_back(package + "/cuda_cccl");
      for (const std::string& include : matching(package, "/*/include")) {
        // Before 13, each package has a directory of its own; cu13 is that of the next version.
        const std::string_view root = parent(include);
        if (!is_of_later_version(base_name(root))) found.emplace_back(root);
      }
    }
    for (const std::string& root : configured_toolkits()) found.push_back(root);
    found.emplace_back(parent(parent(found_.library)));
    return found;
  }

  static bool is_of_later_version(std::string_view name) noexcept {
    return begins_with(name, "cu") && name.size() > 2 && std::all_of(name.begin() + 2, name.end(), is_digit);
  }

  // A file is told by its size and what it has at either end, where the tables of a library are, which every
  // build of it fills otherwise, and the version in a header.
  static void tell(FieldWriter& told, const std::string& path, const std::string& name) {
    constexpr std::size_t telling = 1 << 16;
    const File file(path, O_RDONLY);
    struct stat status{};
    const std::size_t size = file.status(status) ? static_cast<std::size_t>(status.st_size) : 0;
    told.add(name).add(size).add(file.read(0, telling));
    told.add(file.read(size - std::min(size, telling), telling));
  }

  std::vector<std::string> packages_;
  Toolkit found_;
  ListOfNames tried_;
};

}  // namespace
}  // namespace v1
}  // namespace cuda_ext
