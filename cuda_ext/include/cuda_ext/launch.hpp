// Launch configuration.

#pragma once

#include "data.hpp"
#include "driver_api.hpp"
#include "text.hpp"

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {

template <class T>
inline constexpr bool is_extent = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <class T, class = void>
inline constexpr bool has_extents = false;
template <class T>
inline constexpr bool
    has_extents<T, std::void_t<decltype(std::declval<const T&>().x), decltype(std::declval<const T&>().y),
                               decltype(std::declval<const T&>().z)>> = true;

// Up to three integers of any type, or a dim3. They are kept as they are, so that a negative one is still
// found.
struct CUDA_EXT_VISIBLE Dim {
  long long x;
  long long y;
  long long z;

  template <class X, std::enable_if_t<is_extent<X>, int> = 0>
  CUDA_EXT_HIDDEN constexpr Dim(X width) noexcept : Dim(width, 1, 1) {}

  template <class X, class Y, std::enable_if_t<is_extent<X> && is_extent<Y>, int> = 0>
  CUDA_EXT_HIDDEN constexpr Dim(X width, Y height) noexcept : Dim(width, height, 1) {}

  template <class X, class Y, class Z,
            std::enable_if_t<is_extent<X> && is_extent<Y> && is_extent<Z>, int> = 0>
  CUDA_EXT_HIDDEN constexpr Dim(X width, Y height, Z depth) noexcept
      : x(static_cast<long long>(width)),
        y(static_cast<long long>(height)),
        z(static_cast<long long>(depth)) {}

  template <class T, std::enable_if_t<has_extents<T> && !std::is_same_v<T, Dim>, int> = 0>
  CUDA_EXT_HIDDEN constexpr Dim(const T& extents) noexcept : Dim(extents.x, extents.y, extents.z) {}

  CUDA_EXT_HIDDEN constexpr long long product() const noexcept { return x * y * z; }
};

// `shared` counts the bytes of dynamic shared memory of a block. `cluster` counts blocks, and is {0, 0, 0}
// where there are none. A `cooperative` kernel has all its blocks run at once, so that they can wait for each
// other. A `dependent` one may start before its predecessor in the stream has ended (programmatic dependent
// launch).
struct CUDA_EXT_VISIBLE LaunchConfig {
  Dim grid;
  Dim block;
  Stream stream = nullptr;
  std::size_t shared = 0;
  Dim cluster = {0, 0, 0};
  bool cooperative = false;
  bool dependent = false;
};

constexpr bool has_cluster(const LaunchConfig& config) noexcept {
  return (config.cluster.x | config.cluster.y | config.cluster.z) != 0;
}

// Whether cuLaunchKernel can do it.
constexpr bool is_plain(const LaunchConfig& config) noexcept {
  return !config.cooperative && !config.dependent && !has_cluster(config);
}

// Whether every extent is at least 1 and at most `largest`.
constexpr bool is_within(const Dim& extents, const Dim& largest) noexcept {
  return 1 <= extents.x && extents.x <= largest.x && 1 <= extents.y && extents.y <= largest.y &&
         1 <= extents.z && extents.z <= largest.z;
}

// Whether grid and block are such as every GPU takes, from the first that there are images for.
constexpr bool fits_every_gpu(const LaunchConfig& config) noexcept {
  return is_within(config.grid, {0x7fffffff, 0xffff, 0xffff}) && is_within(config.block, {1024, 1024, 64}) &&
         config.block.product() <= 1024;
}

constexpr bool is_divisible(const Dim& grid, const Dim& cluster) noexcept {
  return is_within(cluster, grid) && grid.x % cluster.x == 0 && grid.y % cluster.y == 0 &&
         grid.z % cluster.z == 0;
}

inline std::string text_of(const Dim& extents) {
  return joined({"(", extents.x, ", ", extents.y, ", ", extents.z, ")"});
}

inline std::string text_of(const LaunchConfig& config) {
  std::string text = joined({"grid ", text_of(config.grid), ", block ", text_of(config.block)});
  if (config.shared) text += joined({", ", config.shared, " bytes of dynamic shared memory"});
  if (has_cluster(config)) text += joined({", clusters of ", text_of(config.cluster)});
  if (config.cooperative) text += ", cooperative";
  if (config.dependent) text += ", dependent";
  return text;
}

}  // namespace v1
}  // namespace cuda_ext
