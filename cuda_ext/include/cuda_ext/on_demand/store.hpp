// The cache: bytes by key on disk, for any number of processes, as cuda_ext/cache/local_store.py keeps them,
// and records of texts and numbers, as cuda_ext/facts/codec.py encodes them. What it takes of files and directories
// comes first.

#pragma once

#include "../loader/failure.hpp"

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
#include <ios>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
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

std::string hexadecimal(const std::string& bytes) {
  std::string digits;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    for (const int digit : {value >> 4, value & 15}) digits += "0123456789abcdef"[digit];
  }
  return digits;
}

std::string encode(Parts fields) {
  std::string bytes;
  for (const Part& field : fields) bytes += joined({field.text().size(), ":", field.text()});
  return bytes;
}

// The number of `texts`, and each of them.
std::string encode_list(const Array<const char*>& texts) {
  std::string bytes = encode({texts.size});
  for (const char* text : texts) bytes += encode({text});
  return bytes;
}

// The fields of any bytes; empty if these are not fields.
std::vector<std::string_view> decode(std::string_view bytes) {
  std::vector<std::string_view> fields;
  while (!bytes.empty()) {
    const std::size_t digits = bytes.find_first_not_of("0123456789");
    if (digits == 0 || digits > 18 || bytes[digits] != ':') return {};
    const std::size_t size = std::strtoull(bytes.data(), nullptr, 10);
    bytes.remove_prefix(digits + 1);
    if (size > bytes.size()) return {};
    fields.push_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return fields;
}

// Where this machine keeps its cache; empty without a home directory.
fs::path cache_directory() {
  std::error_code error;
#if defined(_WIN32)
  const fs::path home = setting("USERPROFILE");
  const fs::path caches = setting("LOCALAPPDATA");
  const char* name = "cuda_ext/cuda_ext/Cache";
#else
  const fs::path home = setting("HOME");
  const std::string configured_caches = setting("XDG_CACHE_HOME");
  const fs::path caches = configured_caches.empty() ? home / ".cache" : fs::path(configured_caches);
  const char* name = "cuda_ext";
#endif
  const std::string configured = setting("CUDA_EXT_CACHE");
  if (configured.empty() || configured.find("://") != configured.npos) {
    return caches.is_absolute() ? caches / name : fs::path();
  }
  const bool is_in_home = configured == "~" || configured.rfind("~/", 0) == 0;
  return fs::absolute(is_in_home ? home.string() + configured.substr(1) : configured, error);
}

// One warning is enough: others would have the same cause.
void warn_once(const std::string& where, const std::string& problem,
               const char* remedy = "set CUDA_EXT_CACHE to a directory that only you can write") {
  static std::atomic<bool> is_done{false};
  if (is_done.exchange(true)) return;
  std::fprintf(stderr, "cuda-ext: warning: %s: compiling goes on without a cache: %s; %s\n", where.c_str(),
               problem.c_str(), remedy);
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
  char* unit = nullptr;
  const std::uintmax_t number = std::strtoull(size.c_str(), &unit, 10);
  const std::size_t power = std::string_view("BKMGT").find(*unit ? *unit : 'B');
  const std::string_view rest = *unit ? unit + 1 : "";
  const bool is_number = '0' <= size[0] && size[0] <= '9' && unit < size.c_str() + 19;
  if (is_number && power < 5 && (rest.empty() || (power && (rest == "B" || rest == "IB")))) {
    return number > UINTMAX_MAX >> 10 * power ? UINTMAX_MAX : number << 10 * power;
  }
  warn_once("CUDA_EXT_CACHE_SIZE", joined({"'", text, "' is not a size"}),
            "write bytes, or a number with K, M, G or T, as in 5G; 0 means no cache");
  return 0;
}

// Entries as files of one directory, each under a key, which is a digest. They appear by rename, and the digest
// of their content is checked at every get, so a killed writer, a full disk, or a concurrent prune cause misses
// at worst. A cache that cannot be used, or to which other users could write, costs one warning and keeps
// nothing.
class Store {
 public:
  Store() : bound_(cache_bound()) {
    if (!bound_) return;
    const fs::path directory = cache_directory();
    errno = 0;
    const bool is_there = directory.is_absolute() && make_directories(directory);
    const std::string reason = is_there ? distrust(directory) : errno ? std::strerror(errno) : "no home directory";
    if (reason.empty()) objects_ = directory / "objects";
    if (!reason.empty()) warn_once(directory.string(), reason);
  }

  // The content of `key`; empty if it is absent or damaged.
  std::string get(const std::string& key) const {
    if (objects_.empty()) return "";
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
    const fs::path aside = name_beside(path);
    const std::string entry = head_of(key, content) + content;
    errno = 0;
    const bool is_written = make_directories(path.parent_path()) && write_file(aside, {}, entry);
    if (is_written) fs::rename(aside, path, error);
    if (is_written && !error) {
      write_file(objects_ / "total", std::ios::app, joined({entry.size(), " "}));  // for the next prune of Python
      if (key[0] % 16 == 0) prune();  // listing all entries takes long, so do it for one of sixteen
      return;
    }
    const std::string reason = error ? error.message() : std::strerror(errno);
    fs::remove(aside, error);
    // Windows does not replace an entry that another process reads.
    if (get(key) != content) warn_once(objects_.parent_path().string(), reason);
  }

  // Held while one thread or process computes the content of `key`. Some keys share a lock.
  std::shared_ptr<void> lock(const std::string& key) const {
    const bool is_possible = !objects_.empty() && make_directories(objects_ / "locks");
    return is_possible ? lock_file(objects_ / "locks" / hexadecimal(key.substr(0, 1))) : nullptr;
  }

 private:
  static constexpr std::string_view magic{"cudaext\x01", 8};  // the last byte is the version of the format
  static constexpr std::size_t head_size = magic.size() + 2 * 32;
  static constexpr std::chrono::hours hour{1};

  fs::path path_of(const std::string& key) const {
    return objects_ / hexadecimal(key.substr(0, 1)) / hexadecimal(key.substr(1));
  }

  // The version of the format, the digest of all that follows, the key.
  static std::string head_of(const std::string& key, const std::string& content) {
    return joined({magic, sha256(key + content), key});
  }

  // Reduce the entries to 80 % of the bound if they exceed it, in the order of their last use.
  void prune() const {
    Files entries;
    std::uintmax_t total = 0;
    for (const auto& [time, size, path] : list_files(objects_)) {
      const std::string name = fs::path(path).lexically_relative(objects_).generic_string();
      const bool is_key = name.size() == 65 && name.find('/') == 2 && name.rfind('/') == 2 &&
                          name.find_first_not_of("/0123456789abcdef") == name.npos;
      if (!is_key) continue;  // files of other names are not the cache's, or still being written
      entries.emplace_back(time, size, path);
      total += size;
    }
    if (total <= bound_) return;
    std::error_code gone;
    for (const auto& [time, size, path] : entries) {
      if (total > bound_ / 5 * 4 && fs::remove(path, gone)) total -= size;
    }
  }

  std::uintmax_t bound_;
  fs::path objects_;  // empty if the cache is not used
};

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
