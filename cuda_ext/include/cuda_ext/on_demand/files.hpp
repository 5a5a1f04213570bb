// Files and directories of the user.

#pragma once

#include "../loader/text.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <memory>
#include <random>
#include <sstream>
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
// lock_file: held while one thread or process computes something, so that others wait, for ten minutes at
// most. It saves work and guards nothing. On Windows, each computes it.
//
// distrust: why users other than this one and root could write to `directory`; empty if they could not. As in
// cuda_ext/cache/open_store.py.
#if defined(_WIN32)

std::shared_ptr<void> lock_file(const fs::path&) { return nullptr; }

std::string distrust(const fs::path&) { return ""; }

void make_private_directory(const fs::path& path) {
  std::error_code error;
  fs::create_directory(path, error);
}

std::string user_name() { return "user"; }  // each has a directory of temporary files

#else

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
  struct stat status{};
  if (::stat(directory.c_str(), &status)) return std::strerror(errno);
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    return joined({"it belongs to another user (uid ", status.st_uid, ")"});
  }
  return status.st_mode & (S_IWGRP | S_IWOTH) ? "other users may write there" : "";
}

void make_private_directory(const fs::path& path) { ::mkdir(path.c_str(), 0700); }

std::string user_name() { return joined({::geteuid()}); }

#endif

// All of a regular file; empty if there is none.
std::string read_file(const fs::path& path) {
  std::error_code error;
  std::ostringstream bytes;
  if (fs::is_regular_file(path, error)) bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

// Write `bytes` to a new file, or `mode` std::ios::app at the end of one; return whether all are written.
bool write_file(const fs::path& path, std::ios::openmode mode, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | mode);
  file << bytes;
  file.close();
  return !file.fail();
}

// A name beside `path` that no other process or thread uses. Python's prunes remove remains of such names.
fs::path name_beside(const fs::path& path) {
  std::random_device random;
  return path.parent_path() / joined({".", path.filename().string(), ".", random(), random(), ".cuda_ext"});
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
