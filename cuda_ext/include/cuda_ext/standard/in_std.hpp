// What the headers in this directory share: names of libcu++ are names of std, too. What a program itself
// declares in std comes first. A specialization is written outside of std, as `template <> struct std::hash<Key>`.
#pragma once

#include <cuda/std/cstddef>

namespace cuda {
namespace std {}
}  // namespace cuda
namespace std {
using namespace ::cuda::std;
}
