// The interface between the loader and compilation on demand. Each is one source for all modules of a
// project: loader.cpp, and on_demand/on_demand.cpp, which a project without JIT does not have.

#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "../compile.hpp"

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// A request for a unit for the GPUs of one capability: the whole unit, or only the instantiation
// `expression`. fulfil_demand takes the result from the cache, or compiles.
struct Demand {
  const ModuleData& module;
  std::size_t unit = 0;
  std::string expression{};
  int capability = 0;

  // One of these is the result. `unavailable` says why nothing is compiled here.
  std::unique_ptr<const Image> compiled{};
  std::string unavailable{};
  Failure reason{};
};

// Opens the module of `data`, with one holder.
Module* open_owned(std::shared_ptr<const ModuleData> data);

// Returns the compute capability of the GPU of the current context, 90 for 9.0.
Result<int> current_capability();

// Returns the CUDA version that the driver supports, 1000 * major + 10 * minor; 0 without a driver.
int driver_version();

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
