// Read the kernels and variables of a cubin: the part of cuda_ext/formats/cubin.py that is needed here, in C++.

#pragma once

#include "../data.hpp"
#include "expressions.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

// Reads integers, little endian, within `bytes`.
inline std::optional<std::uint64_t> little_endian(std::string_view bytes, std::uint64_t offset,
                                                  std::size_t size) noexcept {
  if (offset > bytes.size() || size > bytes.size() - offset) return std::nullopt;
  std::uint64_t value = 0;
  for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[offset + i]);
  return value;
}

// The text that ends with a zero byte at `offset` of `bytes`.
inline std::string_view zero_terminated(std::string_view bytes, std::uint64_t offset) noexcept {
  if (offset >= bytes.size()) return {};
  return bytes.substr(offset, bytes.find('\0', offset) - offset);
}

// The lowered names of what an image holds.
struct ImageContents {
  std::set<std::string, std::less<>> kernels;
  std::set<std::string, std::less<>> variables;
};

// An ELF file of 64 bits, little endian. What is damaged has nothing in it.
class Cubin {
 public:
  explicit Cubin(std::string_view bytes) : bytes_(bytes) {
    if (!begins_with(bytes, {"\x7f"
                             "ELF\2\1",
                             6}))
      return;
    const std::uint64_t table = at(40, 8);
    const std::uint64_t count = at(60, 2);
    for (std::uint64_t i = 0; i < count; i++) {
      const std::uint64_t header = table + i * header_size;
      if (!little_endian(bytes, header, header_size)) return;
      const bool has_data = at(header + 4, 4) != without_data;
      sections_.push_back({at(header, 4), has_data ? slice(at(header + 24, 8), at(header + 32, 8)) : ""});
    }
    const std::uint64_t names = at(62, 2);
    names_ = names < sections_.size() ? sections_[names].data : "";
  }

  ImageContents contents() const {
    ImageContents contents;
    // Kernels are what has a bank of parameters.
    constexpr std::string_view bank = ".nv.constant0.";
    for (const Section& section : sections_) {
      const std::string_view name = name_of(section);
      if (begins_with(name, bank)) contents.kernels.emplace(name.substr(bank.size()));
    }
    const std::string_view symbols = data_of(".symtab");
    const std::string_view texts = data_of(".strtab");
    for (std::uint64_t symbol = 0; little_endian(symbols, symbol + symbol_size - 1, 1);
         symbol += symbol_size) {
      const std::uint64_t type = *little_endian(symbols, symbol + 4, 1) & 0xf;
      const std::uint64_t section = *little_endian(symbols, symbol + 6, 2);
      if ((type != variable && type != relocatable_variable) || section >= sections_.size()) continue;
      const std::string_view place = name_of(sections_[section]);
      if (place == ".nv.constant3" || begins_with(place, ".nv.global")) {
        contents.variables.emplace(zero_terminated(texts, *little_endian(symbols, symbol, 4)));
      }
    }
    return contents;
  }

 private:
  struct Section {
    std::uint64_t name;
    std::string_view data;
  };

  static constexpr std::uint64_t header_size = 64;
  static constexpr std::uint64_t symbol_size = 24;
  static constexpr std::uint64_t without_data = 8;
  static constexpr std::uint64_t variable = 1;
  static constexpr std::uint64_t relocatable_variable = 13;  // CUDA's own

  std::uint64_t at(std::uint64_t offset, std::size_t size) const noexcept {
    return little_endian(bytes_, offset, size).value_or(0);
  }

  std::string_view slice(std::uint64_t offset, std::uint64_t size) const noexcept {
    return offset <= bytes_.size() && size <= bytes_.size() - offset ? bytes_.substr(offset, size) : "";
  }

  std::string_view name_of(const Section& section) const noexcept {
    return zero_terminated(names_, section.name);
  }

  std::string_view data_of(std::string_view name) const noexcept {
    for (const Section& section : sections_) {
      if (name_of(section) == name) return section.data;
    }
    return {};
  }

  std::string_view bytes_;
  std::string_view names_;
  std::vector<Section> sections_;
};

}  // namespace
}  // namespace v1
}  // namespace cuda_ext
