// Read the sizes of a kernel's parameters from an image that was compiled while the program runs.
//
// Drivers since CUDA 12.4 return them one by one. Before 13.2, only an error marks their end, which tools
// such as compute-sanitizer would report.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "../interface.hpp"
#include "failure.hpp"

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

template <class Number>
Number read_at(const unsigned char* place) noexcept {
  Number number;
  std::memcpy(&number, place, sizeof number);  // little-endian, like every machine with a GPU
  return number;
}

// Reads the sizes from the kernel's section .nv.info. Its attributes have a format byte, an attribute byte
// and 16 bits, which are the size of a following value if the format is 4.
CUDA_EXT_COLD inline std::vector<ParameterData> parameters_in_cubin(const unsigned char* cubin,
                                                                    std::string_view kernel) {
  std::vector<ParameterData> found;
  const std::string wanted = joined({".nv.info.", kernel});
  const std::size_t size = read_at<std::uint16_t>(cubin + 0x3a);  // the size of a section header
  const unsigned char* headers = cubin + read_at<std::uint64_t>(cubin + 0x28);
  const unsigned char* of_names = headers + size * read_at<std::uint16_t>(cubin + 0x3e);
  const char* names = reinterpret_cast<const char*>(cubin) + read_at<std::uint64_t>(of_names + 0x18);
  for (unsigned i = 0; i < read_at<std::uint16_t>(cubin + 0x3c); i++) {
    const unsigned char* header = headers + size * i;
    if (names + read_at<std::uint32_t>(header) != wanted) continue;
    const unsigned char* at = cubin + read_at<std::uint64_t>(header + 0x18);
    const unsigned char* end = at + read_at<std::uint64_t>(header + 0x20);
    for (; at + 4 <= end; at += 4 + (at[0] == 4 ? read_at<std::uint16_t>(at + 2) : 0)) {
      const bool is_large = at[1] == 0x45;  // a kernel with many bytes of parameters
      if (at[0] != 4 || (at[1] != 0x17 && !is_large)) continue;
      const std::size_t ordinal = read_at<std::uint16_t>(at + 8);
      const std::uint32_t packed = read_at<std::uint32_t>(at + 12);
      if (found.size() <= ordinal) found.resize(ordinal + 1);
      found[ordinal].size = is_large ? packed & 0xffffff : packed >> 18;
    }
  }
  return found;
}

// Reads the sizes from the declaration of the kernel, such as ".param .u64 x, .param .align 8 .b8 y[16]".
CUDA_EXT_COLD inline std::vector<ParameterData> parameters_in_ptx(std::string_view ptx, std::string_view kernel) {
  std::vector<ParameterData> found;
  const std::size_t begin = ptx.find(joined({".entry ", kernel, "("}));
  if (begin == std::string_view::npos) return found;
  std::string_view rest = ptx.substr(begin, ptx.find(')', begin) - begin);
  for (std::size_t at = rest.find(".param"); at != std::string_view::npos; at = rest.find(".param")) {
    rest.remove_prefix(at + std::strlen(".param"));
    const std::string declaration(rest.substr(0, rest.find(',')));
    unsigned long bits = 0;
    for (std::size_t dot = declaration.find('.'); dot != std::string::npos; dot = declaration.find('.', dot + 1)) {
      const std::string_view type = std::string_view(declaration).substr(dot + 1, 2);
      const bool is_number = type.size() == 2 && std::strchr("bsuf", type[0]) && '0' < type[1] && type[1] <= '9';
      if (is_number) bits = std::strtoul(&declaration[dot + 2], nullptr, 10);
    }
    const std::size_t bracket = declaration.find('[');
    const unsigned long count =
        bracket == std::string::npos ? 1 : std::strtoul(&declaration[bracket + 1], nullptr, 10);
    ParameterData parameter{};
    parameter.size = bits / 8 * count;
    found.push_back(parameter);
  }
  return found;
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
