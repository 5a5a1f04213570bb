// Select the image of a unit that the driver accepts for a GPU, or explain why there is none.
//
// cuda_ext/runtime/driver/images.py does the same.

#pragma once

#include "driver.hpp"
#include "failure.hpp"
#include "names.hpp"
#include "text.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// The target of an image. The `suffix` 'a' restricts it to exactly this GPU, and 'f' to its family; 0 stands
// for no suffix.
struct Architecture {
  enum class Kind { cubin, ptx, ltoir, tile_ir };

  Kind kind = Kind::cubin;
  int number = 0;
  char suffix = 0;

  explicit Architecture(std::string_view text) noexcept {
    kind = text[0] == 's'   ? Kind::cubin
           : text[0] == 'c' ? Kind::ptx
           : text[0] == 't' ? Kind::tile_ir
                            : Kind::ltoir;
    for (const char letter : text.substr(text.find('_') + 1)) {
      if ('0' <= letter && letter <= '9') {
        number = 10 * number + (letter - '0');
      } else {
        suffix = letter;
      }
    }
  }

  bool runs_on(int capability) const noexcept {
    if (kind == Kind::ltoir || number > capability) return false;
    if (suffix == 'a') return number == capability;
    return number / 10 == capability / 10 || (kind != Kind::cubin && !suffix);
  }

  // The image with the highest rank is used: cubins before PTX and Tile IR, then the newest, then the most specific.
  int rank() const noexcept {
    const int specific = suffix == 'a' ? 2 : suffix == 'f' ? 1 : 0;
    return (kind == Kind::cubin ? 1 << 20 : 0) + 4 * number + specific;
  }
};

// Returns the image of `unit` that runs on a GPU of `capability`, or nullptr.
CUDA_EXT_COLD inline const ImageData* select_image(const UnitData& unit, int capability) noexcept {
  const ImageData* selected = nullptr;
  int highest = -1;
  for (const ImageData& image : unit.images) {
    const Architecture architecture(image.architecture);
    if (!architecture.runs_on(capability) || architecture.rank() <= highest) continue;
    highest = architecture.rank();
    selected = &image;
  }
  return selected;
}

// Lists the architectures of all images of one kind.
CUDA_EXT_COLD inline std::string listed(const UnitData& unit, Architecture::Kind kind) {
  std::string text;
  for (const ImageData& image : unit.images) {
    if (Architecture(image.architecture).kind != kind) continue;
    text += text.empty() ? "" : ", ";
    text += image.architecture;
  }
  return text;
}

// The error for a `unit` without an image for a GPU of `capability`. `jit` says why it is not compiled on
// demand.
CUDA_EXT_COLD inline Failure no_image(const ModuleData& module, const UnitData& unit, int capability,
                                      std::string_view jit) {
  std::string cubins = listed(unit, Architecture::Kind::cubin);
  std::string ptx = listed(unit, Architecture::Kind::ptx);
  std::string ltoir = listed(unit, Architecture::Kind::ltoir);
  std::string tile_ir = listed(unit, Architecture::Kind::tile_ir);
  if (cubins.empty()) cubins = "none";
  if (ptx.empty()) ptx = "none";
  if (!ltoir.empty()) ltoir.insert(0, "; LTO-IR, which has to be linked first: ");
  if (!tile_ir.empty()) tile_ir.insert(0, "; Tile IR: ");
  return failure(ErrorKind::no_image,
                 {module.name, ": ", unit.sources, " has no image for this GPU: device is sm_", capability,
                  "; built for ", cubins, "; PTX: ", ptx, ltoir, tile_ir, "; ", describe_jit(jit), "add \"sm_",
                  capability, "\" to architectures and build again"});
}

// The error for PTX for `architecture` that is the only image that fits, and too new for the driver. `jit`
// says why `unit` is not compiled on demand.
CUDA_EXT_COLD inline Failure ptx_too_new(const ModuleData& module, const UnitData& unit,
                                         const char* architecture, int driver, std::string_view jit) {
  const std::string maker =
      unit.ptx_version ? joined({"CUDA ", version_text(unit.ptx_version)}) : "a newer CUDA";
  return failure(ErrorKind::ptx_too_new,
                 {module.name, ": of ", unit.sources, " only PTX (", architecture, ") fits this GPU; ", maker,
                  " made it, and the NVIDIA driver reads PTX up to CUDA ", version_text(driver), "; ",
                  describe_jit(jit), "upgrade the driver, or add this GPU to architectures and build again"});
}

// The error for `image`, described by `what`, which needs a driver that supports CUDA `needed`.
CUDA_EXT_COLD inline Failure image_too_new(const ModuleData& module, const UnitData& unit,
                                           const ImageData& image, int driver, int needed,
                                           const std::string& what) {
  return failure(ErrorKind::driver_too_old,
                 {module.name, ": the NVIDIA driver supports CUDA up to ", version_text(driver), ", and ",
                  unit.sources, " (", image.architecture, "), ", what, ", needs ", version_text(needed),
                  " or newer; upgrade the driver"});
}

// Returns the image of `unit` for a GPU of `capability` under a driver that supports CUDA `driver`. `jit` is
// the reason why none is compiled on demand.
CUDA_EXT_COLD inline Result<const ImageData*> image_for(const ModuleData& module, const UnitData& unit,
                                                        int capability, int driver, std::string_view jit) {
  const ImageData* image = select_image(unit, capability);
  if (!image) return no_image(module, unit, capability, jit);
  const Architecture::Kind kind = Architecture(image->architecture).kind;
  const bool is_ptx = kind == Architecture::Kind::ptx;
  constexpr int first_with_tiles = 13000;
  if (kind == Architecture::Kind::tile_ir && driver < first_with_tiles) {
    return image_too_new(module, unit, *image, driver, first_with_tiles, "which is Tile IR");
  }
  // Every driver runs every cubin of its own major version.
  const int needed = kind == Architecture::Kind::cubin ? unit.version / 1000 * 1000 : 0;
  if (driver < needed) {
    return image_too_new(module, unit, *image, driver, needed, "made by CUDA " + version_text(unit.version));
  }
  constexpr int first_with_zstd = 12040;
  if (unit.zstd && driver < first_with_zstd) {
    return image_too_new(module, unit, *image, driver, first_with_zstd, "compressed with zstd");
  }
  if (is_ptx && driver < unit.ptx_version) return ptx_too_new(module, unit, image->architecture, driver, jit);
  return image;
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
