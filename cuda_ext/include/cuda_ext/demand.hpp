// Requests and results of compilation on demand. The implementation is in on_demand.hpp, which only
// generated sources include.

#pragma once

#include "data.hpp"
#include "error.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {

// An image that was made on demand, described as those that were built ahead are. All lives as long as this.
struct CompiledUnit {
  virtual ~CompiledUnit() = default;

  ImageData image{};
  Array<KernelData> kernels;
  Array<SymbolData> symbols;
};

// A unit for the GPUs of one capability: all of it, or the instantiation `expression` alone.
struct Demand {
  const ModuleData& module;
  std::string expression{};
  std::size_t unit = 0;
  std::size_t source = 0;  // that of the unit's sources which defines the template
  int capability = 0;
  int driver_version = 0;

  // One of these is what comes of it. `unavailable` says why nothing is compiled here.
  std::unique_ptr<const CompiledUnit> compiled{};
  std::string unavailable{};
  Failure reason{};
};

}  // namespace v1
}  // namespace cuda_ext
