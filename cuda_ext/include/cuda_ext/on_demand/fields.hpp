// Netstrings: a list of fields as bytes, `5:hello`, and `-` for one that is absent.
//
// The format of keys and records, as in the Python package.

#pragma once

#include "../data.hpp"
#include "../text.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

class FieldWriter {
 public:
  FieldWriter& add(std::string_view field) {
    bytes_ += joined({field.size(), ":", field});
    return *this;
  }
  FieldWriter& add(std::size_t number) { return add(std::string_view(std::to_string(number))); }
  FieldWriter& add_absent() {
    bytes_ += '-';
    return *this;
  }

  const std::string& bytes() const noexcept { return bytes_; }

 private:
  std::string bytes_;
};

// A number as FieldWriter writes it.
inline std::optional<std::size_t> decimal(std::string_view text) noexcept {
  if (text.empty() || text.size() > 18 || (text.front() == '0' && text.size() > 1)) return std::nullopt;
  std::size_t number = 0;
  for (const char letter : text) {
    if (letter < '0' || letter > '9') return std::nullopt;
    number = 10 * number + static_cast<std::size_t>(letter - '0');
  }
  return number;
}

// Reads fields out of `bytes`, whatever these are. After what cannot be read, nothing can.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) noexcept : rest_(bytes) {}

  // The next field, which may be absent.
  bool read(std::optional<std::string_view>& field) noexcept {
    field.reset();
    if (!failed_ && !rest_.empty() && rest_.front() == '-') {
      rest_.remove_prefix(1);
      return true;
    }
    std::string_view present;
    if (!read(present)) return false;
    field = present;
    return true;
  }

  // The next field, which has to be there.
  bool read(std::string_view& field) noexcept {
    const std::size_t colon = rest_.substr(0, 20).find(':');
    const auto length = colon == rest_.npos ? std::nullopt : decimal(rest_.substr(0, colon));
    if (failed_ || !length || *length > rest_.size() - colon - 1) {
      failed_ = true;
      return false;
    }
    field = rest_.substr(colon + 1, *length);
    rest_.remove_prefix(colon + 1 + *length);
    return true;
  }

  bool read(std::size_t& number) noexcept {
    std::string_view text;
    const auto value = read(text) ? decimal(text) : std::nullopt;
    failed_ = !value;
    number = value.value_or(0);
    return !failed_;
  }

  // Whether all was read, and nothing follows.
  bool at_end() const noexcept { return !failed_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace
}  // namespace v1
}  // namespace cuda_ext
