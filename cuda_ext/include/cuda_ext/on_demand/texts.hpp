// Headers in memory.

#pragma once

#include "../loader/text.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

// Headers by name. Each name is there once.
class Headers {
 public:
  // Adds a header, unless there is one of this name.
  void add(std::string name, std::string text) {
    if (!has(name)) headers_.emplace_back(std::move(name), std::move(text));
  }

  bool has(const std::string& name) const {
    for (const auto& header : headers_) {
      if (header.first == name) return true;
    }
    return false;
  }

  // Returns `text` of the file `includer`, in which quoted names of headers that lie beside it are full ones:
  // NVRTC looks up a header in memory by the name that is written, and in no directory.
  std::string with_full_names(const std::string& includer, const std::string& text) const {
    const std::filesystem::path directory = std::filesystem::path(includer).parent_path();
    std::string written;
    for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
      end = std::min(text.find('\n', begin), text.size() - 1) + 1;
      written += with_full_name(directory, text.substr(begin, end - begin));
    }
    return written;
  }

  // Writes full names in all headers.
  void resolve() {
    for (auto& [name, text] : headers_) text = with_full_names(name, std::move(text));
  }

  const std::vector<std::pair<std::string, std::string>>& all() const noexcept { return headers_; }

 private:
  std::string with_full_name(const std::filesystem::path& directory, std::string line) const {
    constexpr std::string_view word = "include";
    const std::size_t hash = line.find_first_not_of(" \t");
    if (hash == line.npos || line[hash] != '#') return line;
    const std::size_t directive = line.find_first_not_of(" \t", hash + 1);
    if (directive == line.npos || line.compare(directive, word.size(), word) != 0) return line;
    const std::size_t begin = line.find_first_not_of(" \t", directive + word.size());
    const std::size_t end = begin == line.npos || line[begin] != '"' ? line.npos : line.find('"', begin + 1);
    if (end == line.npos) return line;
    const std::string name = line.substr(begin + 1, end - begin - 1);
    const std::string full = (directory / name).lexically_normal().generic_string();
    return has(full) ? line.replace(begin + 1, name.size(), full) : line;
  }

  std::vector<std::pair<std::string, std::string>> headers_;
};

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
