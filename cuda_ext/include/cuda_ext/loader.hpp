// The loader of kernels that were compiled into a program: what generated sources include, one for each
// module.
//
// It takes neither CUDA's headers nor its runtime, and no driver before the first launch.

#pragma once

#include "launches.hpp"
#include "loaded_module.hpp"

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// The module of `data`, with one holder.
inline Module* open_module(const ModuleData& data) { return new LoadedModule(data); }

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
