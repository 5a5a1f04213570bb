// The images of a module. Select the image that has a kernel or a variable for a GPU, or compile it on
// demand, and load it. Each image is loaded once.

#pragma once

#include <cstddef>
#include <forward_list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "demand.hpp"
#include "driver.hpp"
#include "names.hpp"

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

// A library of the driver, which the destructor unloads, unless it `stays`.
struct LoadedLibrary {
  driver_api::Library handle = nullptr;
  bool stays = false;

  LoadedLibrary() noexcept = default;
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;
  ~LoadedLibrary() {
    // The destructor cannot report a failure. At process exit, the driver may already be unloaded.
    const Driver* driver = opened_driver.load(std::memory_order_relaxed);
    if (handle && !stays && !driver->forked()) driver->call.unload_library(handle);
  }
};

// A kernel or a variable that was built ahead.
struct Entity {
  const char* name;
  const char* lowered;
  std::size_t unit;
  Array<LoweredName> exceptions;

  Entity(const KernelData& kernel) noexcept
      : name(kernel.expression), lowered(kernel.lowered), unit(kernel.unit), exceptions(kernel.exceptions) {}
  Entity(const SymbolData& symbol) noexcept
      : name(symbol.name), lowered(symbol.lowered), unit(symbol.unit), exceptions(symbol.exceptions) {}

  // Returns its name in an image of its unit, or nullptr if the image lacks it.
  const char* lowered_in(std::size_t image) const noexcept {
    for (const LoweredName& exception : exceptions) {
      if (exception.image == image) return exception.lowered;
    }
    return lowered;
  }
};

// A unit, or only the instantiation `expression`, for GPUs of one capability.
struct CompiledOnDemand {
  std::size_t unit = 0;
  std::string expression;
  int capability = 0;
  std::mutex compiling;
  std::unique_ptr<const Image> compiled;  // set once
  LoadedLibrary library;
};

// An image that contains a kernel or a variable, its lowered name, and the library of the loaded image.
struct Location {
  const UnitData* unit = nullptr;
  const char* architecture = nullptr;
  const unsigned char* image = nullptr;
  const char* lowered = nullptr;
  LoadedLibrary* library = nullptr;
  bool is_on_demand = false;
};

class LoadedImages {
 public:
  explicit LoadedImages(const ModuleData& data)
      : data_(data), libraries_(new LoadedLibrary[count_images(data.units.end())]) {}

  // Finds `entity` for the GPU of the current context.
  Result<Location> find(const CurrentContext& here, const Entity& entity);
  // Finds an instantiation that was not built ahead.
  Result<Location> find_instantiation(const CurrentContext& here, const KernelData& kernel);
  // True if all GPUs get the same kernel as this one, which is at `location`.
  bool is_same_on_all_devices(const CurrentContext& here, const Entity& kernel,
                              const Location& location) const;

  // Compiles a unit, or one instantiation of it, unless that is done. Without a result, `unavailable` is the
  // reason.
  Result<CompiledOnDemand*> compile(const CurrentContext& here, std::size_t unit, std::string_view expression,
                                    std::string& unavailable);

  // Loads the image at `location`, and returns its kernel or variable.
  Result<driver_api::Kernel> load_kernel(const CurrentContext& here, const Location& location);
  Result<Symbol> load_symbol(const CurrentContext& here, const Location& location);

  // Returns the error of `function`, which failed with the image at `location`.
  Failure explain(const CurrentContext& here, const Location& location, const char* function,
                  driver_api::Code status) const;

 private:
  // Returns the number of images of all units before `end`.
  std::size_t count_images(const UnitData* end) const noexcept {
    std::size_t count = 0;
    for (const UnitData* unit = data_.units.begin(); unit != end; unit++) count += unit->images.size;
    return count;
  }

  Location locate(CompiledOnDemand& compiled, const char* expression, const char* lowered) const noexcept;
  Failure explain_absence(const CurrentContext& here, const Entity& entity, const char* architecture) const;
  CompiledOnDemand& request(std::size_t unit, std::string_view expression, int capability);
  driver_api::Code load(const CurrentContext& here, const Location& location);

  const ModuleData& data_;
  std::mutex changing_;  // protects the members below
  // One for each image of each unit. If images share their data, the first one is used.
  std::unique_ptr<LoadedLibrary[]> libraries_;
  std::forward_list<CompiledOnDemand> compiled_;
};

CUDA_EXT_COLD inline Result<Location> LoadedImages::find(const CurrentContext& here, const Entity& entity) {
  const Driver& driver = here.driver();
  const int capability = driver.at(here.device()).capability;
  const UnitData& unit = data_.units[entity.unit];
  auto image = image_for(data_, unit, capability, driver.version, "off");
  if (!image) {
    const ErrorKind kind = image.error().kind;
    const bool is_compiled =
        kind == ErrorKind::no_image || kind == ErrorKind::ptx_too_new || kind == ErrorKind::driver_too_old;
    if (!is_compiled || !data_.on_demand) return std::move(image).failure();
    std::string unavailable;
    auto compiled = compile(here, entity.unit, "", unavailable);
    if (!compiled) return std::move(compiled).failure();
    if (*compiled) return locate(**compiled, entity.name, entity.lowered);
    return image_for(data_, unit, capability, driver.version, unavailable).failure();
  }
  const char* lowered = entity.lowered_in(static_cast<std::size_t>(*image - unit.images.begin()));
  if (!lowered) return explain_absence(here, entity, (*image)->architecture);
  LoadedLibrary* library = libraries_.get() + count_images(&unit);
  for (const ImageData* sharing = unit.images.begin(); sharing->data != (*image)->data; sharing++) library++;
  return Location{&unit, (*image)->architecture, (*image)->data, lowered, library};
}

CUDA_EXT_COLD inline Result<Location> LoadedImages::find_instantiation(const CurrentContext& here,
                                                                       const KernelData& kernel) {
  std::string unavailable;
  auto compiled = compile(here, kernel.unit, kernel.expression, unavailable);
  if (!compiled) return std::move(compiled).failure();
  if (*compiled) return locate(**compiled, kernel.expression, kernel.lowered);
  return not_found(data_, kernel.expression, unavailable);
}

// In kernels and variables that were built ahead, all images have the same lowered names.
inline Location LoadedImages::locate(CompiledOnDemand& compiled, const char* expression,
                                     const char* lowered) const noexcept {
  const Image& unit = *compiled.compiled;
  const char* name = unit.lowered_name(expression);
  return {&data_.units[compiled.unit],
          unit.architecture.c_str(),
          reinterpret_cast<const unsigned char*>(unit.data.data()),
          name ? name : lowered,
          &compiled.library,
          true};
}

// The error for an image of this architecture, the one for this GPU, that does not contain `entity`.
CUDA_EXT_COLD inline Failure LoadedImages::explain_absence(const CurrentContext& here, const Entity& entity,
                                                           const char* architecture) const {
  const UnitData& unit = data_.units[entity.unit];
  ListOfNames built;
  for (std::size_t i = 0; i < unit.images.size; i++) {
    if (entity.lowered_in(i)) built.add(unit.images[i].architecture);
  }
  return failure(ErrorKind::no_image,
                 {data_.name, ": ", entity.name, " is not built for this GPU: device is ",
                  here.driver().name_of(here.device()), ", whose image, ", architecture,
                  ", lacks it; built for ", built.empty() ? "none" : built.text()});
}

// Images that were compiled on demand are the same for all GPUs of one capability.
CUDA_EXT_COLD inline bool LoadedImages::is_same_on_all_devices(const CurrentContext& here,
                                                               const Entity& kernel,
                                                               const Location& location) const {
  const Driver& driver = here.driver();
  for (int device = 0; device < driver.count; device++) {
    const int capability = driver.at(device).capability;
    if (capability == driver.at(here.device()).capability) continue;
    if (location.is_on_demand) return false;
    auto image = image_for(data_, *location.unit, capability, driver.version, "");
    if (!image && !data_.on_demand) continue;  // the driver refuses launches there
    if (!image || (*image)->data != location.image) return false;
    const char* lowered = kernel.lowered_in(static_cast<std::size_t>(*image - location.unit->images.begin()));
    if (!lowered || std::string_view(lowered) != location.lowered) return false;
  }
  return true;
}

CUDA_EXT_COLD inline Result<CompiledOnDemand*> LoadedImages::compile(const CurrentContext& here,
                                                                     std::size_t unit,
                                                                     std::string_view expression,
                                                                     std::string& unavailable) {
  // CUDA_EXT_JIT=0 does not apply to compilations that the program itself requests.
  unavailable = is_jit_off() && !is_of_program(data_) ? jit_off : data_.on_demand->units[unit].obstacle;
  if (!unavailable.empty()) return nullptr;
  CompiledOnDemand& requested = request(unit, expression, here.driver().at(here.device()).capability);
  const std::lock_guard<std::mutex> lock(requested.compiling);  // other requests do not wait
  if (requested.compiled) return &requested;
  Demand demand{data_, unit, requested.expression, requested.capability};
  data_.on_demand->fulfil(demand);
  if (demand.reason) return std::move(demand.reason);
  unavailable = std::move(demand.unavailable);
  requested.compiled = std::move(demand.compiled);
  return requested.compiled ? &requested : nullptr;
}

CUDA_EXT_COLD inline CompiledOnDemand& LoadedImages::request(std::size_t unit, std::string_view expression,
                                                             int capability) {
  const std::lock_guard<std::mutex> lock(changing_);
  for (CompiledOnDemand& each : compiled_) {
    if (each.unit == unit && each.expression == expression && each.capability == capability) return each;
  }
  CompiledOnDemand& added = compiled_.emplace_front();
  added.unit = unit;
  added.expression = expression;
  added.capability = capability;
  return added;
}

// True if a kernel of `unit` is a tile kernel, whose block is one thread for the driver. Drivers have crashed
// when libraries of such kernels were unloaded.
CUDA_EXT_COLD inline bool has_tiles(const KernelData& kernel, const ModuleData& module, const UnitData& unit) {
  for (const FixedLaunchData& fixed : kernel.launches) {
    const bool is_tiled = fixed.block[0] * fixed.block[1] * fixed.block[2] == 1;
    if (is_tiled && module.units.begin() + kernel.unit == &unit) return true;
  }
  for (const CandidateData& candidate : kernel.candidates) {
    if (has_tiles(*candidate.kernel, module, unit)) return true;
  }
  return false;
}

// The caller holds the lock.
CUDA_EXT_COLD inline driver_api::Code LoadedImages::load(const CurrentContext& here,
                                                         const Location& location) {
  driver_api::Library& library = location.library->handle;
  if (library) return driver_api::success;
  const auto load_library = here.driver().call.load_library;
  const auto status = load_library(&library, location.image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (status) library = nullptr;
  for (const KernelData& kernel : data_.kernels) {
    if (location.unit && has_tiles(kernel, data_, *location.unit)) location.library->stays = true;
  }
  return status;
}

CUDA_EXT_COLD inline Result<driver_api::Kernel> LoadedImages::load_kernel(const CurrentContext& here,
                                                                          const Location& location) {
  const std::lock_guard<std::mutex> lock(changing_);
  if (const auto status = load(here, location)) return explain(here, location, "cuLibraryLoadData", status);
  driver_api::Kernel kernel = nullptr;
  const auto status =
      here.driver().call.kernel_of_library(&kernel, location.library->handle, location.lowered);
  if (status) return explain(here, location, "cuLibraryGetKernel", status);
  return kernel;
}

CUDA_EXT_COLD inline Result<Symbol> LoadedImages::load_symbol(const CurrentContext& here,
                                                              const Location& location) {
  const std::lock_guard<std::mutex> lock(changing_);
  if (const auto status = load(here, location)) return explain(here, location, "cuLibraryLoadData", status);
  Symbol symbol;
  const auto status = here.driver().call.global_of_library(&symbol.address, &symbol.size,
                                                           location.library->handle, location.lowered);
  if (status) return explain(here, location, "cuLibraryGetGlobal", status);
  return symbol;
}

CUDA_EXT_COLD inline Failure LoadedImages::explain(const CurrentContext& here, const Location& location,
                                                   const char* function, driver_api::Code status) const {
  Driver& driver = here.driver();
  const UnitData& unit = *location.unit;
  const char* jit = data_.on_demand ? "" : "off";
  const int capability = driver.at(here.device()).capability;
  const ImageData* built = location.is_on_demand ? nullptr : select_image(unit, capability);
  if (built && status == driver_api::no_binary_for_gpu) return no_image(data_, unit, capability, jit);
  if (built && status == driver_api::unsupported_ptx_version) {
    return ptx_too_new(data_, unit, *built, driver.version, jit);
  }
  bool is_fault = false;
  return failure(ErrorKind::load,
                 {data_.name, ": the driver refuses ", unit.sources, " (", location.architecture,
                  location.is_on_demand ? ", compiled on demand" : "", ") on ", driver.name_of(here.device()),
                  ": ", driver.explain(function, status, "", is_fault)},
                 status);
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
