// The headers of ../standard, written by scripts/make_standard_headers.py.

#pragma once

#include "../loader/failure.hpp"

#include <string>
#include <utility>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

// Lists their names and texts.
std::vector<std::pair<std::string, std::string>> standard_headers() {
  std::vector<std::pair<std::string, std::string>> all{
      {"algorithm", "#include \"in_std.hpp\"\n\n#if __has_include(<cuda/std/algorithm>)\n#include <cuda/std/algorithm>\n#else\n#include <cuda/std/detail/libcxx/include/algorithm>\n#endif\n"},
      {"cfloat", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/cfloat>\n\n#ifndef FLT_MAX  // libcu++ of CUDA 12\n#include <cuda/std/limits>\n#define FLT_MAX (::cuda::std::numeric_limits<float>::max())\n#define FLT_MIN (::cuda::std::numeric_limits<float>::min())\n#define FLT_EPSILON (::cuda::std::numeric_limits<float>::epsilon())\n#define DBL_MAX (::cuda::std::numeric_limits<double>::max())\n#define DBL_MIN (::cuda::std::numeric_limits<double>::min())\n#define DBL_EPSILON (::cuda::std::numeric_limits<double>::epsilon())\n#endif\n"},
      {"cmath", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/cmath>\n#include <cuda/std/limits>\n\n// The constants of <math.h> on most systems.\n#ifndef M_PI\n#define M_E 2.7182818284590452354\n#define M_LOG2E 1.4426950408889634074\n#define M_LOG10E 0.43429448190325182765\n#define M_LN2 0.69314718055994530942\n#define M_LN10 2.30258509299404568402\n#define M_PI 3.14159265358979323846\n#define M_PI_2 1.57079632679489661923\n#define M_PI_4 0.78539816339744830962\n#define M_1_PI 0.31830988618379067154\n#define M_2_PI 0.63661977236758134308\n#define M_2_SQRTPI 1.12837916709551257390\n#define M_SQRT2 1.41421356237309504880\n#define M_SQRT1_2 0.70710678118654752440\n#endif\n#ifndef HUGE_VAL\n#define HUGE_VAL (::cuda::std::numeric_limits<double>::infinity())\n#define HUGE_VALF (::cuda::std::numeric_limits<float>::infinity())\n#endif\n"},
      {"cstddef", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/cstddef>\n\n// NVRTC's is no constant expression.\n#undef offsetof\n#define offsetof(type, member) __builtin_offsetof(type, member)\n"},
      {"cstdio", "#pragma once\n#include \"in_std.hpp\"\n\nnamespace std {\nusing ::printf;\n}\n"},
      {"cstdlib", "#include \"in_std.hpp\"\n\n#if __has_include(<cuda/std/cstdlib>)\n#include <cuda/std/cstdlib>\n#else\n#include <cuda/std/detail/libcxx/include/cstdlib>\n#endif\n"},
      {"cstring", "#pragma once\n#include \"in_std.hpp\"\n\n#if __has_include(<cuda/std/cstring>)\n#include <cuda/std/cstring>\n#else\nnamespace std {\nusing ::memcpy;\nusing ::memset;\n}  // namespace std\n#endif\n"},
      {"ctime", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/ctime>\n\n// As for the host; device code that divides clock() by it expects no other.\n#ifndef CLOCKS_PER_SEC\n#define CLOCKS_PER_SEC 1000000\n#endif\n"},
      {"in_std.hpp", "// What the headers in this directory share: names of libcu++ are names of std, too. What a program itself\n// declares in std comes first. A specialization is written outside of std, as `template <> struct std::hash<Key>`.\n#pragma once\n\n#include <cuda/std/cstddef>\n\nnamespace cuda {\nnamespace std {}\n}  // namespace cuda\nnamespace std {\nusing namespace ::cuda::std;\n}\n"},
      {"numeric", "#include \"in_std.hpp\"\n\n#if __has_include(<cuda/std/numeric>)\n#include <cuda/std/numeric>\n#else\n#include <cuda/std/detail/libcxx/include/numeric>\n#endif\n"}};
  for (const char* name : {
           "array", "atomic", "barrier", "bit", "bitset", "cassert", "charconv", "chrono", "climits", "complex",
           "concepts", "cstdint", "execution", "expected", "functional", "initializer_list", "iterator",
           "latch", "limits", "mdspan", "memory", "numbers", "optional", "random", "ranges", "ratio",
           "semaphore", "source_location", "span", "string_view", "tuple", "type_traits", "utility", "variant"}) {
    all.emplace_back(name, joined({"#include \"in_std.hpp\"\n\n#include <cuda/std/", name, ">\n"}));
  }
  for (const char* name : {
           "assert", "float", "limits", "math", "stddef", "stdint", "stdio", "stdlib", "string", "time"}) {
    all.emplace_back(joined({name, ".h"}), joined({"#include \"c", name, "\"\n"}));
  }
  return all;
}

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
