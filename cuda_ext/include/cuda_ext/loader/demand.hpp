// The interface between the loader and compilation on demand. Each is one source for all modules of a
// project: loader.cpp, and on_demand/on_demand.cpp, which a project without JIT does not have.

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../interface.hpp"

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// An image that was compiled on demand, with the lowered names of the requested expressions.
struct CompiledUnit {
  std::string architecture;
  std::string image;
  std::vector<std::pair<std::string, std::string>> names;

  // Returns the lowered name of `expression`, or nullptr if it is not among the names.
  const char* lowered_name(std::string_view expression) const noexcept {
    for (const auto& [name, lowered] : names) {
      if (name == expression) return lowered.c_str();
    }
    return nullptr;
  }
};

// A request for a unit for the GPUs of one capability: the whole unit, or only the instantiation
// `expression`. fulfil_demand takes the result from the cache, or compiles.
struct Demand {
  const ModuleData& module;
  std::size_t unit = 0;
  std::string expression{};
  int capability = 0;

  // One of these is the result. `unavailable` says why nothing is compiled here.
  std::unique_ptr<const CompiledUnit> compiled{};
  std::string unavailable{};
  Failure reason{};
};

// Returns the library of a source, compiled for the GPU of the current context.
Result<Library> open_source(std::shared_ptr<const ModuleData> data);

// Returns the CUDA version that the driver supports, 1000 * major + 10 * minor; 0 without a driver.
int driver_version();

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
