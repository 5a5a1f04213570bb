// Files and directories that several processes share.

#pragma once

#include "../data.hpp"
#include "../text.hpp"
#include "paths.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

// An open file, closed by the destructor. Where a function fails, errno says why.
class File {
 public:
  // Programs that are started meanwhile do not get it.
  File(const std::string& path, int flags, mode_t mode = 0600) noexcept
      : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  // One that is new. Its `path`, which ends in XXXXXX, becomes another one.
  explicit File(std::string& path) noexcept : descriptor_(::mkostemp(path.data(), O_CLOEXEC)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (is_open()) ::close(descriptor_);
  }

  bool is_open() const noexcept { return descriptor_ >= 0; }
  int descriptor() const noexcept { return descriptor_; }

  bool status(struct stat& status) const noexcept { return is_open() && ::fstat(descriptor_, &status) == 0; }

  // The `size` bytes at `offset`, or as many as there are.
  std::string read(std::size_t offset, std::size_t size) const {
    std::string bytes(size, '\0');
    std::size_t done = 0;
    while (done < size) {
      const auto place = static_cast<off_t>(offset + done);
      const ssize_t count = ::pread(descriptor_, &bytes[done], size - done, place);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      done += static_cast<std::size_t>(count);
    }
    bytes.resize(done);
    return bytes;
  }

  bool write(std::string_view bytes) const noexcept {
    while (!bytes.empty()) {
      const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }

 private:
  int descriptor_;
};

// Makes a directory that only this user gets at, and those above it. errno says why it is not there then.
inline bool make_directories(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0) return true;
  if (errno == ENOENT && !parent(path).empty()) {
    if (!make_directories(std::string(parent(path)))) return false;
    if (::mkdir(path.c_str(), 0700) == 0) return true;
  }
  if (errno != EEXIST) return false;
  if (is_directory(path)) return true;
  errno = EEXIST;
  return false;
}

// Removes a directory with all that is in it.
inline void remove_tree(const std::string& path) noexcept {
  constexpr auto remove = [](const char* each, const struct stat*, int, FTW*) {
    ::remove(each);
    return 0;
  };
  ::nftw(path.c_str(), remove, 16, FTW_DEPTH | FTW_PHYS);
}

// "1777"
inline std::string mode_text(mode_t mode) {
  std::string text;
  for (int shift = 9; shift >= 0; shift -= 3) text += static_cast<char>('0' + (mode >> shift & 7));
  return text.substr(text.front() == '0');
}

// Why others than this user and root could have written what lies in `directory`; empty if they could not.
inline std::string distrust(const std::string& directory) {
  struct stat status{};
  if (::stat(directory.c_str(), &status)) return "it cannot be looked at";
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    return joined({"it belongs to another user (uid ", status.st_uid, ")"});
  }
  if (!(status.st_mode & (S_IWGRP | S_IWOTH))) return "";
  return joined({"other users may write there (mode ", mode_text(status.st_mode), ")"});
}

// Why others could put something else in the place of what lies in `directory`; empty if they could not.
inline std::string exposure(const std::string& directory) {
  struct stat status{};
  if (::stat(directory.c_str(), &status)) return "";
  if (!(status.st_mode & S_IWOTH) || status.st_mode & S_ISVTX) return "";
  return joined({"all users may write to ", directory, " (mode ", mode_text(status.st_mode), ")"});
}

}  // namespace
}  // namespace v1
}  // namespace cuda_ext
