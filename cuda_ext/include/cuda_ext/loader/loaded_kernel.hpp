// Launch configurations, and kernels that the driver has loaded, with the limits of their launches.

#pragma once

#include "driver.hpp"

#include <atomic>
#include <climits>
#include <cstddef>
#include <mutex>
#include <string>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

constexpr bool has_cluster(const LaunchConfig& config) noexcept {
  return (config.cluster.x | config.cluster.y | config.cluster.z) != 0;
}

// More than the number of kinds of attributes.
inline constexpr std::size_t most_attributes = 64;

// True if cuLaunchKernel can launch it. One comparison costs less than several.
constexpr bool is_plain(const LaunchConfig& config) noexcept {
  const auto& cluster = config.cluster;
  return !(cluster.x | cluster.y | cluster.z | static_cast<long long>(config.attributes.size) |
           int{config.cooperative} | int{config.dependent} | int{config.counts_threads});
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

// The size of a cluster that all GPUs with clusters support. Kernels must opt in to larger ones.
inline constexpr long long portable_cluster = 8;

// A block's static and dynamic shared memory in bytes. Kernels must opt in to more.
inline constexpr int default_shared_memory = 48 << 10;

// A kernel on one GPU, or on all GPUs if it is the same there.
struct LoadedKernel {
  std::atomic<driver_api::Kernel> handle{nullptr};
  // Known attributes of the kernel: the dynamic shared memory that is allowed at least, whether large
  // clusters are, and the best block without dynamic shared memory.
  std::atomic<std::size_t> shared{0};
  std::atomic<bool> has_large_clusters{false};
  std::atomic<int> best_block{0};
  // Facts about its image, set before the handle: the architecture, and what it fixes for launches.
  const char* architecture = nullptr;
  const FixedLaunchData* fixed = nullptr;

  // The handle; nullptr if the kernel is not loaded.
  driver_api::Kernel get() const noexcept { return handle.load(std::memory_order_acquire); }

  // Returns the block for `config`, which counts threads; 0 if it is not known.
  int block_of(const LaunchConfig& config) const noexcept {
    const bool is_common = !config.shared && !(config.block.x | config.block.y | config.block.z) &&
                           0 <= config.grid.x && config.grid.x <= 0x7fffffff;
    return is_common ? best_block.load(std::memory_order_acquire) : 0;
  }

  // True if a plain `config` is known to be valid for the kernel.
  bool permits_plain(const LaunchConfig& config) const noexcept {
    return fits_every_gpu(config) && config.shared <= shared.load(std::memory_order_acquire);
  }

  // True if any `config` is.
  bool permits(const LaunchConfig& config) const noexcept {
    if (config.counts_threads || config.attributes.size > most_attributes || !permits_plain(config)) return false;
    if (!has_cluster(config)) return true;
    return is_divisible(config.grid, config.cluster) && (config.cluster.product() <= portable_cluster ||
                                                         has_large_clusters.load(std::memory_order_acquire));
  }
};

// The limits of `kernel` on the GPU of the context `here`.
class Limits {
 public:
  using KernelAttribute = driver_api::KernelAttribute;

  Limits(const CurrentContext& here, LoadedKernel& kernel) noexcept
      : driver_(here.driver()), device_(here.device()), kernel_(kernel) {}

  Result<driver_api::Kernel> handle() { return kernel_.get(); }

  // Raises the limits as a launch with `config` requires. The error says what the GPU or the kernel does not
  // support.
  CUDA_EXT_COLD Failure permit(const LaunchConfig& config) {
    if (driver_.forked()) return failure(ErrorKind::driver, {after_fork()});
    if (auto failed = permit_shared(config.shared)) return failed;
    if (auto failed = check_extents(config)) return failed;
    if (config.attributes.size > most_attributes) {
      return refused({"attributes: expected at most ", most_attributes, ", found ", config.attributes.size});
    }
    if (auto failed = has_cluster(config) ? permit_cluster(config) : nullptr) return failed;
    return config.cooperative ? check_cooperative(config) : nullptr;
  }

  // Sets a CUfunction_attribute. The other known attributes are read again.
  CUDA_EXT_COLD Failure set_attribute(KernelAttribute attribute, int value) {
    const std::lock_guard<std::mutex> lock(driver_.limiting);
    if (auto failed = set(attribute, value)) return failed;
    kernel_.shared.store(0, std::memory_order_release);
    kernel_.has_large_clusters.store(false, std::memory_order_release);
    kernel_.best_block.store(0, std::memory_order_release);
    return nullptr;
  }

  CUDA_EXT_COLD Result<int> attribute(KernelAttribute attribute) {
    int value = 0;
    if (auto failed = get(attribute, value)) return failed;
    return value;
  }

  // Returns the block size with the highest occupancy.
  CUDA_EXT_COLD Result<int> best_block(std::size_t shared) {
    int threads = shared ? 0 : kernel_.best_block.load(std::memory_order_relaxed);
    if (threads) return threads;
    if (auto failed = permit_shared(shared)) return failed;
    int blocks = 0;
    if (const auto status = driver_.call.best_block(&blocks, &threads, kernel_.get(), nullptr, shared, 0)) {
      return driver_.failed("cuOccupancyMaxPotentialBlockSize", status);
    }
    if (!shared) kernel_.best_block.store(threads, std::memory_order_release);
    return threads;
  }

  // Returns the number of blocks of `threads` threads that are resident on a multiprocessor at once.
  CUDA_EXT_COLD Result<int> blocks_per_multiprocessor(int threads, std::size_t shared) {
    if (auto failed = permit_shared(shared)) return failed;
    int blocks = 0;
    if (const auto status = driver_.call.blocks_per_multiprocessor(&blocks, kernel_.get(), threads, shared)) {
      return driver_.failed("cuOccupancyMaxActiveBlocksPerMultiprocessor", status);
    }
    return blocks;
  }

  // Divides `config`, which counts threads, into blocks.
  CUDA_EXT_COLD Failure divide(LaunchConfig& config) {
    Dim block = config.block;
    if (!block.x && !block.y && !block.z) {
      auto best = best_block(config.shared);
      if (!best) return std::move(best).failure();
      block = *best;
    }
    const long long most = limit(DeviceAttribute::grid_x);
    if (auto failed = check_within("block", block, largest_block())) return failed;
    const long long threads = config.grid.x;
    if (threads < 0) return refused({"threads: expected a number of threads, found ", threads});
    config = divided(config, block);
    if (config.grid.x <= most) return nullptr;
    return refused({"threads: expected at most ", most * block.product(), " in blocks of ", block.product(),
                    ", found ", threads});
  }

 private:
  using DeviceAttribute = driver_api::DeviceAttribute;

  long long limit(DeviceAttribute attribute) const noexcept { return driver_.attribute(device_, attribute); }

  Dim largest_block() const noexcept {
    return {limit(DeviceAttribute::block_x), limit(DeviceAttribute::block_y), limit(DeviceAttribute::block_z)};
  }

  static Failure refused(Parts parts) { return failure(ErrorKind::argument, parts); }

  CUDA_EXT_COLD Failure permit_shared(std::size_t shared) {
    if (shared == 0) return nullptr;
    int own = 0;
    if (auto failed = get(KernelAttribute::static_shared_memory, own)) return failed;
    const long long most = limit(DeviceAttribute::shared_memory_per_block);
    if (shared > static_cast<unsigned long long>(most - own)) {
      return refused({"shared: expected at most ", most - own, " bytes, found ", shared,
                      "; a block on this GPU, ", driver_.name_of(device_), ", has ", most,
                      ", of which the kernel's own variables take ", own});
    }
    const std::lock_guard<std::mutex> lock(driver_.limiting);
    if (shared <= kernel_.shared.load(std::memory_order_relaxed)) return nullptr;
    int current = 0;
    if (auto failed = get(KernelAttribute::dynamic_shared_memory, current)) return failed;
    const int wanted = static_cast<int>(shared);
    const int by_default = own < default_shared_memory ? default_shared_memory - own : 0;
    int permitted = current < by_default ? current : by_default;
    if (wanted > permitted) {
      // Never reduce a limit that the project itself has set.
      permitted = wanted < current && current <= most - own ? current : wanted;
      if (auto failed = set(KernelAttribute::dynamic_shared_memory, permitted)) return failed;
    }
    kernel_.shared.store(static_cast<std::size_t>(permitted), std::memory_order_release);
    return nullptr;
  }

  CUDA_EXT_COLD Failure check_extents(const LaunchConfig& config) const {
    const Dim largest_grid(limit(DeviceAttribute::grid_x), limit(DeviceAttribute::grid_y),
                           limit(DeviceAttribute::grid_z));
    if (auto failed = check_within("grid", config.grid, largest_grid)) return failed;
    if (auto failed = check_within("block", config.block, largest_block())) return failed;
    int most = 0;
    if (auto failed = get(KernelAttribute::most_threads, most)) return failed;
    const long long threads = config.block.product();
    if (threads <= most) return nullptr;
    const bool is_of_gpu = most == limit(DeviceAttribute::most_threads);
    return refused({"block: expected at most ", most, " threads",
                    is_of_gpu ? "" : ", as the kernel was compiled", ", found ", threads, ": ",
                    text_of(config.block)});
  }

  CUDA_EXT_COLD static Failure check_within(const char* name, const Dim& extents, const Dim& largest) {
    if (is_within(extents, largest)) return nullptr;
    return refused(
        {name, ": expected at least 1 and at most ", text_of(largest), ", found ", text_of(extents)});
  }

  CUDA_EXT_COLD Failure permit_cluster(const LaunchConfig& config) {
    const Dim& cluster = config.cluster;
    const std::string gpu = driver_.name_of(device_);
    if (!limit(DeviceAttribute::cluster_launch)) {
      return refused({"cluster: this GPU, ", gpu, ", has no clusters; clusters require sm_90 or newer"});
    }
    if (auto failed = check_within("cluster", cluster, config.grid)) return failed;
    if (!is_divisible(config.grid, cluster)) {
      return refused(
          {"cluster: expected divisors of the grid ", text_of(config.grid), ", found ", text_of(cluster)});
    }
    const bool is_large = cluster.product() > portable_cluster;
    if (is_large) {
      if (auto failed = set(KernelAttribute::large_clusters, 1)) return failed;
    }
    int most_threads = 0;
    if (auto failed = get(KernelAttribute::most_threads, most_threads)) return failed;
    driver_api::LaunchConfig asked{
        {1, 1, 1}, {static_cast<unsigned>(most_threads), 1, 1}, 0, nullptr, nullptr, 0};
    int most = 0;
    if (const auto status = driver_.call.largest_cluster(&most, kernel_.get(), &asked)) {
      return driver_.failed("cuOccupancyMaxPotentialClusterSize", status);
    }
    if (cluster.product() > most) {
      return refused({"cluster: expected at most ", most, " blocks on this GPU, ", gpu, ", found ",
                      cluster.product(), ": ", text_of(cluster)});
    }
    if (is_large) kernel_.has_large_clusters.store(true, std::memory_order_release);
    return nullptr;
  }

  CUDA_EXT_COLD Failure check_cooperative(const LaunchConfig& config) {
    if (!limit(DeviceAttribute::cooperative_launch)) {
      return refused({"cooperative: this GPU, ", driver_.name_of(device_), ", cannot launch cooperatively"});
    }
    const long long threads = config.block.product();
    auto on_each = blocks_per_multiprocessor(static_cast<int>(threads), config.shared);
    if (!on_each) return std::move(on_each).failure();
    const long long multiprocessors = limit(DeviceAttribute::multiprocessors);
    if (config.grid.product() <= *on_each * multiprocessors) return nullptr;
    return refused({"grid: expected at most ", *on_each * multiprocessors,
                    " blocks, since all cooperative blocks run at once, found ", config.grid.product(),
                    "; that is ", *on_each, " blocks of ", threads, " threads on each of ", multiprocessors,
                    " multiprocessors"});
  }

  Failure get(KernelAttribute attribute, int& value) const {
    const auto status = driver_.call.kernel_attribute(&value, attribute, kernel_.get(), device_);
    return status ? driver_.failed("cuKernelGetAttribute", status) : nullptr;
  }

  Failure set(KernelAttribute attribute, int value) {
    const auto status = driver_.call.set_kernel_attribute(attribute, value, kernel_.get(), device_);
    return status ? driver_.failed("cuKernelSetAttribute", status) : nullptr;
  }

  Driver& driver_;
  int device_;
  LoadedKernel& kernel_;
};

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
