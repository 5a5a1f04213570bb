// Unpack the headers of CUDA and CCCL that NVRTC contains since 13.3.

#pragma once

#include "../data.hpp"
#include "../error.hpp"
#include "../text.hpp"
#include "files.hpp"
#include "nvrtc.hpp"
#include "paths.hpp"
#include "store.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

// A new directory, removed with what is in it by the destructor.
class TemporaryDirectory {
 public:
  // Its name begins with `prefix`.
  explicit TemporaryDirectory(const std::string& prefix) : path_(prefix + "XXXXXX") {
    if (!::mkdtemp(path_.data())) path_.clear();
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    if (!path_.empty()) remove_tree(path_);
  }

  // Empty if it could not be made; errno says why.
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

// They are unpacked once per version into the user's cache directory, and for as long as this lives where
// there is none.
class BundledHeaders {
 public:
  // Empty where NVRTC brings none.
  const std::string& directory() const noexcept { return directory_; }

  Failure find(const Nvrtc& nvrtc) {
    const std::string cache = cache_directory();
    const std::string target = joined({cache, "/nvrtc-headers-", nvrtc.version});
    if (!cache.empty() && is_directory(target)) {
      directory_ = target;
      const std::string why = distrust(target);
      if (why.empty()) return nullptr;
      return failure(ErrorKind::toolchain,
                     {target, ": NVRTC's headers there are not used: ", why, "; remove it, or set ",
                      "CUDA_EXT_CACHE to a directory that only you can write"});
    }
    if (!nvrtc.call.install_headers) return nullptr;
    if (!cache.empty() && make_directories(cache) && ::access(cache.c_str(), W_OK) == 0) {
      directory_ = target;
      return unpack_into_cache(nvrtc, cache);
    }
    const std::string temporary = setting("TMPDIR");
    const char* place = temporary.empty() ? "/tmp" : temporary.c_str();
    aside_ = std::make_unique<TemporaryDirectory>(joined({place, "/cuda-ext-nvrtc-headers-"}));
    directory_ = aside_->path() + "/headers";
    return unpack(nvrtc, aside_->path());
  }

 private:
  // Of several processes one does it, and the others wait. What a killed one has left is removed.
  Failure unpack_into_cache(const Nvrtc& nvrtc, const std::string& cache) const {
    const File lock(cache, O_RDONLY);
    if (lock.is_open() && ::flock(lock.descriptor(), LOCK_EX) == 0) {
      if (is_directory(directory_)) return nullptr;
      for (const std::string& remains : matching(directory_, ".*")) remove_tree(remains);
    }
    const TemporaryDirectory aside(directory_ + ".");
    if (auto failed = unpack(nvrtc, aside.path())) return failed;
    const std::string headers = aside.path() + "/headers";
    const bool is_done =
        ::chmod(headers.c_str(), 0700) == 0 && std::rename(headers.c_str(), directory_.c_str()) == 0;
    return is_done || is_directory(directory_) ? nullptr : cannot_unpack(cache, system_reason());
  }

  static Failure unpack(const Nvrtc& nvrtc, const std::string& directory) {
    if (directory.empty()) return cannot_unpack("the directory for temporary files", system_reason());
    const char* log = nullptr;
    const nvrtc_api::Code code = nvrtc.call.install_headers((directory + "/headers").c_str(), 0, &log);
    return code ? cannot_unpack(directory, log ? log : nvrtc.call.error_string(code)) : nullptr;
  }

  static Failure cannot_unpack(const std::string& place, const std::string& reason) {
    return failure(ErrorKind::toolchain, {place, ": cannot unpack NVRTC's headers there: ", reason,
                                          "; set CUDA_EXT_CACHE to a directory with room for 30 MB"});
  }

  std::string directory_;
  std::unique_ptr<TemporaryDirectory> aside_;
};

}  // namespace
}  // namespace v1
}  // namespace cuda_ext
