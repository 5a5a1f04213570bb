// What the loader asks of compilation on demand. The implementation is one source, on_demand/on_demand.cpp,
// for all modules of a program.

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "interface.hpp"

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// An image that was compiled on demand. `names` has each expression and its lowered name, both with a zero
// byte.
struct CompiledUnit {
  std::string architecture;
  std::string image;
  std::string names;

  // The lowered name of `expression`; nullptr if it is not among the names.
  const char* lowered_name(std::string_view expression) const noexcept {
    for (const char* at = names.c_str(); *at;) {
      const char* lowered = at + std::string_view(at).size() + 1;
      if (at == expression) return lowered;
      at = lowered + std::string_view(lowered).size() + 1;
    }
    return nullptr;
  }
};

// A unit for the GPUs of one capability: all of it, or the instantiation `expression` alone. prepare_demand
// normalises the expression, and finds its unit and source; fulfil_demand has the result from the cache, or
// compiles.
struct Demand {
  const ModuleData& module;
  std::string expression{};
  std::size_t unit = 0;
  std::size_t source = 0;  // that of the unit's sources which defines the template
  int capability = 0;
  int driver_version = 0;

  // One of these is the result. `unavailable` says why nothing is compiled here.
  std::unique_ptr<const CompiledUnit> compiled{};
  std::string unavailable{};
  Failure reason{};
};

// A module that owns its data.
struct OwnedModule {
  virtual ~OwnedModule() = default;

  ModuleData data{};
};

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
