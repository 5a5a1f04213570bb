// Launch configurations: the check that every GPU supports them, and their texts in messages.

#pragma once

#include "failure.hpp"
#include "text.hpp"

#include <string>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

constexpr bool has_cluster(const LaunchConfig& config) noexcept {
  return (config.cluster.x | config.cluster.y | config.cluster.z) != 0;
}

// More than the number of kinds of attributes.
inline constexpr std::size_t most_attributes = 64;

// True if cuLaunchKernel can launch it.
constexpr bool is_plain(const LaunchConfig& config) noexcept {
  return !config.cooperative && !config.dependent && !has_cluster(config) && !config.attributes.size;
}

// True if every extent is at least 1 and at most `largest`.
constexpr bool is_within(const Dim& extents, const Dim& largest) noexcept {
  return 1 <= extents.x && extents.x <= largest.x && 1 <= extents.y && extents.y <= largest.y &&
         1 <= extents.z && extents.z <= largest.z;
}

// True if every supported GPU takes the grid and the block.
constexpr bool fits_every_gpu(const LaunchConfig& config) noexcept {
  return is_within(config.grid, {0x7fffffff, 0xffff, 0xffff}) && is_within(config.block, {1024, 1024, 64}) &&
         config.block.product() <= 1024;
}

constexpr bool is_divisible(const Dim& grid, const Dim& cluster) noexcept {
  return is_within(cluster, grid) && grid.x % cluster.x == 0 && grid.y % cluster.y == 0 &&
         grid.z % cluster.z == 0;
}

// Divides `config`, which counts threads, into a grid of blocks.
constexpr LaunchConfig divided(LaunchConfig config, const Dim& block) noexcept {
  const long long size = block.product();
  config.block = block;
  config.grid = config.grid.x > size ? (config.grid.x - 1) / size + 1 : 1;
  config.counts_threads = false;
  return config;
}

CUDA_EXT_COLD inline std::string text_of(const Dim& extents) {
  return joined({"(", extents.x, ", ", extents.y, ", ", extents.z, ")"});
}

CUDA_EXT_COLD inline std::string text_of(const LaunchConfig& config) {
  std::string text = joined({"grid ", text_of(config.grid), ", block ", text_of(config.block)});
  if (config.shared) text += joined({", ", config.shared, " bytes of dynamic shared memory"});
  if (has_cluster(config)) text += joined({", clusters of ", text_of(config.cluster)});
  if (config.cooperative) text += ", cooperative";
  if (config.dependent) text += ", dependent";
  for (const LaunchAttribute& attribute : config.attributes) text += joined({", attribute ", attribute.id});
  return text;
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
