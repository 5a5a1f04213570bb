// Text for messages, put together from its parts.

#pragma once

#include "data.hpp"

#include <string>
#include <string_view>
#include <type_traits>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {

template <class Part>
void append(std::string& text, const Part& part) {
  if constexpr (std::is_integral_v<Part>) {
    text += std::to_string(part);
  } else {
    text += std::string_view(part);
  }
}

// The `parts`, strings and integers, one after the other.
template <class... Parts>
std::string joined(const Parts&... parts) {
  std::string text;
  (append(text, parts), ...);
  return text;
}

}  // namespace v1
}  // namespace cuda_ext
