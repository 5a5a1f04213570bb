// The cache: bytes by key on disk, for any number of processes, as cuda_ext/cache/local_store.py keeps them.

#pragma once

#include "../loader/text.hpp"
#include "files.hpp"
#include "record.hpp"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#if !defined(_WIN32)
#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <unistd.h>
#endif

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

// Where this machine keeps its cache; empty for a user without a home directory.
fs::path cache_directory() {
  std::error_code error;
#if defined(_WIN32)
  const fs::path home = setting("USERPROFILE");
  const fs::path caches = setting("LOCALAPPDATA");
  const char* name = "cuda_ext/cuda_ext/Cache";
#else
  fs::path home = setting("HOME");
  const passwd* user = home.empty() ? ::getpwuid(::getuid()) : nullptr;
  if (user) home = user->pw_dir;
#if defined(__APPLE__)
  const fs::path caches = home / "Library/Caches";
#else
  const std::string configured_caches = setting("XDG_CACHE_HOME");
  const fs::path caches = configured_caches.empty() ? home / ".cache" : fs::path(configured_caches);
#endif
  const char* name = "cuda_ext";
#endif
  const std::string configured = setting("CUDA_EXT_CACHE");
  if (configured.empty() || configured.find("://") != configured.npos) {
    return caches.is_absolute() ? caches / name : fs::path();
  }
  const bool is_in_home = configured == "~" || configured.rfind("~/", 0) == 0;
  return is_in_home ? fs::path(home).concat(configured.substr(1)) : fs::absolute(configured, error);
}

constexpr const char* without_cache = "compiling goes on without a cache: ";

// One warning is enough: others would have the same cause.
void warn_once(const std::string& where, const std::string& problem, const char* remedy) {
  static std::atomic<bool> is_done{false};
  if (is_done.exchange(true)) return;
  std::fprintf(stderr, "cuda-ext: warning: %s: %s; %s\n", where.c_str(), problem.c_str(), remedy);
}

// The size limit of the cache in bytes: CUDA_EXT_CACHE_SIZE, such as 5G or 500 MiB; 0 for no cache.
std::uintmax_t cache_bound() {
  const std::string text = setting("CUDA_EXT_CACHE_SIZE");
  std::string size;
  for (const char letter : text) {
    if (std::strchr(" \t\n\r\f\v", letter)) continue;
    size += static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  if (size.empty()) return std::uintmax_t{5} << 30;
  const std::size_t digits = std::min(size.find_first_not_of("0123456789"), size.size());
  const std::uintmax_t number = std::strtoull(size.c_str(), nullptr, 10);
  const std::string unit = size.substr(digits);
  const std::size_t power = unit.empty() || unit == "B" ? 0 : std::string_view(" KMGT").find(unit[0]);
  const std::string_view rest = power ? std::string_view(unit).substr(1) : "";
  if (0 < digits && digits < 19 && power < 5 && (rest.empty() || rest == "B" || rest == "IB")) {
    return number > UINTMAX_MAX >> 10 * power ? UINTMAX_MAX : number << 10 * power;
  }
  warn_once("CUDA_EXT_CACHE_SIZE", joined({without_cache, "'", text, "' is not a size"}),
            "write bytes, or a number with K, M, G or T, as in 5G; 0 means no cache");
  return 0;
}

// Entries as files of one directory. They appear by rename, and their digest is checked at every get, so a
// killed writer, a full disk, or a concurrent prune cause misses at worst. A cache that cannot be used, or to
// which other users could write, costs one warning and keeps nothing.
class Store {
 public:
  Store() : bound_(cache_bound()) {
    if (!bound_) return;
    const fs::path objects = cache_directory() / "objects";
    std::error_code error;
    errno = 0;
    const bool is_there = objects.is_absolute() && make_directories(objects);
    const fs::path target = is_there ? fs::canonical(objects, error) : fs::path();
    const std::string reason = error      ? error.message()
                               : is_there ? distrust(target)
                               : errno    ? std::strerror(errno)
                                          : "no home directory";
    if (reason.empty()) {
      objects_ = target;
    } else {
      warn_once(objects.string(), joined({without_cache, reason}), remedy);
    }
  }

  // The content of `key`; empty if it is absent or damaged.
  std::string get(const std::string& key) const {
    // Others may have written to a directory of entries before the cache was closed to them.
    if (objects_.empty() || !distrust(path_of(key).parent_path()).empty()) return "";
    const std::string entry = read_file(path_of(key));
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
    const std::string entry = head_of(key, content) + content;
    errno = 0;
    const bool is_written = make_directories(aside.parent_path()) && make_directories(path.parent_path()) &&
                            write_file(aside, "wbx", entry);
    if (is_written) fs::rename(aside, path, error);
    if (is_written && !error) {
      write_file(objects_ / "total", "ab", joined({entry.size(), " "}));  // for the next prune of Python
      if (key[0] == '0') prune();  // listing all entries takes long, so do it for one of sixteen
      return;
    }
    const std::string reason = error ? error.message() : std::strerror(errno);
    fs::remove(aside, error);
    // Windows does not replace an entry that another process reads.
    if (get(key) != content)
      warn_once(objects_.parent_path().string(), joined({without_cache, reason}), remedy);
  }

  // Held while one thread or process computes what `name` stands for, so that others wait, for ten minutes at
  // most. It saves work and guards nothing. Names with the same first two digits share a lock. On Windows,
  // each process computes it.
  std::shared_ptr<void> lock(const std::string& name) const {
#if defined(_WIN32)
    static_cast<void>(name);
    return nullptr;
#else
    if (objects_.empty() || !make_directories(objects_ / "locks")) return nullptr;
    // NFS locks only files that are open for writing.
    const fs::path path = objects_ / "locks" / name.substr(0, 2);
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    for (int waits = 0; file >= 0 && waits < patience && ::flock(file, LOCK_EX | LOCK_NB); waits++) {
      if (errno != EWOULDBLOCK && errno != EINTR) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return std::shared_ptr<void>(nullptr, [file](void*) {
      // Closing does not release it where a child was forked meanwhile.
      if (file >= 0) ::flock(file, LOCK_UN), ::close(file);
    });
#endif
  }

 private:
  static constexpr std::string_view magic{"cudaext\x01", 8};  // the last byte is the version of the format
  static constexpr int patience = 60'000;
  static constexpr std::size_t head_size = magic.size() + 64;
  static constexpr std::chrono::hours hour{1};
  static constexpr const char* remedy = "set CUDA_EXT_CACHE to a directory that only you can write";

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
    Files entries;
    std::uintmax_t total = 0;
    std::error_code gone;
    const auto hour_ago = (fs::file_time_type::clock::now() - hour).time_since_epoch().count();
    for (const auto& [time, size, path] : list_files(objects_)) {
      const fs::path directory = fs::path(path).parent_path();
      const std::string outer = directory.filename().string();
      const std::string inner = fs::path(path).filename().string();
      if (directory.parent_path() != objects_) continue;
      constexpr const char* digits = "0123456789abcdef";
      const std::size_t end = inner.find_first_not_of(digits);
      // What a killed writer left: no write takes an hour. Files of other names are not the cache's.
      if (outer == "tmp" && end && end < inner.size() && inner[end] == '.' && time < hour_ago) {
        fs::remove(path, gone);
      }
      const bool is_key = (outer + inner).find_first_not_of(digits) == inner.npos;
      if (outer.size() != 2 || inner.size() != 62 || !is_key) continue;
      entries.emplace_back(time, size, path);
      total += size;
    }
    if (total <= bound_) return;
    for (const auto& [time, size, path] : entries) {
      if (total <= bound_ / 5 * 4) return;
      if (fs::remove(path, gone)) total -= size;
    }
  }

  std::uintmax_t bound_;
  fs::path objects_;  // empty if the cache is not used
};

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
