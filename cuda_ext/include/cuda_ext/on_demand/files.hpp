// Files and directories of the user, which other users can neither write nor replace.

#pragma once

#include "../loader/text.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#if !defined(_WIN32)
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

namespace fs = std::filesystem;

// Of each system:
//
// open_file: open a regular file with the `mode` "rb", "ab" for one that exists, or "wbx" for a new one;
// nullptr if that fails, or others than this user and root could have written it. New files are for this user
// alone. Links are not followed, and a pipe does not block.
//
// lock_file: held while one thread or process computes something, so that others wait, for ten minutes at
// most. It saves work and guards nothing. On Windows, each computes it.
//
// distrust: why users other than this one and root could have written what is in `directory`, a path without
// links, or could replace it; empty if they could not. As in cuda_ext/filesystem/private_directory.py.
#if defined(_WIN32)

std::FILE* open_file(const fs::path& path, const char* mode) {
  return ::_wfopen(path.c_str(), std::wstring(mode, mode + std::strlen(mode)).c_str());
}

std::shared_ptr<void> lock_file(const fs::path&) { return nullptr; }

std::string distrust(const fs::path&) { return ""; }

void make_private_directory(const fs::path& path) {
  std::error_code error;
  fs::create_directory(path, error);
}

std::string user_name() { return "user"; }  // each has a directory of temporary files

#else

bool is_trusted(::uid_t user) { return user == ::geteuid() || user == 0; }

std::FILE* open_file(const fs::path& path, const char* mode) {
  const int access = *mode == 'r'   ? O_RDONLY
                     : *mode == 'a' ? O_WRONLY | O_APPEND
                                    : O_WRONLY | O_CREAT | O_EXCL;
  const int descriptor = ::open(path.c_str(), access | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0600);
  struct stat status{};
  if (descriptor < 0) return nullptr;
  const bool is_file = !::fstat(descriptor, &status) && S_ISREG(status.st_mode);
  const bool is_own = !(status.st_mode & (S_IWGRP | S_IWOTH)) && is_trusted(status.st_uid);
  if (is_file && is_own) return ::fdopen(descriptor, mode);
  ::close(descriptor);
  return nullptr;
}

std::shared_ptr<void> lock_file(const fs::path& path) {
  constexpr int patience = 60'000;
  // NFS locks only files that are open for writing.
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  for (int waits = 0; file >= 0 && waits < patience && ::flock(file, LOCK_EX | LOCK_NB); waits++) {
    if (errno != EWOULDBLOCK && errno != EINTR) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return std::shared_ptr<void>(nullptr, [file](void*) {
    // Closing does not release it where a child was forked meanwhile.
    if (file >= 0) ::flock(file, LOCK_UN), ::close(file);
  });
}

std::string distrust(const fs::path& directory) {
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
    if (!each.has_relative_path()) return "";
  }
}

void make_private_directory(const fs::path& path) {
  if (!::mkdir(path.c_str(), 0700)) ::chmod(path.c_str(), 0700);  // whatever the umask is
}

std::string user_name() { return std::to_string(::geteuid()); }

#endif

// All of a file of this user.
std::string read_file(const fs::path& path) {
  std::string bytes;
  std::FILE* file = open_file(path, "rb");
  if (!file) return bytes;
  char piece[1 << 14];
  for (std::size_t size; (size = std::fread(piece, 1, sizeof piece, file)) > 0;) bytes.append(piece, size);
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

bool is_existing_directory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Create a directory that only this user can enter, and its parents; return whether it exists.
bool make_directories(const fs::path& path) {
  if (is_existing_directory(path)) return true;
  if (path.has_relative_path() && !make_directories(path.parent_path())) return false;
  make_private_directory(path);
  return is_existing_directory(path);
}

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
