// The cache: bytes by key on disk, for any number of processes. cuda_ext/cache/local_store.py in C++, with the same
// files.

#pragma once

#include "../data.hpp"
#include "../names.hpp"
#include "../text.hpp"
#include "expressions.hpp"
#include "files.hpp"
#include "paths.hpp"
#include "sha256.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <dirent.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {

// One warning is enough: what follows has the same cause.
inline std::atomic<bool> was_warned{false};

namespace {

inline void warn_once(Parts parts) {
  if (!was_warned.exchange(true)) std::fprintf(stderr, "cuda-ext: warning: %s\n", joined(parts).c_str());
}

// The text of errno.
inline std::string system_reason() { return std::strerror(errno); }

inline std::string home_directory() {
  const char* home = std::getenv("HOME");
  if (home && *home == '/') return home;
  const struct passwd* user = ::getpwuid(::getuid());
  return user && user->pw_dir ? user->pw_dir : "";
}

// Where this machine keeps its cache: CUDA_EXT_CACHE unless that is a URL, else the user's cache. Empty for a
// user who has no home directory.
inline std::string cache_directory() {
  const std::string configured = setting("CUDA_EXT_CACHE");
  if (!configured.empty() && configured.find("://") == configured.npos) return absolute_path(configured);
  const std::string home = home_directory();
#if defined(__APPLE__)
  std::string caches = home.empty() ? "" : home + "/Library/Caches";
#else
  std::string caches = setting("XDG_CACHE_HOME");
  if (!begins_with(caches, "/")) caches = home.empty() ? "" : home + "/.cache";
#endif
  return begins_with(caches, "/") ? normal_path(caches + "/cuda_ext") : "";
}

// A size as people write it, "5G" or "500 MiB".
inline std::optional<std::size_t> size_in_bytes(std::string_view text) noexcept {
  const auto skip_white_space = [&] {
    while (!text.empty() && is_white_space(text.front())) text.remove_prefix(1);
  };
  const auto take = [&](char upper) {
    const bool is_next = !text.empty() && (text.front() == upper || text.front() == (upper | 0x20));
    if (is_next) text.remove_prefix(1);
    return is_next;
  };
  skip_white_space();
  std::size_t number = 0;
  std::size_t digits = 0;
  for (; digits < 18 && !text.empty() && is_digit(text.front()); digits++, text.remove_prefix(1)) {
    number = 10 * number + static_cast<std::size_t>(text.front() - '0');
  }
  skip_white_space();
  int power = 0;
  for (const char prefix : {'K', 'M', 'G', 'T'}) {
    power++;
    if (!take(prefix)) continue;
    number = number > SIZE_MAX >> 10 * power ? SIZE_MAX : number << 10 * power;
    if (take('I') && !take('B')) return std::nullopt;
    break;
  }
  take('B');
  skip_white_space();
  if (!digits || !text.empty()) return std::nullopt;
  return number;
}

// The size limit of the cache in bytes, from CUDA_EXT_CACHE_SIZE.
inline std::size_t cache_bound() {
  constexpr std::size_t by_default = std::size_t{5} << 30;
  const std::string text = setting("CUDA_EXT_CACHE_SIZE");
  if (text.find_first_not_of(" \t\n\v\f\r") == text.npos) return by_default;
  const auto bound = size_in_bytes(text);
  if (!bound) {
    warn_once({"CUDA_EXT_CACHE_SIZE: '", text,
               "' is not a size; write bytes, or a number with K, M, G or T, ",
               "as in 5G; 0 means no cache"});
  }
  return bound.value_or(by_default);
}

// Held while one makes what belongs under `key`, so that others wait. It saves work and guards nothing: where
// the system has no locks, or after a long while, one goes on without.
class KeyLock {
 public:
  // One lock file serves many keys, so that none needs to be removed. The system releases the lock of a killed process.
  KeyLock(const std::string& directory, const std::string& key)
      : file_(joined({directory, "/", key.substr(0, 2)}), O_RDWR | O_CREAT | O_NOFOLLOW) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds longest(50);
    std::chrono::milliseconds pause(1);
    const Clock::time_point end = Clock::now() + std::chrono::minutes(10);
    while (file_.is_open() && ::flock(file_.descriptor(), LOCK_EX | LOCK_NB) && Clock::now() < end) {
      if (errno != EWOULDBLOCK && errno != EINTR) break;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, longest);
    }
  }
  KeyLock(const KeyLock&) = delete;
  KeyLock& operator=(const KeyLock&) = delete;
  ~KeyLock() {
    // Closing does not let go where a child was forked meanwhile.
    if (file_.is_open()) ::flock(file_.descriptor(), LOCK_UN);
  }

 private:
  File file_;
};

// Entries as files of one directory. They appear by rename, and their digest is checked at every get, so that
// a killed writer, a full disk, or a prune at the same time are misses at worst. A cache that cannot be used,
// or that others could have written, costs one warning and keeps nothing.
class Store {
 public:
  Store() : bound_(cache_bound()) {
    const std::string directory = bound_ ? cache_directory() : "";
    if (!directory.empty()) {
      open(directory + "/objects");
    } else if (bound_) {
      warn_once({"compiling goes on without a cache: there is no home directory; set CUDA_EXT_CACHE to a ",
                 "directory that can be written"});
    }
  }

  // What was put under `key`, if it is there and undamaged.
  std::optional<std::string> get(const std::string& key) const {
    if (objects_.empty()) return std::nullopt;
    const std::string path = path_of(key);
    const File file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    struct stat status{};
    if (!file.status(status) || !S_ISREG(status.st_mode) || status.st_size > largest) return std::nullopt;
    const std::string entry = file.read(0, static_cast<std::size_t>(status.st_size));
    if (entry.size() < head_size) return std::nullopt;
    const std::string content = entry.substr(head_size);
    if (!begins_with(entry, head_of(key, content))) return std::nullopt;
    if (status.st_mtime < std::time(nullptr) - hour) ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
    return content;
  }

  void put(const std::string& key, const std::string& content) const {
    if (objects_.empty()) return;
    const std::string entry = head_of(key, content) + content;
    if (!write(path_of(key), entry)) {
      warn_once({parent(objects_), ": the cache cannot be written: ", system_reason(),
                 "; free some space, lower CUDA_EXT_CACHE_SIZE, or set CUDA_EXT_CACHE to another directory"});
      return;
    }
    const File total(total_path(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW);
    if (total.is_open()) total.write(joined({entry.size(), " "}));
  }

  // Wait until no other process compiles `key`.
  std::unique_ptr<KeyLock> alone(const std::string& key) const {
    if (objects_.empty()) return nullptr;
    const std::string locks = objects_ + "/locks";
    ::mkdir(locks.c_str(), 0700);
    return std::make_unique<KeyLock>(locks, key);
  }

  // Brings the entries to 80 % of the bound if they exceed it; those go first that were not used for longest.
  // The directory is scanned once an hour, or when what was written since may exceed the bound.
  void prune() const {
    if (objects_.empty() || is_within_bound()) return;
    for (const Entry& remains : files_of(temporary())) {
      if (remains.modified < std::time(nullptr) - hour) ::unlink(remains.path.c_str());
    }
    std::vector<Entry> entries;
    for (int shard = 0; shard < 256; shard++) {
      const char digits[] = {static_cast<char>(shard)};
      for (Entry& entry : files_of(joined({objects_, "/", hexadecimal({digits, 1})}))) {
        entries.push_back(std::move(entry));
      }
    }
    std::sort(entries.begin(), entries.end());
    std::size_t total = 0;
    for (const Entry& entry : entries) total += entry.size;
    const bool is_too_much = total > bound_;
    for (const Entry& entry : entries) {
      if (!is_too_much || total <= bound_ / 5 * 4) break;
      if (::unlink(entry.path.c_str()) == 0 || errno == ENOENT) total -= entry.size;
    }
    write(total_path(), joined({std::time(nullptr), " ", total, " "}));
  }

 private:
  struct Entry {
    std::time_t modified;
    std::size_t size;
    std::string path;

    bool operator<(const Entry& other) const noexcept {
      return std::tie(modified, size, path) < std::tie(other.modified, other.size, other.path);
    }
  };

  static constexpr std::string_view magic{"cudaext\x01", 8};  // the last byte is the version of the format
  static constexpr std::size_t head_size = magic.size() + 2 * Sha256::size;
  static constexpr off_t largest = off_t{1} << 30;
  static constexpr std::time_t hour = 3600;

  void open(const std::string& objects) {
    if (!make_directories(objects)) {
      const bool is_file = errno == EEXIST || errno == ENOTDIR;
      without(objects, is_file ? "a file is where a directory should be" : system_reason(),
              is_file ? "move it" : "set CUDA_EXT_CACHE to a directory that can be written");
    } else if (const std::string why = why_not_trusted(objects); !why.empty()) {
      without(objects, why, "remove it, or set CUDA_EXT_CACHE to a directory that only you can write");
    } else if (::access(objects.c_str(), R_OK | X_OK)) {
      // A read-only cache serves readers; the first write reports it.
      without(objects, "it cannot be read", "set CUDA_EXT_CACHE to a directory that can be written");
    } else {
      objects_ = objects;
    }
  }

  static std::string why_not_trusted(const std::string& objects) {
    const std::string why = exposure(std::string(parent(objects)));
    return why.empty() ? distrust(objects) : why;
  }

  static void without(const std::string& objects, const std::string& reason, const char* remedy) {
    warn_once({objects, ": compiling goes on without a cache: ", reason, "; ", remedy});
  }

  std::string path_of(const std::string& key) const {
    return joined({objects_, "/", key.substr(0, 2), "/", key.substr(2)});
  }
  std::string temporary() const { return objects_ + "/tmp"; }
  // When the last scan was, what it found in all, and the size of each entry written since.
  std::string total_path() const { return objects_ + "/total"; }

  // Format, digest of all that follows, key.
  static std::string head_of(const std::string& key, std::string_view content) {
    std::string binary;
    for (std::size_t i = 0; i + 1 < key.size(); i += 2) {
      binary += static_cast<char>(std::strtoul(key.substr(i, 2).c_str(), nullptr, 16));
    }
    return joined({magic, Sha256().update(binary).update(content).digest(), binary});
  }

  // Make `path` appear atomically, and its directories, which another process may be removing.
  bool write(const std::string& path, std::string_view content) const {
    for (int attempt = 0; attempt < 3; attempt++) {
      if (rename_into_place(path, content)) return true;
      if (errno != ENOENT && errno != ESTALE) return false;
      if (!make_directories(temporary()) || !make_directories(std::string(parent(path)))) return false;
    }
    return false;
  }

  // Nothing is synced to the disk: after a power failure, the digest tells.
  bool rename_into_place(const std::string& path, std::string_view content) const {
    std::string aside = joined({temporary(), "/", ::getpid(), ".XXXXXX"});
    const File file(aside);
    if (!file.is_open()) return false;
    if (file.write(content) && ::rename(aside.c_str(), path.c_str()) == 0) return true;
    const int reason = errno;
    ::unlink(aside.c_str());
    errno = reason;
    return false;
  }

  bool is_within_bound() const {
    const File file(total_path(), O_RDONLY | O_NOFOLLOW);
    struct stat status{};
    if (!file.status(status) || status.st_size > largest) return false;
    const std::string text = file.read(0, static_cast<std::size_t>(status.st_size));
    const char* at = text.c_str();
    char* end = nullptr;
    const auto scanned = static_cast<std::time_t>(std::strtoll(at, &end, 10));
    if (at == end) return false;
    std::size_t total = 0;
    while (at != end) {
      at = end;
      total += std::strtoull(at, &end, 10);
    }
    // A clock that was set back must not put off the next scan.
    const std::time_t now = std::time(nullptr);
    return scanned - hour < now && now < scanned + hour && total <= bound_;
  }

  // Another process may be removing them.
  static std::vector<Entry> files_of(const std::string& directory) {
    std::vector<Entry> entries;
    DIR* listed = ::opendir(directory.c_str());
    if (!listed) return entries;
    while (const dirent* entry = ::readdir(listed)) {
      const std::string path = joined({directory, "/", entry->d_name});
      struct stat status{};
      if (::lstat(path.c_str(), &status) || !S_ISREG(status.st_mode)) continue;
      entries.push_back({status.st_mtime, static_cast<std::size_t>(status.st_size), path});
    }
    ::closedir(listed);
    return entries;
  }

  std::size_t bound_;
  std::string objects_;  // empty where nothing is kept
};

}  // namespace
}  // namespace v1
}  // namespace cuda_ext
