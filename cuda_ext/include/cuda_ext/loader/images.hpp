// Select the image of a unit that the driver accepts for a GPU, or explain why there is none.

#pragma once

#include "driver.hpp"
#include "failure.hpp"
#include "names.hpp"
#include "text.hpp"

#include <string_view>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// Returns the image of `unit` that the driver takes for a GPU of `capability`, or nullptr.
CUDA_EXT_COLD inline const ImageData* select_image(const UnitData& unit, int capability) noexcept {
  for (const ImageData& image : unit.images) {
    if (image.first_gpu <= capability && capability <= image.last_gpu) return &image;
  }
  return nullptr;
}

// The error for a `unit` without an image for a GPU of `capability`. `jit` says why it is not compiled on
// demand.
CUDA_EXT_COLD inline Failure no_image(const ModuleData& module, const UnitData& unit, int capability,
                                      std::string_view jit) {
  return failure(ErrorKind::no_image,
                 {module.name, ": ", unit.sources, " has no image for this GPU: device is sm_", capability,
                  "; built for ", unit.built, "; ", is_of_program(module) ? "" : describe_jit(jit),
                  is_of_program(module) ? "compile it for this GPU"
                                        : joined({"add \"sm_", capability, "\" to architectures and build again"})});
}

// The error for the PTX `image`, the only one that fits, which is too new for the driver. `jit` says why
// `unit` is not compiled on demand.
CUDA_EXT_COLD inline Failure ptx_too_new(const ModuleData& module, const UnitData& unit,
                                         const ImageData& image, int driver, std::string_view jit) {
  return failure(ErrorKind::ptx_too_new,
                 {module.name, ": of ", unit.sources, " only PTX (", image.architecture, ") fits this GPU, ",
                  image.reason, ", and the NVIDIA driver reads PTX up to CUDA ", version_text(driver), "; ",
                  describe_jit(jit), "upgrade the driver, or add this GPU to architectures and build again"});
}

// Returns the image of `unit` for a GPU of `capability` under a driver that supports CUDA `driver`. `jit` is
// the reason why none is compiled on demand.
CUDA_EXT_COLD inline Result<const ImageData*> image_for(const ModuleData& module, const UnitData& unit,
                                                        int capability, int driver, std::string_view jit) {
  const ImageData* image = select_image(unit, capability);
  if (!image) return no_image(module, unit, capability, jit);
  if (driver >= image->needed_driver) return image;
  if (image->architecture[0] == 'c') return ptx_too_new(module, unit, *image, driver, jit);
  return failure(ErrorKind::driver_too_old,
                 {module.name, ": the NVIDIA driver supports CUDA up to ", version_text(driver), ", and ",
                  unit.sources, " (", image->architecture, "), ", image->reason, ", needs ",
                  version_text(image->needed_driver), " or newer; upgrade the driver"});
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
