// Text: settings, and messages that are joined from parts.

#pragma once

#include "../interface.hpp"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// A string or an integer, as text. A template for each length of a literal would be slow to compile.
class Part {
 public:
  Part(const char* text) noexcept : text_(text) {}
  Part(std::string_view text) noexcept : text_(text) {}
  Part(const std::string& text) noexcept : text_(text) {}

  template <class Number, std::enable_if_t<std::is_integral_v<Number>, int> = 0>
  Part(Number number) noexcept
      : number_(static_cast<unsigned long long>(number)), kind_(number < Number{} ? negative : positive) {}

  std::string text() const {
    if (kind_ == none) return std::string(text_);
    // std::to_string has a table that gcc makes a unique symbol, with which a shared object is never unloaded.
    char digits[24];
    const auto absolute = kind_ == negative ? 0 - number_ : number_;
    std::snprintf(digits, sizeof digits, "%s%llu", kind_ == negative ? "-" : "", absolute);
    return digits;
  }

 private:
  enum Kind : char { none, positive, negative };

  std::string_view text_;
  unsigned long long number_ = 0;
  Kind kind_ = none;
};

using Parts = std::initializer_list<Part>;

// Joins the `parts`.
inline std::string joined(Parts parts) {
  std::string text;
  for (const Part& part : parts) text += part.text();
  return text;
}

// Returns the environment variable, or nothing if it is not set.
inline std::string setting(const char* name) {
#if defined(_MSC_VER)
#pragma warning(suppress : 4996)  // of getenv; nothing here changes the environment
#endif
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
