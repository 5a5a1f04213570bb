// The loader of kernels that were compiled into a program: one source for all modules of a project.
//
// It needs neither CUDA's headers nor its runtime, and no driver before the first use. Each module's
// generated source contains only data. Static libraries of modules contain this object, and the linker takes
// it once. If whole archives are linked, this also works, since functions that others call are weak and all
// else is inline.

#include <memory>
#include <utility>

#include "launches.hpp"

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

CUDA_EXT_WEAK Module* open_module(const ModuleData& data) { return new LoadedModule(data); }

CUDA_EXT_WEAK Module* open_owned(std::shared_ptr<const ModuleData> data) { return new LoadedModule(std::move(data)); }

CUDA_EXT_WEAK Result<int> current_capability() {
  CurrentContext here;
  if (auto failed = here.enter(nullptr)) return failed;
  return here.driver().at(here.device()).capability;
}

CUDA_EXT_WEAK int driver_version() {
  auto driver = open_driver();
  return driver ? (*driver)->version : 0;
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
