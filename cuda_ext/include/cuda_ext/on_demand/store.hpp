// The cache: bytes by key on disk, for any number of processes, as cuda_ext/cache/local_store.py keeps them.

#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "../data.hpp"
#include "../text.hpp"
#include "hash.hpp"

#if !defined(_WIN32)
#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

namespace fs = std::filesystem;

// The environment variable, or nothing.
std::string setting(const char* name) {
#if defined(_MSC_VER)
#pragma warning(suppress : 4996)  // of getenv; nothing here changes the environment
#endif
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_existing_directory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// At most `size` bytes of a regular file, from `offset` on.
std::string read_file(const fs::path& path, std::uintmax_t offset = 0, std::uintmax_t size = UINTMAX_MAX) {
  std::error_code error;
  const std::uintmax_t whole = fs::is_regular_file(path, error) ? fs::file_size(path, error) : 0;
  if (error || offset >= whole) return "";
  std::string bytes(static_cast<std::size_t>(std::min(size, whole - offset)), '\0');
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return file ? bytes : "";
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
  struct stat status{};
  if (::stat(directory.c_str(), &status)) return std::strerror(errno);
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    return joined({"it belongs to another user (uid ", status.st_uid, ")"});
  }
  if (status.st_mode & (S_IWGRP | S_IWOTH)) return "other users may write there";
  struct stat parent{};
  const bool is_sticky = ::stat(directory.parent_path().c_str(), &parent) || parent.st_mode & S_ISVTX;
  if (parent.st_mode & S_IWOTH && !is_sticky) return "all users may write to its parent directory";
#endif
  return "";
}

// Where this machine keeps its cache; empty for a user without a home directory.
fs::path cache_directory() {
  std::error_code error;
  const std::string configured = setting("CUDA_EXT_CACHE");
  if (!configured.empty() && configured.find("://") == configured.npos)
    return fs::absolute(configured, error);
#if defined(_WIN32)
  fs::path caches = setting("LOCALAPPDATA");
  return caches.is_absolute() ? caches / "cuda_ext/cuda_ext/Cache" : fs::path();
#else
  fs::path home = setting("HOME");
  const passwd* user = home.empty() ? ::getpwuid(::getuid()) : nullptr;
  if (user) home = user->pw_dir;
#if defined(__APPLE__)
  fs::path caches = home / "Library/Caches";
#else
  fs::path caches = setting("XDG_CACHE_HOME");
  if (!caches.is_absolute()) caches = home / ".cache";
#endif
  return caches.is_absolute() ? caches / "cuda_ext" : fs::path();
#endif
}

// The size limit of the cache in bytes: CUDA_EXT_CACHE_SIZE, such as 5G or 500 MiB.
std::uintmax_t cache_bound() {
  const std::string text = setting("CUDA_EXT_CACHE_SIZE");
  char* end = nullptr;
  const std::uintmax_t number = std::strtoull(text.c_str(), &end, 10);
  if (end == text.c_str()) return std::uintmax_t{5} << 30;
  while (*end == ' ') end++;
  const std::size_t power = std::string_view("-KMGT-kmgt").find(*end ? *end : '-') % 5;
  return number > UINTMAX_MAX >> 10 * power ? UINTMAX_MAX : number << 10 * power;
}

// Held while one process or thread computes something, so that others wait. It saves work and guards nothing;
// on Windows, each of several processes computes it.
class FileLock {
 public:
  explicit FileLock(const fs::path& path) {
#if defined(_WIN32)
    static_cast<void>(path);
#else
    // NFS locks only files that are open for writing.
    file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    while (file_ >= 0 && ::flock(file_, LOCK_EX) && errno == EINTR) continue;
  }
  ~FileLock() {
    // Closing does not release it where a child was forked meanwhile.
    if (file_ >= 0) ::flock(file_, LOCK_UN), ::close(file_);
#endif
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_ = -1;
};

// Entries as files of one directory. They appear by rename, and their digest is checked at every get, so a
// killed writer, a full disk, or a concurrent prune cause misses at worst. A cache that cannot be used, or to
// which other users could write, costs one warning and keeps nothing.
class Store {
 public:
  Store() : bound_(cache_bound()) {
    const fs::path objects = cache_directory() / "objects";
    if (!bound_) return;
    errno = 0;
    const bool is_there = objects.is_absolute() && make_directories(objects);
    const std::string reason = is_there ? distrust(objects)
                               : errno  ? std::strerror(errno)
                                        : "no home directory";
    if (reason.empty()) {
      objects_ = objects;
    } else {
      warn(objects.string(), "compiling goes on without a cache", reason);
    }
  }

  // The content of `key`; empty if it is absent or damaged.
  std::string get(const std::string& key) const {
    const std::string entry = objects_.empty() ? "" : read_file(path_of(key));
    if (entry.size() <= head_size) return "";
    std::string content = entry.substr(head_size);
    if (entry.compare(0, head_size, head_of(key, content)) != 0) return "";
    std::error_code error;
    const auto now = fs::file_time_type::clock::now();
    if (fs::last_write_time(path_of(key), error) < now - hour) fs::last_write_time(path_of(key), now, error);
    return content;
  }

  // Nothing is synced to the disk: after a power failure, the digest shows the damage.
  void put(const std::string& key, const std::string& content) const {
    if (objects_.empty()) return;
    std::error_code error;
    const fs::path path = path_of(key);
    const fs::path aside = objects_ / "tmp" / unique_name();
    errno = 0;
    bool is_done = make_directories(aside.parent_path()) && make_directories(path.parent_path());
    if (is_done) {
      std::ofstream file(aside, std::ios::binary);
      file << head_of(key, content) << content;
      file.close();
      is_done = !file.fail();
      if (is_done) fs::rename(aside, path, error);
    }
    if (!is_done || error) {
      const std::string reason = error ? error.message() : std::strerror(errno);
      fs::remove(aside, error);
      warn(objects_.parent_path().string(), "the cache cannot be written", reason);
    } else if (key[0] == '0') {
      prune();  // listing all entries takes long, so do it for one of sixteen
    }
  }

  // Wait while another thread or process computes what `name` stands for.
  std::unique_ptr<FileLock> lock(const std::string& name) const {
    if (objects_.empty() || !make_directories(objects_ / "locks")) return nullptr;
    return std::make_unique<FileLock>(objects_ / "locks" / name.substr(0, 2));
  }

  // A name that no other process or thread uses.
  static std::string unique_name() {
    std::random_device random;
    return joined({random(), ".", random()});
  }

 private:
  static constexpr std::string_view magic{"cudaext\x01", 8};  // the last byte is the version of the format
  static constexpr std::size_t head_size = magic.size() + 64;
  static constexpr std::chrono::hours hour{1};

  // One warning is enough: others would have the same cause.
  static void warn(const std::string& where, const char* what, const std::string& reason) {
    static std::atomic<bool> is_done{false};
    if (is_done.exchange(true)) return;
    std::fprintf(stderr,
                 "cuda-ext: warning: %s: %s: %s; set CUDA_EXT_CACHE to a directory that only you can write\n",
                 where.c_str(), what, reason.c_str());
  }

  fs::path path_of(const std::string& key) const { return objects_ / key.substr(0, 2) / key.substr(2); }

  // The version of the format, the digest of all that follows, the key.
  static std::string head_of(const std::string& key, const std::string& content) {
    std::string binary;
    for (std::size_t i = 0; i < key.size(); i += 2) {
      binary += static_cast<char>(std::strtoul(key.substr(i, 2).c_str(), nullptr, 16));
    }
    return joined({magic, sha256(binary + content), binary});
  }

  // Reduce the entries to 80 % of the bound if they exceed it, in the order of their last use.
  void prune() const {
    std::vector<fs::directory_entry> entries;
    std::uintmax_t total = 0;
    std::error_code error;
    std::error_code gone;
    for (fs::recursive_directory_iterator at(objects_, error), end; !error && at != end;
         at.increment(error)) {
      if (at->path().filename().string().size() != 62 || !at->is_regular_file(gone)) continue;
      entries.push_back(*at);
      total += at->file_size(gone);
    }
    if (total <= bound_) return;
    std::sort(entries.begin(), entries.end(), [&](const auto& left, const auto& right) {
      return left.last_write_time(gone) < right.last_write_time(gone);
    });
    for (const fs::directory_entry& entry : entries) {
      if (total <= bound_ / 5 * 4) break;
      total -= std::min(total, entry.file_size(gone));
      fs::remove(entry.path(), gone);
    }
  }

  std::uintmax_t bound_;
  fs::path objects_;  // empty if the cache is not used
};

}  // namespace
}  // namespace v1
}  // namespace cuda_ext CUDA_EXT_HIDDEN
