// The entries of DWARF 2 to 4 that describe kernels, variables and types, as compilers write them into PTX.

#pragma once

#include "../data.hpp"
#include "cubin.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

namespace dwarf {

enum Tag : std::uint64_t {
  array_type = 0x01,
  enumeration_type = 0x04,
  formal_parameter = 0x05,
  pointer_type = 0x0f,
  reference_type = 0x10,
  subroutine_type = 0x15,
  typedef_type = 0x16,
  subrange_type = 0x21,
  base_type = 0x24,
  const_type = 0x26,
  subprogram = 0x2e,
  variable = 0x34,
  volatile_type = 0x35,
  restrict_type = 0x37,
};

enum Attribute : std::uint64_t {
  name = 0x03,
  compilation_directory = 0x1b,
  upper_bound = 0x2f,
  count = 0x37,
  declaration_file = 0x3a,
  encoding = 0x3e,
  type = 0x49,
  linkage_name = 0x2007,
};

enum Form : std::uint64_t {
  address = 0x01,
  block2 = 0x03,
  block4 = 0x04,
  data2 = 0x05,
  data4 = 0x06,
  data8 = 0x07,
  string = 0x08,
  block = 0x09,
  block1 = 0x0a,
  data1 = 0x0b,
  flag = 0x0c,
  signed_data = 0x0d,
  string_offset = 0x0e,
  unsigned_data = 0x0f,
  reference_address = 0x10,
  reference1 = 0x11,
  reference2 = 0x12,
  reference4 = 0x13,
  reference8 = 0x14,
  reference_unsigned = 0x15,
  section_offset = 0x17,
  expression = 0x18,
  flag_present = 0x19,
  reference_signature = 0x20,
};

}  // namespace dwarf

// An entry, with what is of interest of its attributes; what it does not have is empty or 0. Entries lie in
// the order of the section: children follow their parent, and `end` is the index behind the last of them.
struct DebugEntry {
  std::uint64_t offset = 0;
  std::uint64_t tag = 0;
  std::size_t end = 0;
  std::string_view name{};
  std::string_view linkage_name{};
  std::string_view directory{};
  std::optional<std::uint64_t> type{};  // the offset of its entry
  std::uint64_t file = 0;
  std::uint64_t encoding = 0;
  std::uint64_t count = 0;
  std::uint64_t upper_bound = 0;
};

// All entries of `info`, whatever bytes these are: reading ends at what is damaged.
class DebugInfo {
 public:
  DebugInfo(std::string_view info, std::string_view abbreviations, std::string_view strings)
      : info_(info), abbreviations_(abbreviations), strings_(strings) {
    while (read_unit()) continue;
  }

  // Of the compilation units.
  const std::vector<std::size_t>& units() const noexcept { return units_; }

  const DebugEntry& operator[](std::size_t index) const noexcept { return entries_[index]; }

  // Calls `visit` with each child of the entry.
  template <class Visit>
  void for_each_child(std::size_t index, Visit visit) const {
    for (std::size_t child = index + 1; child < entries_[index].end; child = entries_[child].end) {
      visit(entries_[child], child);
    }
  }

  // The index of the entry that `entry` has as its type; none where that is void.
  std::optional<std::size_t> type_of(const DebugEntry& entry) const noexcept {
    if (!entry.type) return std::nullopt;
    const auto is_before = [](const DebugEntry& other, std::uint64_t offset) {
      return other.offset < offset;
    };
    const auto found = std::lower_bound(entries_.begin(), entries_.end(), *entry.type, is_before);
    if (found == entries_.end() || found->offset != *entry.type) return std::nullopt;
    return static_cast<std::size_t>(found - entries_.begin());
  }

 private:
  struct Specification {
    std::uint64_t attribute;
    std::uint64_t form;
  };

  // What entries of one code look like.
  struct Abbreviation {
    std::uint64_t tag = 0;
    bool has_children = false;
    std::vector<Specification> attributes;
  };
  using Abbreviations = std::map<std::uint64_t, Abbreviation>;

  // The value of an attribute: a number, or text.
  struct Value {
    std::uint64_t number = 0;
    std::string_view text{};
  };

  // Reads on from `offset`. What lies beyond the end is 0, and `is_within` is false then.
  struct Cursor {
    std::string_view bytes;
    std::uint64_t offset = 0;
    bool is_within = true;

    std::uint64_t integer(std::size_t size) noexcept {
      const auto value = little_endian(bytes, offset, size);
      is_within = is_within && value;
      offset += size;
      return value.value_or(0);
    }

    // LEB128, with the sign extended if it has one.
    std::uint64_t variable(bool is_signed = false) noexcept {
      std::uint64_t value = 0;
      for (unsigned shift = 0; is_within; shift += 7) {
        const std::uint64_t byte = integer(1);
        if (shift < 64) value |= (byte & 0x7f) << shift;
        if (byte & 0x80) continue;
        if (is_signed && byte & 0x40 && shift < 57) value |= ~std::uint64_t{0} << (shift + 7);
        break;
      }
      return value;
    }

    void skip(std::uint64_t size) noexcept {
      is_within = is_within && offset <= bytes.size() && size <= bytes.size() - offset;
      if (is_within) offset += size;
    }

    std::string_view text() noexcept {
      const std::string_view text = zero_terminated(bytes, offset);
      skip(text.size() + 1);
      return text;
    }
  };

  bool read_unit() {
    Cursor cursor{info_, next_unit_};
    const std::uint64_t start = next_unit_;
    const std::uint64_t length = cursor.integer(4);
    if (!cursor.is_within || length > info_.size() - cursor.offset) return false;
    next_unit_ = cursor.offset + length;
    cursor.bytes = info_.substr(0, next_unit_);
    version_ = cursor.integer(2);
    const std::uint64_t abbreviations = cursor.integer(4);
    address_size_ = cursor.integer(1);
    if (!cursor.is_within || version_ < 2 || version_ > 4) return false;
    return read_entries(cursor, start, abbreviations_at(abbreviations));
  }

  bool read_entries(Cursor& cursor, std::uint64_t unit, const Abbreviations& abbreviations) {
    std::vector<std::size_t> parents;
    const std::size_t first = entries_.size();
    while (cursor.offset < next_unit_) {
      const std::uint64_t offset = cursor.offset;
      const std::uint64_t code = cursor.variable();
      if (!code) {
        if (parents.empty()) break;
        entries_[parents.back()].end = entries_.size();
        parents.pop_back();
        continue;
      }
      const auto found = abbreviations.find(code);
      if (found == abbreviations.end()) cursor.is_within = false;
      if (cursor.is_within) add(cursor, offset, unit, found->second);
      if (!cursor.is_within) break;
      if (found->second.has_children) parents.push_back(entries_.size() - 1);
    }
    for (const std::size_t parent : parents) entries_[parent].end = entries_.size();
    if (first < entries_.size()) units_.push_back(first);
    return cursor.is_within;
  }

  void add(Cursor& cursor, std::uint64_t offset, std::uint64_t unit, const Abbreviation& abbreviation) {
    DebugEntry entry;
    entry.offset = offset;
    entry.tag = abbreviation.tag;
    for (const auto [attribute, form] : abbreviation.attributes) {
      const Value value = read(cursor, form, unit);
      if (!cursor.is_within) return;
      switch (attribute) {
        case dwarf::name: entry.name = value.text; break;
        case dwarf::linkage_name: entry.linkage_name = value.text; break;
        case dwarf::compilation_directory: entry.directory = value.text; break;
        case dwarf::type: entry.type = value.number; break;
        case dwarf::declaration_file: entry.file = value.number; break;
        case dwarf::encoding: entry.encoding = value.number; break;
        case dwarf::count: entry.count = value.number; break;
        case dwarf::upper_bound: entry.upper_bound = value.number; break;
        default: break;
      }
    }
    entry.end = entries_.size() + 1;
    entries_.push_back(entry);
  }

  // References within the compilation unit become offsets within the section.
  Value read(Cursor& cursor, std::uint64_t form, std::uint64_t unit) const noexcept {
    Value value;
    switch (form) {
      case dwarf::address: value.number = cursor.integer(address_size_); break;
      case dwarf::block1: cursor.skip(cursor.integer(1)); break;
      case dwarf::block2: cursor.skip(cursor.integer(2)); break;
      case dwarf::block4: cursor.skip(cursor.integer(4)); break;
      case dwarf::block:
      case dwarf::expression: cursor.skip(cursor.variable()); break;
      case dwarf::data1:
      case dwarf::flag: value.number = cursor.integer(1); break;
      case dwarf::data2: value.number = cursor.integer(2); break;
      case dwarf::data4:
      case dwarf::section_offset: value.number = cursor.integer(4); break;
      case dwarf::data8:
      case dwarf::reference_signature: value.number = cursor.integer(8); break;
      case dwarf::signed_data: value.number = cursor.variable(true); break;
      case dwarf::unsigned_data: value.number = cursor.variable(); break;
      case dwarf::string: value.text = cursor.text(); break;
      case dwarf::string_offset: value.text = zero_terminated(strings_, cursor.integer(4)); break;
      case dwarf::reference_address: value.number = cursor.integer(version_ == 2 ? address_size_ : 4); break;
      case dwarf::reference1: value.number = unit + cursor.integer(1); break;
      case dwarf::reference2: value.number = unit + cursor.integer(2); break;
      case dwarf::reference4: value.number = unit + cursor.integer(4); break;
      case dwarf::reference8: value.number = unit + cursor.integer(8); break;
      case dwarf::reference_unsigned: value.number = unit + cursor.variable(); break;
      case dwarf::flag_present: value.number = 1; break;
      default: cursor.is_within = false;
    }
    return value;
  }

  const Abbreviations& abbreviations_at(std::uint64_t offset) {
    const auto [found, is_new] = known_.try_emplace(offset);
    Abbreviations& abbreviations = found->second;
    Cursor cursor{abbreviations_, offset};
    while (is_new) {
      const std::uint64_t code = cursor.variable();
      Abbreviation abbreviation;
      abbreviation.tag = cursor.variable();
      abbreviation.has_children = cursor.integer(1) != 0;
      while (cursor.is_within) {
        const std::uint64_t attribute = cursor.variable();
        const std::uint64_t form = cursor.variable();
        if (!attribute && !form) break;
        abbreviation.attributes.push_back({attribute, form});
      }
      if (!code || !cursor.is_within) break;
      abbreviations.emplace(code, std::move(abbreviation));
    }
    return abbreviations;
  }

  std::string_view info_;
  std::string_view abbreviations_;
  std::string_view strings_;
  std::uint64_t next_unit_ = 0;
  std::uint64_t version_ = 0;
  std::uint64_t address_size_ = 0;
  std::map<std::uint64_t, Abbreviations> known_;
  std::vector<DebugEntry> entries_;
  std::vector<std::size_t> units_;
};

}  // namespace
}  // namespace v1
}  // namespace cuda_ext
