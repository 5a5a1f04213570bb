// Images that a program compiles, links and loads: what their architectures and their bytes say.

#pragma once

#include "../compile.hpp"
#include "../loader/failure.hpp"
#include "../loader/image_parameters.hpp"
#include "../loader/text.hpp"

#include <algorithm>
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

// The sections of a cubin.
class Cubin {
 public:
  explicit Cubin(const std::string& image)
      : begin_(reinterpret_cast<const unsigned char*>(image.data())), size_(image.size()) {
    const bool has_header = size_ >= 0x40 && image.compare(0, 4, "\x7f" "ELF") == 0;
    if (!has_header) return;
    const auto headers = read_at<std::uint64_t>(begin_ + 0x28);
    const std::size_t count = read_at<std::uint16_t>(begin_ + 0x3c);
    if (read_at<std::uint16_t>(begin_ + 0x3a) != header_size || !is_inside(headers, count * header_size)) return;
    for (std::size_t i = 0; i < count; i++) {
      const unsigned char* header = begin_ + headers + i * header_size;
      const auto type = read_at<std::uint32_t>(header + 4);
      // Those that are read: symbols, names, and what NVIDIA writes of kernels.
      const bool is_read = type == 2 || type == 3 || type == 0x70000000;
      if (is_read && !is_inside(number(header, 0x18), number(header, 0x20))) return;
    }
    headers_ = begin_ + headers;
    count_ = count;
  }

  // False if the bytes are none, or not all.
  bool is_whole() const noexcept { return count_ > 0; }
  // True if it has to be linked.
  bool is_relocatable() const noexcept { return read_at<std::uint16_t>(begin_ + 0x10) == 1; }

  // Lists the lowered names of the variables that it defines.
  std::vector<std::string_view> variables() const {
    constexpr std::size_t symbol_size = 24;
    std::vector<std::string_view> found;
    for (std::size_t i = 0; i < count_; i++) {
      const unsigned char* header = headers_ + i * header_size;
      const std::size_t of_names = read_at<std::uint32_t>(header + 0x28);
      if (read_at<std::uint32_t>(header + 4) != 2 || of_names >= count_) continue;
      const unsigned char* names = headers_ + of_names * header_size;
      const std::string_view texts(reinterpret_cast<const char*>(begin_) + number(names, 0x18), number(names, 0x20));
      const unsigned char* symbol = begin_ + number(header, 0x18);
      for (std::size_t j = 0; j < number(header, 0x20) / symbol_size; j++, symbol += symbol_size) {
        const std::size_t name = read_at<std::uint32_t>(symbol);
        const bool is_defined_object = (symbol[4] & 15) == 1 && read_at<std::uint16_t>(symbol + 6) != 0;
        if (is_defined_object && name < texts.size()) found.push_back(texts.substr(name, texts.find('\0', name) - name));
      }
    }
    return found;
  }

 private:
  static constexpr std::size_t header_size = 0x40;  // of a section

  static std::uint64_t number(const unsigned char* header, int offset) { return read_at<std::uint64_t>(header + offset); }
  bool is_inside(std::uint64_t offset, std::uint64_t length) const noexcept {
    return offset <= size_ && length <= size_ - offset;
  }

  const unsigned char* begin_;
  std::size_t size_;
  const unsigned char* headers_ = nullptr;
  std::size_t count_ = 0;
};

// Lists the lowered names of the variables that PTX defines: those of lines such as ".visible .const .align 4 .b8 x[16];".
std::vector<std::string_view> variables_in_ptx(std::string_view ptx) {
  std::vector<std::string_view> found;
  for (std::size_t begin = 0, end = 0; begin < ptx.size(); begin = end + 1) {
    end = std::min(ptx.find('\n', begin), ptx.size());
    std::string_view line = ptx.substr(begin, end - begin);
    for (const std::string_view linkage : {".visible ", ".weak ", ".common "}) {
      if (line.rfind(linkage, 0) == 0) line.remove_prefix(linkage.size());
    }
    const bool is_variable = line.rfind(".global ", 0) == 0 || line.rfind(".const ", 0) == 0;
    const std::string_view declared = line.substr(0, line.find_first_of("[=;"));
    const std::size_t last = declared.find_last_not_of(' ');
    if (!is_variable || last == declared.npos) continue;
    const std::size_t space = declared.rfind(' ', last);
    found.push_back(declared.substr(space + 1, last - space));
  }
  return found;
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
// image defines.
Names variables_in(const Image& image) {
  Names variables;
  const auto add = [&](std::string name, std::string_view lowered) {
    for (const auto& known : variables) {
      if (known.first == name) return;
    }
    if (!name.empty()) variables.emplace_back(std::move(name), lowered);
  };
  for (const auto& [expression, lowered] : image.names) {
    if (expression[0] == '&') add(expression.substr(1), lowered);
  }
  const bool is_ptx = image.architecture[0] == 'c';
  for (const std::string_view lowered : is_ptx ? variables_in_ptx(image.data) : Cubin(image.data).variables()) {
    add(name_in_source(lowered), lowered);
  }
  return variables;
}

// The module of one image, which it owns.
struct ImageModule final : ModuleData {
  ImageModule(Image image, std::string title)
      : image_(std::move(image)), name_(std::move(title)), variables_(variables_in(image_)) {
    const Architecture architecture(image_.architecture);
    for (const auto& [expression, lowered] : image_.names) {
      if (expression[0] != '&') kernels_.push_back({expression.c_str(), lowered.c_str(), 0, {}, {}, false});
    }
    for (const auto& [variable, lowered] : variables_) {
      symbols_.push_back({variable.c_str(), lowered.c_str(), 0, "", 0, {}});
    }
    built_ = image_.architecture[0] == 'c' ? "none; PTX: " + image_.architecture : image_.architecture + "; PTX: none";
    data_ = {image_.architecture.c_str(), architecture.number, architecture.last_gpu(), 0, "which is of a newer CUDA",
             reinterpret_cast<const unsigned char*>(image_.data.c_str()), image_.data.size()};
    unit_ = {name_.c_str(), {&data_, 1}, built_.c_str()};
    static_cast<ModuleData&>(*this) = {open_module, name_.c_str(), "nvrtc", false, {&unit_, 1},
                                       {kernels_.data(), kernels_.size()}, {symbols_.data(), symbols_.size()},
                                       {}, {0, nullptr, nullptr, ""}};
  }

 private:
  const Image image_;
  const std::string name_;
  const Names variables_;
  std::string built_;
  std::vector<KernelData> kernels_;
  std::vector<SymbolData> symbols_;
  ImageData data_{};
  UnitData unit_{};
};

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
