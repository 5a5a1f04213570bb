// Text for messages, put together from its parts.

#pragma once

#include "data.hpp"

#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {

// A string or an integer, as text. Not a template for each length of a literal: that is slow to compile.
class Part {
 public:
  Part(const char* text) : text_(text) {}
  Part(std::string_view text) : text_(text) {}
  Part(const std::string& text) : text_(text) {}

  template <class Number, std::enable_if_t<std::is_integral_v<Number>, int> = 0>
  Part(Number number) : number_(std::to_string(number)) {}

  std::string_view text() const noexcept { return number_.empty() ? text_ : number_; }

 private:
  std::string_view text_;
  std::string number_;
};

using Parts = std::initializer_list<Part>;

// The `parts`, one after the other.
inline std::string joined(Parts parts) {
  std::string text;
  for (const Part& part : parts) text += part.text();
  return text;
}

}  // namespace v1
}  // namespace cuda_ext
