// Launches to which the image of a kernel adds something: the configuration, further parameters, and the
// condition for these arguments.

#pragma once

#include "loaded_kernel.hpp"

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// True if a launch of the kernel is more than a call of the driver.
inline bool is_derived(const KernelData& kernel) noexcept {
  return kernel.passed.size || kernel.launches.size || kernel.candidates.size;
}

// Returns what the image of this architecture fixes for launches of the kernel, or nullptr.
inline const FixedLaunchData* find_fixed(const KernelData& kernel, const UnitData& unit,
                                         const char* architecture) noexcept {
  for (const FixedLaunchData& fixed : kernel.launches) {
    if (unit.images[fixed.image].architecture == architecture) return &fixed;
  }
  return nullptr;
}

// Adds what the image of `kernel` fixes to `config`, which has the grid, in blocks or clusters.
CUDA_EXT_COLD inline Failure fix(LaunchConfig& config, const FixedLaunchData& fixed, const KernelData& kernel) {
  const auto is_given = [](const Dim& extents) { return extents.x || extents.y || extents.z; };
  const char* wrong = config.counts_threads      ? "threads"
                      : is_given(config.block)   ? "block"
                      : config.shared            ? "shared"
                      : is_given(config.cluster) ? "cluster"
                      : config.cooperative       ? "cooperative"
                      : config.dependent         ? "dependent"
                                                 : nullptr;
  if (wrong) {
    return failure(ErrorKind::argument,
                   {wrong, ": the image of this kernel fixes it; give the grid alone, as a LaunchGrid"});
  }
  const GridFunction& grid_of = config.grid_of;
  if (grid_of.call) config.grid = grid_of.call(grid_of.function, Configuration(kernel.configuration));
  config.block = Dim(fixed.block[0], fixed.block[1], fixed.block[2]);
  config.shared = fixed.shared;
  config.cooperative = fixed.cooperative;
  config.dependent = fixed.dependent;
  if (!fixed.cluster[0]) return nullptr;
  config.cluster = {fixed.cluster[0], fixed.cluster[1], fixed.cluster[2]};
  const auto blocks = [](long long clusters, unsigned size) {
    return clusters > INT_MAX ? clusters : clusters * size;  // no GPU takes so many
  };
  config.grid = {blocks(config.grid.x, fixed.cluster[0]), blocks(config.grid.y, fixed.cluster[1]),
                 blocks(config.grid.z, fixed.cluster[2])};
  return nullptr;
}

// Global memory for one launch, allocated and freed in the order of its stream.
class Scratch {
 public:
  Scratch(const Driver& driver, Stream stream) noexcept : driver_(driver), stream_(stream) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (address_) driver_.call.free_in_stream(address_, stream_);
  }

  // `size` is the number of bytes for each block of `grid`.
  CUDA_EXT_COLD Failure allocate(int device, std::size_t size, const Dim& grid) {
    if (driver_.attribute(device, driver_api::DeviceAttribute::memory_pools) != 1) {
      return failure(ErrorKind::launch,
                     {"this kernel takes ", size, " bytes of memory for each block, which a launch ",
                      "allocates in the order of its stream, and this GPU, ", driver_.name_of(device),
                      ", has no memory pools for that; upgrade the driver, or use another GPU"});
    }
    const auto blocks = static_cast<unsigned long long>(grid.x) * static_cast<unsigned long long>(grid.y) *
                        static_cast<unsigned long long>(grid.z);
    if (blocks > static_cast<unsigned long long>(LLONG_MAX) / size) {
      return failure(ErrorKind::argument, {"grid: expected fewer blocks, each with ", size,
                                           " bytes of memory, found ", text_of(grid)});
    }
    status = driver_.call.allocate_in_stream(&address_, static_cast<std::size_t>(blocks) * size, stream_);
    if (status) address_ = nullptr;
    return nullptr;
  }

  void* const* address() const noexcept { return &address_; }

  driver_api::Code status = driver_api::success;  // of the allocation

 private:
  const Driver& driver_;
  Stream stream_;
  void* address_ = nullptr;
};

// The addresses of all parameters of a kernel, which live as long as this object; `arguments` are those of a
// call.
class PassedParameters {
 public:
  PassedParameters(const KernelData& kernel, void** arguments, const Scratch& scratch) {
    if (kernel.passed.size > most_) many_.resize(kernel.passed.size);
    void** address = addresses();
    for (const PassedData& each : kernel.passed) {
      *address++ = each.argument >= 0 ? arguments[each.argument]
                   : each.zeros       ? find_zeros(each.zeros)
                                      : const_cast<void**>(scratch.address());
    }
  }

  void** addresses() noexcept { return many_.empty() ? few_ : many_.data(); }

 private:
  void* find_zeros(std::size_t size) {
    static unsigned char common[64] = {};  // never written
    if (size <= sizeof common) return common;
    zeros_.resize(all_);
    return zeros_.data();
  }

  static constexpr std::size_t most_ = 64;    // parameters whose addresses need no heap memory
  static constexpr std::size_t all_ = 32764;  // the largest size of all parameters in bytes
  void* few_[most_];
  std::vector<void*> many_;
  std::vector<unsigned char> zeros_;
};

// Returns the bits of an argument, an integer of `size` bytes or an address, as 64 bits. Extents that a kernel
// takes with 128 bits have no more.
inline unsigned long long read_number(const void* argument, std::size_t size, bool is_signed) noexcept {
  unsigned long long bits = 0;
  if (size > sizeof bits) size = sizeof bits;
  std::memcpy(&bits, argument, size);  // little-endian, like every machine with a GPU
  const unsigned unused = 64 - 8 * static_cast<unsigned>(size);
  if (is_signed && unused && bits >> (63 - unused)) bits |= ~0ull << (64 - unused);
  return bits;
}

// True if the comparison `term` holds for an integer of these bits.
inline bool holds(const TermData& term, unsigned long long bits) noexcept {
  const bool is_beyond = bits > LLONG_MAX;  // negative, or larger than any number of a term
  if (term.modulus) {
    const auto modulus = static_cast<unsigned long long>(term.modulus);
    const unsigned long long rest = (is_beyond && term.is_signed ? 0 - bits : bits) % modulus;
    bits = is_beyond && term.is_signed && rest ? modulus - rest : rest;  // as in Python
  }
  const auto value = static_cast<long long>(bits);
  const bool is_greater = value > term.number || (is_beyond && !term.is_signed && !term.modulus);
  const unsigned outcome = is_greater ? 4 : value == term.number ? 2 : 1;
  return (term.outcomes & outcome) != 0;
}

// True if the condition of `candidate` holds for these arguments, on a GPU whose image has this `architecture`.
// A target is a part of that, or the name of the GPU behind "=".
inline bool holds(const CandidateData& candidate, void* const* arguments, const Driver::Device& device,
                  std::string_view architecture) noexcept {
  for (const TermData& term : candidate.terms) {
    if (term.target && *term.target == '=') {
      if (std::string_view{device.name} != term.target + 1) return false;
      continue;
    }
    if (term.target) {
      if (architecture.substr(architecture.find('_') + 1) != term.target) return false;
      continue;
    }
    auto bits = static_cast<unsigned long long>(device.capability);
    if (term.argument >= 0) {
      const std::size_t size = candidate.kernel->parameters[static_cast<std::size_t>(term.argument)].size;
      bits = read_number(arguments[term.argument], size, term.is_signed);
    }
    if (!holds(term, bits)) return false;
  }
  return true;
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
