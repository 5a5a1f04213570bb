// Files and directories of the user, which other users can neither write nor replace.

#pragma once

#include "../loader/text.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#if !defined(_WIN32)
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

namespace fs = std::filesystem;

bool is_existing_directory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Open a regular file with the `mode` "rb", "ab", or "wbx" for a new one; nullptr if that fails. New files are
// for their owner alone. Links are not followed, and a pipe does not block.
std::FILE* open_file(const fs::path& path, const char* mode) {
#if defined(_WIN32)
  return ::_wfopen(path.c_str(), std::wstring(mode, mode + std::strlen(mode)).c_str());
#else
  const int access = *mode == 'r'   ? O_RDONLY | O_NONBLOCK
                     : *mode == 'a' ? O_WRONLY | O_APPEND | O_CREAT
                                    : O_WRONLY | O_CREAT | O_EXCL;
  const int descriptor = ::open(path.c_str(), access | O_NOFOLLOW | O_CLOEXEC, 0600);
  struct stat status{};
  if (descriptor < 0) return nullptr;
  if (!::fstat(descriptor, &status) && S_ISREG(status.st_mode)) return ::fdopen(descriptor, mode);
  ::close(descriptor);
  return nullptr;
#endif
}

// At most `most` bytes of a file, from `start` on, which counts from the end if it is negative.
std::string read_file(const fs::path& path, long start = 0, std::size_t most = SIZE_MAX) {
  std::string bytes;
  std::FILE* file = open_file(path, "rb");
  if (!file) return bytes;
  char piece[1 << 14];
  std::size_t size = std::fseek(file, start, start < 0 ? SEEK_END : SEEK_SET) ? 0 : 1;
  while (size && bytes.size() < most) {
    size = std::fread(piece, 1, std::min(sizeof piece, most - bytes.size()), file);
    bytes.append(piece, size);
  }
  std::fclose(file);
  return bytes;
}

// Write `bytes` to the file that is opened with `mode`; return whether all are written.
bool write_file(const fs::path& path, const char* mode, const std::string& bytes) {
  std::FILE* file = open_file(path, mode);
  if (!file) return false;
  const bool is_written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  return !std::fclose(file) && is_written;
}

// A name that no other process or thread uses.
std::string unique_name() {
  std::random_device random;
  return joined({random(), ".", random()});
}

// The time of modification, the size and the path of all files below a directory, sorted.
using Files = std::vector<std::tuple<fs::file_time_type::rep, std::uintmax_t, std::string>>;
Files list_files(const fs::path& directory) {
  Files files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    if (!at->is_regular_file(gone)) continue;
    const auto time = at->last_write_time(gone).time_since_epoch().count();
    files.emplace_back(time, at->file_size(gone), at->path().string());
    if (gone) files.pop_back();
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Create a directory that only this user can enter, and its parents; return whether it exists.
bool make_directories(const fs::path& path) {
  std::error_code error;
  if (is_existing_directory(path)) return true;
  if (path.has_relative_path() && !make_directories(path.parent_path())) return false;
#if defined(_WIN32)
  fs::create_directory(path, error);
#else
  ::mkdir(path.c_str(), 0700);
#endif
  return is_existing_directory(path);
}

// Why users other than this one and root could have written what is in `directory`; empty if they could not.
std::string distrust(const fs::path& directory) {
#if defined(_WIN32)
  static_cast<void>(directory);
#else
  const auto is_of_another = [](const struct stat& status) {
    return status.st_uid != ::geteuid() && status.st_uid != 0;
  };
  struct stat own{}, parent{};
  if (::stat(directory.c_str(), &own)) return std::strerror(errno);
  if (::stat(directory.parent_path().c_str(), &parent)) return std::strerror(errno);
  if (is_of_another(own)) return joined({"it belongs to another user (uid ", own.st_uid, ")"});
  if (own.st_mode & (S_IWGRP | S_IWOTH)) return "other users may write there";
  if (is_of_another(parent)) {
    return joined({"its parent directory belongs to another user (uid ", parent.st_uid, ")"});
  }
  if (parent.st_mode & S_IWOTH && !(parent.st_mode & S_ISVTX)) {
    return "all users may write to its parent directory";
  }
#endif
  return "";
}

// A new directory of this process, which is removed at its end.
class TemporaryDirectory {
 public:
  fs::path path;  // empty if there is none

  TemporaryDirectory() {
    std::error_code error;
    const fs::path parent = fs::temp_directory_path(error);
    if (error || !parent.is_absolute()) return;
#if defined(_WIN32)
    const fs::path made = parent / ("cuda_ext-" + unique_name());
    if (fs::create_directory(made, error)) path = made;
#else
    std::string made = (parent / "cuda_ext-XXXXXX").string();
    if (::mkdtemp(made.data())) path = made;
    process_ = ::getpid();
#endif
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
#if !defined(_WIN32)
    if (process_ != ::getpid()) return;  // a child after a fork
#endif
    std::error_code error;
    if (!path.empty()) fs::remove_all(path, error);
  }

#if !defined(_WIN32)
 private:
  ::pid_t process_ = 0;
#endif
};

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
