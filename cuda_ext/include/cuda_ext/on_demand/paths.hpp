// Paths, and settings out of the environment that are paths.

#pragma once

#include "../data.hpp"
#include "../text.hpp"
#include "expressions.hpp"

#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

// The environment variable, or nothing.
inline std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

inline bool is_directory(const std::string& path) noexcept {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

inline bool is_file(const std::string& path) noexcept {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

// `path` without "." and "x/..", as posixpath.normpath has it.
inline std::string normal_path(std::string_view path) {
  const bool is_absolute = begins_with(path, "/");
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    path.remove_prefix(part.size() + (part.size() < path.size()));
    if (part.empty() || part == ".") continue;
    if (part != ".." || (parts.empty() ? !is_absolute : parts.back() == "..")) {
      parts.push_back(part);
    } else if (!parts.empty()) {
      parts.pop_back();
    }
  }
  std::string normal = is_absolute ? "/" : "";
  for (std::size_t i = 0; i < parts.size(); i++) normal += joined({i ? "/" : "", parts[i]});
  return normal.empty() ? "." : normal;
}

// Links stay.
inline std::string absolute_path(std::string_view path) {
  if (begins_with(path, "/")) return normal_path(path);
  std::string directory(1 << 16, '\0');
  if (!::getcwd(directory.data(), directory.size())) return "";
  return normal_path(joined({directory.c_str(), "/", path}));
}

// Where it really is; empty if it is nowhere.
inline std::string real_path(const std::string& path) {
  char* found = ::realpath(path.c_str(), nullptr);
  const std::string real = found ? found : "";
  std::free(found);
  return real;
}

// Of an absolute path; empty above "/x".
inline std::string_view parent(std::string_view path) noexcept {
  const std::size_t slash = path.rfind('/');
  return slash == path.npos ? "" : path.substr(0, slash);
}

inline std::string_view base_name(std::string_view path) noexcept { return path.substr(path.rfind('/') + 1); }

// The paths that match `pattern`, sorted. `before` is none of it, and stands before each.
inline std::vector<std::string> matching(std::string_view before, std::string_view pattern) {
  std::string escaped;
  for (const char letter : before) {
    if (letter == '*' || letter == '?' || letter == '[' || letter == '\\') escaped += '\\';
    escaped += letter;
  }
  escaped += pattern;
  ::glob_t found{};
  std::vector<std::string> paths;
  if (::glob(escaped.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  return paths;
}

}  // namespace
}  // namespace v1
}  // namespace cuda_ext
