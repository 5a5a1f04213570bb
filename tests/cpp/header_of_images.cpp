// Calls of kernels whose types are not alike on all hosts: tensor maps, which cuda.h declares, and long.

#include <pkg/kernels.h>

#include "takes.hpp"

// As cuda.h has it.
struct alignas(64) CUtensorMap_st {
  unsigned long long opaque[16];
};
using CUtensorMap = CUtensorMap_st;

namespace {

namespace k = pkg::kernels;

static_assert(std::is_invocable_v<decltype(k::by_map), cuda_ext::LaunchGrid, CUtensorMap, float*>);
static_assert(std::is_invocable_v<decltype(k::by_map), cuda_ext::LaunchGrid, const CUtensorMap&, float*>);
static_assert(!std::is_invocable_v<decltype(k::by_map), cuda_ext::LaunchGrid, CUtensorMap*, float*>);
static_assert(!std::is_invocable_v<decltype(k::by_map), cuda_ext::LaunchGrid, const float*, float*>,
              "a program makes the map itself");

[[maybe_unused]] void call(const CUtensorMap& map, float* y) {
  static_cast<void>(k::by_map.try_launch({4}, map, y));
}

// Device code of Linux has a long of 64 bits; programs for Windows have one of 32.
static_assert(takes<long long*, long long>(k::wide));
static_assert(takes<long*, long>(k::wide) == (sizeof(long) == 8));
static_assert(takes<long long*, int>(k::wide) && !takes<int*, int>(k::wide));

}  // namespace
