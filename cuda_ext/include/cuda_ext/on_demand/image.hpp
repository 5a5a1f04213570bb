// Images that a program compiles, links and loads: what their architectures and their bytes say.

#pragma once

#include "../compile.hpp"
#include "../loader/image_parameters.hpp"

#include <algorithm>
#include <cctype>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

using Names = std::vector<std::pair<std::string, std::string>>;

// An architecture in nvcc's spelling: sm_90a is a cubin, compute_90 PTX, and lto_90 LTO-IR. Its number is 0 for
// any other text.
struct Architecture {
  std::string_view kind;
  int number = 0;
  char suffix = '\0';

  explicit Architecture(std::string_view text) : kind(text.substr(0, text.find('_'))) {
    std::string_view rest = text.substr(std::min(kind.size() + 1, text.size()));
    if (!rest.empty() && (rest.back() == 'a' || rest.back() == 'f')) {
      suffix = rest.back();
      rest.remove_suffix(1);
    }
    const bool is_number = rest.size() >= 2 && rest.size() <= 4 && rest[0] != '0' &&
                           rest.find_first_not_of("0123456789") == rest.npos;
    const bool is_kind = kind == "sm" || kind == "compute" || kind == "lto";
    if (is_kind && is_number) number = std::atoi(std::string(rest).c_str());
  }

  // The last of the GPUs that run such an image, by their capabilities; the first one is `number`.
  int last_gpu() const noexcept {
    if (suffix == 'a') return number;
    return kind == "sm" || suffix ? number / 10 * 10 + 9 : INT_MAX;
  }

  std::string target() const { return joined({number, std::string_view(&suffix, suffix != '\0')}); }
};

constexpr const char* architectures = "write one such as sm_90, sm_90a, compute_90 (PTX) or lto_90 (LTO-IR)";

enum class Cubin { none, whole, to_link };

// Says whether `image` is a cubin, all of it, and complete. The driver would read beyond the end of a part.
Cubin kind_of_cubin(const std::string& image) {
  if (image.size() < 0x40 || image.compare(0, 4, "\x7f" "ELF") != 0) return Cubin::none;
  const auto* begin = reinterpret_cast<const unsigned char*>(image.data());
  for (const int table : {0, 1}) {  // of program headers and of section headers, which end the file
    const auto offset = read_at<std::uint64_t>(begin + 0x20 + 8 * table);
    const std::size_t size = std::size_t{read_at<std::uint16_t>(begin + 0x36 + 4 * table)} *
                             read_at<std::uint16_t>(begin + 0x38 + 4 * table);
    if (offset > image.size() || size > image.size() - offset) return Cubin::none;
  }
  return read_at<std::uint16_t>(begin + 0x10) == 1 ? Cubin::to_link : Cubin::whole;
}

// Returns the name of a variable that `lowered` mangles, "z::x" for _ZN1z1xE, without anonymous namespaces and
// the one in which NVRTC puts what is internal; an empty text if it consists of more than names.
std::string name_in_source(std::string_view lowered) {
  if (lowered.substr(0, 2) != "_Z") return std::string(lowered);
  lowered.remove_prefix(2);
  const bool is_nested = lowered.substr(0, 1) == "N";
  if (is_nested) lowered.remove_prefix(1);
  std::string name;
  while (!lowered.empty() && lowered != "E") {
    if (lowered[0] == 'L') lowered.remove_prefix(1);
    const std::size_t digits = std::min(lowered.find_first_not_of("0123456789"), lowered.size());
    const std::size_t length = std::strtoull(std::string(lowered.substr(0, digits)).c_str(), nullptr, 10);
    if (!length || length > lowered.size() - digits) return "";
    const std::string_view part = lowered.substr(digits, length);
    const bool is_internal = part.rfind("_INTERNAL_", 0) == 0 || part.rfind("_GLOBAL__N_", 0) == 0;
    if (!is_internal) name += joined({name.empty() ? "" : "::", part});
    lowered.remove_prefix(digits + length);
  }
  return is_nested == (lowered == "E") ? name : "";
}

// Lists the variables of an image, with their lowered names: those among the requested names, then those that the
// image mentions, as far as C++ mangles their names.
Names variables_in(const Image& image) {
  Names variables;
  const auto add = [&](std::string name, std::string_view lowered) {
    const auto is_known = [&](const auto& known) { return known.first == name; };
    if (name.empty() || std::any_of(variables.begin(), variables.end(), is_known)) return;
    variables.emplace_back(std::move(name), lowered);
  };
  for (const auto& [expression, lowered] : image.names) {
    if (expression[0] == '&') add(expression.substr(1), lowered);
  }
  const std::string_view data = image.data;
  const auto is_of_name = [](unsigned char letter) { return std::isalnum(letter) || letter == '_'; };
  for (std::size_t at = data.find("_Z"); at != data.npos; at = data.find("_Z", at + 1)) {
    if (at && is_of_name(static_cast<unsigned char>(data[at - 1]))) continue;
    std::size_t end = at;
    while (end < data.size() && is_of_name(static_cast<unsigned char>(data[end]))) end++;
    add(name_in_source(data.substr(at, end - at)), data.substr(at, end - at));
  }
  return variables;
}

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
