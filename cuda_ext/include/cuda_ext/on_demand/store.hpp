// The cache: bytes by key on disk, for any number of processes, as cuda_ext/cache/local_store.py keeps them.
// Keys and entries are encoded as cuda_ext/formats/codec.py does.

#pragma once

#include "../text.hpp"

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
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#if !defined(_WIN32)
#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

namespace fs = std::filesystem;

// The digest of `bytes` in binary, as FIPS 180-4 defines it.
std::string sha256(std::string bytes) {
  static constexpr std::uint32_t constants[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
      0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
      0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
      0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
      0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
      0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
      0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
  std::uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const auto rotated = [](std::uint32_t word, int count) { return word >> count | word << (32 - count); };
  const std::uint64_t bits = std::uint64_t{8} * bytes.size();
  bytes += '\x80';
  bytes.resize((bytes.size() + 8 + 63) / 64 * 64 - 8);
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(bits >> shift);

  std::uint32_t words[64] = {};
  for (std::size_t block = 0; block < bytes.size(); block += 64) {
    for (std::size_t i = 0; i < 64; i++) {
      words[i / 4] = words[i / 4] << 8 | static_cast<unsigned char>(bytes[block + i]);
    }
    for (std::size_t i = 16; i < 64; i++) {
      const std::uint32_t near = words[i - 2];
      const std::uint32_t far = words[i - 15];
      words[i] = words[i - 16] + (rotated(far, 7) ^ rotated(far, 18) ^ far >> 3) + words[i - 7] +
                 (rotated(near, 17) ^ rotated(near, 19) ^ near >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (std::size_t i = 0; i < 64; i++) {
      const std::uint32_t first = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
                                  ((e & f) ^ (~e & g)) + constants[i] + words[i];
      const std::uint32_t second =
          (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + first;
      d = c, c = b, b = a, a = first + second;
    }
    const std::uint32_t added[] = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; i++) state[i] += added[i];
  }
  std::string digest;
  for (const std::uint32_t word : state) {
    for (int shift = 24; shift >= 0; shift -= 8) digest += static_cast<char>(word >> shift);
  }
  return digest;
}

// The key of `fields`: 64 hexadecimal digits.
std::string key_of(const std::string& fields) {
  std::string key;
  for (const char byte : sha256(fields)) {
    for (const int shift : {4, 0}) key += "0123456789abcdef"[static_cast<unsigned char>(byte) >> shift & 15];
  }
  return key;
}

std::string encode(Parts fields) {
  std::string bytes;
  for (const Part& field : fields) bytes += joined({field.text().size(), ":", field.text()});
  return bytes;
}

// The number of `texts`, and each of them.
template <class Texts>
std::string encode_list(const Texts& texts) {
  std::string bytes;
  std::size_t count = 0;
  for (const auto& text : texts) bytes += encode({text}), count++;
  return encode({count}) + bytes;
}

// The fields of any bytes; empty if these are not fields.
std::vector<std::string_view> decode(std::string_view bytes) {
  std::vector<std::string_view> fields;
  while (!bytes.empty()) {
    std::size_t size = 0;
    std::size_t digits = 0;
    for (; digits < bytes.size() && digits < 18 && '0' <= bytes[digits] && bytes[digits] <= '9'; digits++) {
      size = 10 * size + static_cast<std::size_t>(bytes[digits] - '0');
    }
    const bool is_size = digits && digits < bytes.size() && bytes[digits] == ':';
    if (!is_size || size > bytes.size() - digits - 1) return {};
    fields.push_back(bytes.substr(digits + 1, size));
    bytes.remove_prefix(digits + 1 + size);
  }
  return fields;
}

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

// One warning is enough: others would have the same cause.
void warn_once(const std::string& where, const std::string& problem, const char* remedy) {
  static std::atomic<bool> is_done{false};
  if (is_done.exchange(true)) return;
  std::fprintf(stderr, "cuda-ext: warning: %s: %s; %s\n", where.c_str(), problem.c_str(), remedy);
}

// The size limit of the cache in bytes: CUDA_EXT_CACHE_SIZE, such as 5G or 500 MiB.
std::uintmax_t cache_bound() {
  constexpr std::uintmax_t by_default = std::uintmax_t{5} << 30;
  std::string text;
  for (const char letter : setting("CUDA_EXT_CACHE_SIZE")) {
    if (letter != ' ') text += static_cast<char>(std::toupper(letter));
  }
  if (text.empty()) return by_default;
  char* end = nullptr;
  const std::uintmax_t number = std::strtoull(text.c_str(), &end, 10);
  const std::string unit = end;
  const std::size_t power = unit.empty() ? 0 : std::string_view("BKMGT").find(unit[0]);
  const bool is_unit = unit.size() < 2 || (power && (unit.substr(1) == "B" || unit.substr(1) == "IB"));
  if ('0' <= text[0] && text[0] <= '9' && power < 5 && is_unit) {
    return number > UINTMAX_MAX >> 10 * power ? UINTMAX_MAX : number << 10 * power;
  }
  warn_once("CUDA_EXT_CACHE_SIZE", joined({"'", text, "' is not a size"}),
            "write bytes, or a number with K, M, G or T, as in 5G; 0 means no cache");
  return by_default;
}

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
      warn_once(objects.string(), "compiling goes on without a cache: " + reason, remedy);
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
      warn_once(objects_.parent_path().string(), "the cache cannot be written: " + reason, remedy);
    } else if (key[0] == '0') {
      prune();  // listing all entries takes long, so do it for one of sixteen
    }
  }

  // Held while one thread or process computes what `name` stands for, so that others wait, for ten minutes at
  // most. It saves work and guards nothing. On Windows, each process computes it.
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
    const Files files = list_files(objects_);
    std::uintmax_t total = 0;
    for (const auto& [time, size, path] : files) total += size;
    if (total <= bound_) return;
    for (const auto& [time, size, path] : files) {
      if (total <= bound_ / 5 * 4) break;
      const fs::path directory = fs::path(path).parent_path().filename();
      if (directory == "locks" || directory == "objects") continue;
      std::error_code gone;
      fs::remove(path, gone);
      total -= size;
    }
  }

  std::uintmax_t bound_;
  fs::path objects_;  // empty if the cache is not used
};

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
