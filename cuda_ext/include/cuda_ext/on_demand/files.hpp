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

#if !defined(_WIN32)
bool is_trusted(::uid_t user) { return user == ::geteuid() || user == 0; }
#endif

bool is_existing_directory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Open a regular file with the `mode` "rb", "ab" for one that exists, or "wbx" for a new one; nullptr if that
// fails. New files are for this user alone, and others than it and root could not have written the file
// unless it `is_of_anyone`. Links are not followed, and a pipe does not block.
std::FILE* open_file(const fs::path& path, const char* mode, bool is_of_anyone = false) {
#if defined(_WIN32)
  static_cast<void>(is_of_anyone);
  return ::_wfopen(path.c_str(), std::wstring(mode, mode + std::strlen(mode)).c_str());
#else
  const int access = *mode == 'r'   ? O_RDONLY
                     : *mode == 'a' ? O_WRONLY | O_APPEND
                                    : O_WRONLY | O_CREAT | O_EXCL;
  const int descriptor = ::open(path.c_str(), access | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0600);
  struct stat status{};
  if (descriptor < 0) return nullptr;
  const bool is_file = !::fstat(descriptor, &status) && S_ISREG(status.st_mode);
  const bool is_own = !(status.st_mode & (S_IWGRP | S_IWOTH)) && is_trusted(status.st_uid);
  if (is_file && (is_own || is_of_anyone)) return ::fdopen(descriptor, mode);
  ::close(descriptor);
  return nullptr;
#endif
}

// At most `most` bytes of a file that `is_of_anyone`, from `start` on, which counts from the end if it is
// negative; or all of a file of this user.
std::string read_file(const fs::path& path, bool is_of_anyone = false, long start = 0,
                      std::size_t most = SIZE_MAX) {
  std::string bytes;
  std::FILE* file = open_file(path, "rb", is_of_anyone);
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
    if (!fs::is_regular_file(at->symlink_status(gone))) continue;
    const auto time = at->last_write_time(gone).time_since_epoch().count();
    files.emplace_back(time, at->file_size(gone), at->path().string());
    if (gone) files.pop_back();
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Create a directory that only this user can enter, and its parents; return whether it exists.
bool make_directories(const fs::path& path) {
  if (is_existing_directory(path)) return true;
  if (path.has_relative_path() && !make_directories(path.parent_path())) return false;
#if defined(_WIN32)
  std::error_code error;
  fs::create_directory(path, error);
#else
  if (!::mkdir(path.c_str(), 0700)) ::chmod(path.c_str(), 0700);  // whatever the umask is
#endif
  return is_existing_directory(path);
}

// Why users other than this one and root could have written what is in `directory`, a path without links, or
// could replace it; empty if they could not. As in cuda_ext/filesystem/private_directory.py.
std::string distrust(const fs::path& directory) {
#if defined(_WIN32)
  static_cast<void>(directory);
#else
  for (fs::path each = directory;; each = each.parent_path()) {
    struct stat status{};
    if (::stat(each.c_str(), &status)) return joined({each.string(), ": ", std::strerror(errno)});
    const bool is_below = each == directory || each == directory.parent_path();
    const bool is_sticky = each != directory && status.st_mode & S_ISVTX;
    if (is_below && !is_trusted(status.st_uid)) {
      return joined({each.string(), " belongs to another user (uid ", status.st_uid, ")"});
    }
    if (status.st_mode & (is_below ? S_IWGRP | S_IWOTH : S_IWOTH) && !is_sticky) {
      return joined({"other users may write to ", each.string()});
    }
    if (!each.has_relative_path()) break;
  }
#endif
  return "";
}

// A directory of this process, which is removed at its end; empty if none can be created.
const fs::path& temporary_directory() {
  struct Directory {
    fs::path path;
#if !defined(_WIN32)
    ::pid_t process = ::getpid();
#endif

    Directory() {
      std::error_code error;
      const fs::path created = fs::temp_directory_path(error) / ("cuda_ext-" + unique_name());
      if (created.is_absolute() && make_directories(created)) path = created;
    }
    ~Directory() {
#if !defined(_WIN32)
      if (process != ::getpid()) return;  // a child after a fork
#endif
      std::error_code error;
      if (!path.empty()) fs::remove_all(path, error);
    }
  };
  static const Directory directory;
  return directory.path;
}

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
