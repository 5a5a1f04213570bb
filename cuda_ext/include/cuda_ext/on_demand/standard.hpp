// The headers of ../standard, written by scripts/make_standard_headers.py.

#pragma once

#include "../interface.hpp"

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

constexpr SourceData standard_headers[] = {
    {"algorithm", "#pragma once\n#include \"in_std.hpp\"\n\n#if __has_include(<cuda/std/algorithm>)\n#include <cuda/std/algorithm>\n#else\n#include <cuda/std/detail/libcxx/include/algorithm>\n#endif\n"},
    {"array", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/array>\n"},
    {"assert.h", "#pragma once\n#include \"cassert\"\n"},
    {"atomic", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/atomic>\n"},
    {"barrier", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/barrier>\n"},
    {"bit", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/bit>\n"},
    {"bitset", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/bitset>\n"},
    {"cassert", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/cassert>\n"},
    {"cfloat", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/cfloat>\n\n#ifndef FLT_MAX  // libcu++ of CUDA 12\n#include <cuda/std/limits>\n#define FLT_MAX (::cuda::std::numeric_limits<float>::max())\n#define FLT_MIN (::cuda::std::numeric_limits<float>::min())\n#define FLT_EPSILON (::cuda::std::numeric_limits<float>::epsilon())\n#define DBL_MAX (::cuda::std::numeric_limits<double>::max())\n#define DBL_MIN (::cuda::std::numeric_limits<double>::min())\n#define DBL_EPSILON (::cuda::std::numeric_limits<double>::epsilon())\n#endif\n"},
    {"charconv", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/charconv>\n"},
    {"chrono", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/chrono>\n"},
    {"climits", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/climits>\n"},
    {"cmath", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/cmath>\n#include <cuda/std/limits>\n\n// The constants of <math.h> on most systems.\n#ifndef M_PI\n#define M_E 2.7182818284590452354\n#define M_LOG2E 1.4426950408889634074\n#define M_LOG10E 0.43429448190325182765\n#define M_LN2 0.69314718055994530942\n#define M_LN10 2.30258509299404568402\n#define M_PI 3.14159265358979323846\n#define M_PI_2 1.57079632679489661923\n#define M_PI_4 0.78539816339744830962\n#define M_1_PI 0.31830988618379067154\n#define M_2_PI 0.63661977236758134308\n#define M_2_SQRTPI 1.12837916709551257390\n#define M_SQRT2 1.41421356237309504880\n#define M_SQRT1_2 0.70710678118654752440\n#endif\n#ifndef HUGE_VAL\n#define HUGE_VAL (::cuda::std::numeric_limits<double>::infinity())\n#define HUGE_VALF (::cuda::std::numeric_limits<float>::infinity())\n#endif\n"},
    {"complex", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/complex>\n"},
    {"concepts", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/concepts>\n"},
    {"cstddef", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/cstddef>\n\n// NVRTC's is no constant expression.\n#undef offsetof\n#define offsetof(type, member) __builtin_offsetof(type, member)\n"},
    {"cstdint", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/cstdint>\n"},
    {"cstdio", "#pragma once\n#include \"in_std.hpp\"\n\nnamespace std {\nusing ::printf;\n}\n"},
    {"cstdlib", "#pragma once\n#include \"in_std.hpp\"\n\n#if __has_include(<cuda/std/cstdlib>)\n#include <cuda/std/cstdlib>\n#else\n#include <cuda/std/detail/libcxx/include/cstdlib>\n#endif\n"},
    {"cstring", "#pragma once\n#include \"in_std.hpp\"\n\n#if __has_include(<cuda/std/cstring>)\n#include <cuda/std/cstring>\n#else\nnamespace std {\nusing ::memcpy;\nusing ::memset;\n}  // namespace std\n#endif\n"},
    {"ctime", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/ctime>\n\n// As for the host; device code that divides clock() by it expects no other.\n#ifndef CLOCKS_PER_SEC\n#define CLOCKS_PER_SEC 1000000\n#endif\n"},
    {"execution", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/execution>\n"},
    {"expected", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/expected>\n"},
    {"float.h", "#pragma once\n#include \"cfloat\"\n"},
    {"functional", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/functional>\n"},
    {"in_std.hpp", "// What the headers in this directory share: names of libcu++ are names of std, too. What a program itself\n// declares in std comes first. A specialization is written outside of std, as `template <> struct std::hash<Key>`.\n#pragma once\n\n#include <cuda/std/cstddef>\n\nnamespace cuda {\nnamespace std {}\n}  // namespace cuda\nnamespace std {\nusing namespace ::cuda::std;\n}\n"},
    {"initializer_list", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/initializer_list>\n"},
    {"iterator", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/iterator>\n"},
    {"latch", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/latch>\n"},
    {"limits", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/limits>\n"},
    {"limits.h", "#pragma once\n#include \"climits\"\n"},
    {"math.h", "#pragma once\n#include \"cmath\"\n"},
    {"mdspan", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/mdspan>\n"},
    {"memory", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/memory>\n"},
    {"numbers", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/numbers>\n"},
    {"numeric", "#pragma once\n#include \"in_std.hpp\"\n\n#if __has_include(<cuda/std/numeric>)\n#include <cuda/std/numeric>\n#else\n#include <cuda/std/detail/libcxx/include/numeric>\n#endif\n"},
    {"optional", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/optional>\n"},
    {"random", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/random>\n"},
    {"ranges", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/ranges>\n"},
    {"ratio", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/ratio>\n"},
    {"semaphore", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/semaphore>\n"},
    {"source_location", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/source_location>\n"},
    {"span", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/span>\n"},
    {"stddef.h", "#pragma once\n#include \"cstddef\"\n"},
    {"stdint.h", "#pragma once\n#include \"cstdint\"\n"},
    {"stdio.h", "#pragma once\n#include \"cstdio\"\n"},
    {"stdlib.h", "#pragma once\n#include \"cstdlib\"\n"},
    {"string.h", "#pragma once\n#include \"cstring\"\n"},
    {"string_view", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/string_view>\n"},
    {"time.h", "#pragma once\n#include \"ctime\"\n"},
    {"tuple", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/tuple>\n"},
    {"type_traits", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/type_traits>\n"},
    {"utility", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/utility>\n"},
    {"variant", "#pragma once\n#include \"in_std.hpp\"\n\n#include <cuda/std/variant>\n"},
};

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
