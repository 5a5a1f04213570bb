// The loaded libraries of a module: which image a kernel is in, and what the driver has of it.

#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "demand.hpp"
#include "driver.hpp"
#include "driver_api.hpp"
#include "failure.hpp"
#include "images.hpp"
#include "loaded_kernel.hpp"
#include "names.hpp"
#include "text.hpp"

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

class LoadedModule;

// A kernel of a module, whether or not it is loaded. With one GPU, `everywhere` is the kernel on it. With
// several it has a handle once that is known to be the same on all of them, and nothing is permitted there:
// that is up to each GPU, and `on_device` has the kernel on each.
struct KernelOfModule final : ModuleKernel {
  LoadedModule* module = nullptr;
  const KernelData* description = nullptr;
  bool is_built = true;  // ahead; if not, it is compiled on demand for each GPU
  LoadedKernel everywhere;
  std::atomic<LoadedKernel*> on_device{nullptr};
  // Of a kernel that is not described, once `is_measured`: the sizes, unless the driver does not know them.
  std::atomic<bool> is_measured{false};
  std::vector<ParameterData> measured;

  KernelOfModule() noexcept = default;
  KernelOfModule(const KernelOfModule&) = delete;
  KernelOfModule& operator=(const KernelOfModule&) = delete;
  ~KernelOfModule() { delete[] on_device.load(std::memory_order_acquire); }

  void hold(int change) noexcept override;
  const KernelData& data() const noexcept override { return *description; }
  Failure launch(const LaunchConfig& config, void** arguments) noexcept override;
  void launch_or_raise(const LaunchConfig& config, void** arguments) override;
  Failure launch_checked(const LaunchConfig& config, void** arguments, const std::size_t* sizes,
                         std::size_t count) noexcept override;
  Failure prepare(const LaunchConfig& config) noexcept override;
  Failure refuse(const Integer* const* given) const noexcept override;
  Result<driver_api::Kernel> handle() noexcept override;
  Result<int> attribute(int which) noexcept override;
  Failure set_attribute(int which, int value) noexcept override;
  Result<int> blocks_per_multiprocessor(int threads, std::size_t shared) noexcept override;
  Result<int> best_block(std::size_t shared) noexcept override;
};

// A unit is loaded when the first of its kernels or symbols is used, and unloaded by the destructor.
class LoadedModule final : public Module {
 public:
  explicit LoadedModule(const ModuleData& data)
      : data_(data), kernels_(new KernelOfModule[data.kernels.size]) {
    for (std::size_t i = 0; i < data.kernels.size; i++) {
      kernels_[i].module = this;
      kernels_[i].description = &data.kernels[i];
    }
  }
  explicit LoadedModule(std::unique_ptr<const OwnedModule> owned) : LoadedModule(owned->data) {
    owned_ = std::move(owned);
  }
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;
  ~LoadedModule();

  void hold(int change) noexcept override {
    if (holders_.fetch_add(change, std::memory_order_acq_rel) + change == 0) delete this;
  }
  const ModuleData& data() const noexcept override { return data_; }
  Failure open_driver() noexcept override { return CUDA_EXT_ABI::open_driver().failure(); }
  Failure load() noexcept override;
  KernelOfModule& kernel(std::size_t index) noexcept override { return kernels_[index]; }
  Result<ModuleKernel*> find_kernel(Text name) noexcept override;
  Result<Symbol> symbol(std::size_t index, Stream stream) noexcept override;
  Result<Symbol> find_symbol(Text name) noexcept override;
  Failure copy(const Symbol& symbol, void* host, bool to_gpu, Stream stream) noexcept override;

  // Compiles the only unit of a module without images for the GPU of the current context.
  Failure prepare() noexcept;

 private:
  // Whether a launch ran in a context that we have seen to.
  enum class Contexts { unknown, entered };

  // What was asked of compilation on demand: a unit, or one instantiation, for GPUs of one capability. It is
  // in the driver once `library` is set, under the lock of all that is loaded.
  struct Demanded {
    std::size_t unit = 0;
    std::string expression;
    int capability = 0;
    std::mutex compiling;
    std::unique_ptr<const CompiledUnit> compiled;  // never changes once it is there
    driver_api::Library library = nullptr;
    std::unique_ptr<Demanded> next;
  };

  // What came of that: one of both, or `unavailable`, which says why nothing is compiled here.
  struct Fulfilled {
    Demanded* demanded = nullptr;
    std::string unavailable;
  };

  // An instantiation that was not built ahead.
  struct Instantiation {
    KernelData data;
    KernelOfModule kernel;
    std::unique_ptr<Instantiation> next;
  };

  // An image, what a kernel or a symbol is called in it, and its compilation, if that was on demand.
  struct Found {
    const char* architecture = nullptr;
    const unsigned char* image = nullptr;
    const char* lowered = nullptr;
    Demanded* demanded = nullptr;
  };

  friend struct KernelOfModule;

  // Asks the driver, which knows them from CUDA 12.4 on, for the sizes of the parameters of a kernel.
  Failure measure(KernelOfModule& kernel) noexcept;
  // What a launch goes through that is the first, or invalid, or not the same on all GPUs; without
  // `arguments`, all but the launch.
  Failure launch_with_care(KernelOfModule& kernel, const LaunchConfig& config, void** arguments) noexcept;
  Failure refused(KernelOfModule& kernel, const LaunchConfig& config, void** arguments,
                  driver_api::Code status, Contexts contexts) noexcept;
  static Failure in_a_launch(const KernelData& kernel, Failure reason) noexcept;

  // Calls `use` with what the driver takes for `kernel` on the GPU of the current context.
  template <class Use>
  auto with_loaded(KernelOfModule& kernel, const Use& use) noexcept;
  static LoadedKernel* known(const CurrentContext& here, KernelOfModule& kernel) noexcept;
  Result<LoadedKernel*> loaded(const CurrentContext& here, KernelOfModule& kernel) noexcept;
  Result<LoadedKernel*> load(const CurrentContext& here, KernelOfModule& kernel) noexcept;
  driver_api::Code load(const Driver& driver, const UnitData& unit, const Found& found,
                        driver_api::Library& library) noexcept;
  bool is_same_on_all_devices(const CurrentContext& here, const KernelData& kernel,
                              const Found& found) const noexcept;
  Failure refusal(const CurrentContext& here, const UnitData& unit, const Found& found, const char* function,
                  driver_api::Code status) const noexcept;

  template <class Entity>
  static const char* lowered_name(const Entity& entity, const UnitData& unit,
                                  const ImageData& image) noexcept;
  Result<Found> find(const CurrentContext& here, const KernelOfModule& kernel) noexcept;
  template <class Entity>
  Result<Found> find(const CurrentContext& here, const Entity& entity, const char* name) noexcept;
  static Found found_in(Demanded& demanded, const char* expression, const char* lowered) noexcept;
  template <class Entity>
  Failure lacking(const CurrentContext& here, const Entity& entity, const char* name,
                  std::string_view architecture) const noexcept;

  KernelOfModule* instantiated(std::string_view expression) noexcept;
  Result<ModuleKernel*> instantiate(std::string_view expression, Demanded& demanded) noexcept;
  Result<Fulfilled> fulfil(const CurrentContext& here, std::size_t unit,
                           std::string_view expression) noexcept;
  Demanded& demanded(std::size_t unit, std::string_view expression, int capability) noexcept;

  std::unique_ptr<const OwnedModule> owned_;  // what `data_` is in, unless it is constant data
  const ModuleData& data_;
  std::atomic<int> holders_{1};
  std::unique_ptr<KernelOfModule[]> kernels_;
  std::mutex loading_;
  // One for each image of each unit; of those that share their data the first is used.
  std::unique_ptr<driver_api::Library[]> libraries_;
  std::unique_ptr<Demanded> demanded_;
  std::unique_ptr<Instantiation> instantiations_;
};

inline std::size_t count_images(const ModuleData& module) noexcept {
  std::size_t count = 0;
  for (const UnitData& unit : module.units) count += unit.images.size;
  return count;
}

CUDA_EXT_COLD inline LoadedModule::~LoadedModule() {
  const Driver* driver = opened_driver.load(std::memory_order_relaxed);
  const auto unload = [&](driver_api::Library library) {
    // A failure cannot be reported here, and at process exit the driver may already be unloaded.
    if (library && !driver->forked()) driver->call.unload_library(library);
  };
  for (std::size_t i = 0; libraries_ && i < count_images(data_); i++) unload(libraries_[i]);
  for (; demanded_; demanded_ = std::move(demanded_->next)) unload(demanded_->library);
  while (instantiations_) instantiations_ = std::move(instantiations_->next);
}

// The kernel on this GPU, if it is loaded.
inline LoadedKernel* LoadedModule::known(const CurrentContext& here, KernelOfModule& kernel) noexcept {
  LoadedKernel* known = &kernel.everywhere;
  if (here.driver().count > 1) {
    known = kernel.on_device.load(std::memory_order_acquire);
    if (known) known += here.device();
  }
  return known && known->known() ? known : nullptr;
}

inline Result<LoadedKernel*> LoadedModule::loaded(const CurrentContext& here,
                                                  KernelOfModule& kernel) noexcept {
  if (LoadedKernel* loaded = known(here, kernel)) return loaded;
  return load(here, kernel);
}

CUDA_EXT_COLD inline Result<LoadedKernel*> LoadedModule::load(const CurrentContext& here,
                                                              KernelOfModule& kernel) noexcept {
  Driver& driver = here.driver();
  // Ask before taking the lock, which may never be released in a forked process.
  if (driver.forked()) return failure(ErrorKind::driver, {after_fork()});
  auto found = find(here, kernel);
  if (!found) return std::move(found).failure();
  const std::lock_guard<std::mutex> lock(loading_);
  if (LoadedKernel* loaded = known(here, kernel)) return loaded;

  const UnitData& unit = data_.units[kernel.description->unit];
  driver_api::Library library = nullptr;
  driver_api::Kernel handle = nullptr;
  const char* function = "cuLibraryLoadData";
  auto status = load(driver, unit, *found, library);
  if (!status) {
    function = "cuLibraryGetKernel";
    status = driver.call.kernel_of_library(&handle, library, found->lowered);
  }
  if (status) return refusal(here, unit, *found, function, status);

  LoadedKernel* loaded = &kernel.everywhere;
  if (driver.count > 1) {
    loaded = kernel.on_device.load(std::memory_order_relaxed);
    if (!loaded) {
      loaded = new LoadedKernel[static_cast<std::size_t>(driver.count)];
      kernel.on_device.store(loaded, std::memory_order_release);
    }
    loaded += here.device();
    const bool is_same = is_same_on_all_devices(here, *kernel.description, *found);
    if (is_same) kernel.everywhere.handle.store(handle, std::memory_order_release);
  }
  loaded->handle.store(handle, std::memory_order_release);
  return loaded;
}

// Loads what `found` is of, if that has not been done; the lock is held.
CUDA_EXT_COLD inline driver_api::Code LoadedModule::load(const Driver& driver, const UnitData& unit,
                                                         const Found& found,
                                                         driver_api::Library& library) noexcept {
  driver_api::Library* known = nullptr;
  if (found.demanded) {
    known = &found.demanded->library;
  } else {
    if (!libraries_) libraries_ = std::make_unique<driver_api::Library[]>(count_images(data_));
    known = libraries_.get();
    for (const UnitData* before = data_.units.begin(); before != &unit; before++)
      known += before->images.size;
    for (const ImageData* sharing = unit.images.begin(); sharing->data != found.image; sharing++) known++;
  }
  if (!*known) {
    const auto status =
        driver.call.load_library(known, found.image, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (status) {
      *known = nullptr;
      return status;
    }
  }
  library = *known;
  return driver_api::success;
}

// What the driver takes for this GPU of the unit that the kernel is in, and its name there.
CUDA_EXT_COLD inline Result<LoadedModule::Found> LoadedModule::find(const CurrentContext& here,
                                                                    const KernelOfModule& kernel) noexcept {
  const KernelData& data = *kernel.description;
  if (kernel.is_built) return find(here, data, data.expression);
  auto fulfilled = fulfil(here, data.unit, data.expression);
  if (!fulfilled) return std::move(fulfilled).failure();
  if (fulfilled->demanded) return found_in(*fulfilled->demanded, data.expression, data.lowered);
  return not_found(data_, data.expression, fulfilled->unavailable);
}

// The same of what was compiled on demand. Compilers lower the names of what was built ahead alike in every
// image.
inline LoadedModule::Found LoadedModule::found_in(Demanded& demanded, const char* expression,
                                                  const char* lowered) noexcept {
  const CompiledUnit& compiled = *demanded.compiled;
  const char* named = compiled.lowered_name(expression);
  return {compiled.architecture.c_str(), reinterpret_cast<const unsigned char*>(compiled.image.data()),
          named ? named : lowered, &demanded};
}

// The same of `entity`, a kernel or a symbol that was built ahead.
template <class Entity>
CUDA_EXT_COLD Result<LoadedModule::Found> LoadedModule::find(const CurrentContext& here, const Entity& entity,
                                                             const char* name) noexcept {
  const Driver& driver = here.driver();
  const int capability = driver.at(here.device()).capability;
  const UnitData& unit = data_.units[entity.unit];
  auto image = image_for(data_, unit, capability, driver.version, "off");
  if (!image) {
    const ErrorKind kind = image.error().kind;
    const bool may_be_made =
        kind == ErrorKind::no_image || kind == ErrorKind::ptx_too_new || kind == ErrorKind::driver_too_old;
    if (!may_be_made || !data_.on_demand) return std::move(image).failure();
    auto fulfilled = fulfil(here, entity.unit, "");
    if (!fulfilled) return std::move(fulfilled).failure();
    if (fulfilled->demanded) return found_in(*fulfilled->demanded, name, entity.lowered);
    return image_for(data_, unit, capability, driver.version, fulfilled->unavailable).failure();
  }
  if (const char* lowered = lowered_name(entity, unit, **image)) {
    return Found{(*image)->architecture, (*image)->data, lowered};
  }
  return lacking(here, entity, name, (*image)->architecture);
}

// The image of that architecture, which this GPU takes, lacks `entity`.
template <class Entity>
CUDA_EXT_COLD Failure LoadedModule::lacking(const CurrentContext& here, const Entity& entity,
                                            const char* name, std::string_view architecture) const noexcept {
  const UnitData& unit = data_.units[entity.unit];
  ListOfNames built;
  for (const ImageData& other : unit.images) {
    if (lowered_name(entity, unit, other)) built.add(other.architecture);
  }
  return failure(ErrorKind::no_image, {data_.name, ": ", name, " is not built for this GPU: device is ",
                                       here.driver().name_of(here.device()), ", whose image, ", architecture,
                                       ", lacks it; built for ", built.empty() ? "none" : built.text()});
}

template <class Entity>
const char* LoadedModule::lowered_name(const Entity& entity, const UnitData& unit,
                                       const ImageData& image) noexcept {
  const auto index = static_cast<std::size_t>(&image - unit.images.begin());
  for (const LoweredName& exception : entity.exceptions) {
    if (exception.image == index) return exception.lowered;
  }
  return entity.lowered;
}

// Whether all GPUs get the same kernel as this one, which gets `found`. What was compiled on demand is the
// same for all of one capability.
CUDA_EXT_COLD inline bool LoadedModule::is_same_on_all_devices(const CurrentContext& here,
                                                               const KernelData& kernel,
                                                               const Found& found) const noexcept {
  const Driver& driver = here.driver();
  const UnitData& unit = data_.units[kernel.unit];
  for (int device = 0; device < driver.count; device++) {
    const int capability = driver.at(device).capability;
    if (capability == driver.at(here.device()).capability) continue;
    if (found.demanded) return false;
    auto image = image_for(data_, unit, capability, driver.version, "");
    if (!image && !data_.on_demand) continue;  // the driver refuses launches there
    if (!image || (*image)->data != found.image) return false;
    const char* lowered = lowered_name(kernel, unit, **image);
    if (!lowered || std::string_view(lowered) != found.lowered) return false;
  }
  return true;
}

// The instantiation of that name expression, which is compiled if it was not built ahead.
CUDA_EXT_COLD inline Result<ModuleKernel*> LoadedModule::find_kernel(Text text) noexcept {
  const std::string_view name(text.data, text.size);
  auto built = CUDA_EXT_ABI::find_kernel(data_, name);
  if (built) return &kernels_[*built];
  const TemplateData* instantiable = find_template(data_, name);
  if (!instantiable) return std::move(built).failure();
  if (*instantiable->obstacle) {
    return failure(ErrorKind::kernel_not_found,
                   {data_.name, ": ", name, " was not built ahead and cannot be compiled on demand: ",
                    instantiable->obstacle, "; add \"", name, "\" to `instantiate` and build again"});
  }
  if (is_jit_off()) return not_found(data_, name, jit_off);

  CurrentContext here;
  if (auto failed = here.enter(nullptr)) return failed;
  if (here.driver().forked()) return failure(ErrorKind::driver, {after_fork()});
  if (KernelOfModule* known = instantiated(name)) return known;
  auto fulfilled = fulfil(here, instantiable->unit, name);
  if (!fulfilled) return std::move(fulfilled).failure();
  if (fulfilled->demanded) return instantiate(name, *fulfilled->demanded);
  return not_found(data_, name, fulfilled->unavailable);
}

// The kernel that was asked for by this expression before, if it was.
CUDA_EXT_COLD inline KernelOfModule* LoadedModule::instantiated(std::string_view expression) noexcept {
  const std::lock_guard<std::mutex> lock(loading_);
  for (Instantiation* known = instantiations_.get(); known; known = known->next.get()) {
    if (known->kernel.description->expression == expression) return &known->kernel;
  }
  return nullptr;
}

CUDA_EXT_COLD inline Result<ModuleKernel*> LoadedModule::instantiate(std::string_view expression,
                                                                     Demanded& demanded) noexcept {
  // Another thread may have come here first; both are of the same.
  if (KernelOfModule* known = instantiated(expression)) return known;
  const char* lowered = demanded.compiled->lowered_name(expression);
  auto made = std::make_unique<Instantiation>();
  made->data = {demanded.expression.c_str(), lowered ? lowered : "", demanded.unit, {}, {}, false};
  made->kernel.module = this;
  made->kernel.description = &made->data;
  made->kernel.is_built = false;
  const std::lock_guard<std::mutex> lock(loading_);
  made->next = std::move(instantiations_);
  instantiations_ = std::move(made);
  return &instantiations_->kernel;
}

CUDA_EXT_COLD inline Failure LoadedModule::prepare() noexcept {
  CurrentContext here;
  if (auto failed = here.enter(nullptr)) return failed;
  if (here.driver().forked()) return failure(ErrorKind::driver, {after_fork()});
  auto fulfilled = fulfil(here, 0, "");
  if (!fulfilled) return std::move(fulfilled).failure();
  if (fulfilled->demanded) return nullptr;
  return failure(ErrorKind::toolchain, {data_.name, " cannot be compiled: ", fulfilled->unavailable});
}

CUDA_EXT_COLD inline Failure LoadedModule::measure(KernelOfModule& kernel) noexcept {
  if (kernel.is_measured.load(std::memory_order_acquire)) return nullptr;
  CurrentContext here;
  if (auto failed = here.enter(nullptr)) return failed;
  auto found = loaded(here, kernel);
  if (!found) return std::move(found).failure();
  const auto ask = here.driver().call.parameter_info;
  const std::lock_guard<std::mutex> lock(loading_);
  if (kernel.is_measured.load(std::memory_order_relaxed)) return nullptr;
  std::vector<ParameterData> measured;
  while (ask) {
    std::size_t offset = 0;
    ParameterData parameter{};
    const auto status = ask((*found)->known(), measured.size(), &offset, &parameter.size);
    if (status == driver_api::invalid_value) break;  // behind the last one
    if (status) return here.driver().failed("cuKernelGetParamInfo", status);
    measured.push_back(parameter);
  }
  kernel.measured = std::move(measured);
  kernel.is_measured.store(true, std::memory_order_release);
  return nullptr;
}

// Compile what is requested, unless it is compiled already. Other requests do not wait.
CUDA_EXT_COLD inline Result<LoadedModule::Fulfilled> LoadedModule::fulfil(
    const CurrentContext& here, std::size_t unit, std::string_view expression) noexcept {
  Fulfilled fulfilled;
  // CUDA_EXT_JIT=0 is for what the program did not ask to be compiled.
  fulfilled.unavailable =
      is_jit_off() && !is_of_program(data_) ? jit_off : data_.on_demand->units[unit].obstacle;
  if (!fulfilled.unavailable.empty()) return fulfilled;
  const int capability = here.driver().at(here.device()).capability;
  Demanded& asked = demanded(unit, expression, capability);
  const std::lock_guard<std::mutex> lock(asked.compiling);
  if (!asked.compiled) {
    Demand demand{data_, unit, asked.expression, capability};
    data_.on_demand->fulfil(demand);
    if (demand.reason) return std::move(demand.reason);
    asked.compiled = std::move(demand.compiled);
    fulfilled.unavailable = std::move(demand.unavailable);
  }
  if (asked.compiled) fulfilled.demanded = &asked;
  return fulfilled;
}

CUDA_EXT_COLD inline LoadedModule::Demanded& LoadedModule::demanded(std::size_t unit,
                                                                    std::string_view expression,
                                                                    int capability) noexcept {
  const std::lock_guard<std::mutex> lock(loading_);
  for (Demanded* known = demanded_.get(); known; known = known->next.get()) {
    if (known->unit == unit && known->expression == expression && known->capability == capability) {
      return *known;
    }
  }
  auto added = std::make_unique<Demanded>();
  added->unit = unit;
  added->expression = expression;
  added->capability = capability;
  added->next = std::move(demanded_);
  demanded_ = std::move(added);
  return *demanded_;
}

// What it means that `function` failed with what was found for this GPU.
CUDA_EXT_COLD inline Failure LoadedModule::refusal(const CurrentContext& here, const UnitData& unit,
                                                   const Found& found, const char* function,
                                                   driver_api::Code status) const noexcept {
  Driver& driver = here.driver();
  const char* jit = data_.on_demand ? "" : "off";
  if (!found.demanded && status == driver_api::no_binary_for_gpu) {
    return no_image(data_, unit, driver.at(here.device()).capability, jit);
  }
  if (!found.demanded && status == driver_api::unsupported_ptx_version) {
    return ptx_too_new(data_, unit, found.architecture, driver.version, jit);
  }
  bool is_fault = false;
  return failure(ErrorKind::load,
                 {data_.name, ": the driver refuses ", unit.sources, " (", found.architecture,
                  found.demanded ? ", compiled on demand" : "", ") on ", driver.name_of(here.device()), ": ",
                  driver.explain(function, status, "", is_fault)},
                 status);
}

// What has no image for this GPU is built for others.
CUDA_EXT_COLD inline Failure LoadedModule::load() noexcept {
  const auto is_settled = [](const auto& result) {
    return result.ok() || result.error().kind == ErrorKind::no_image;
  };
  for (std::size_t i = 0; i < data_.kernels.size; i++) {
    auto handle = kernels_[i].handle();
    if (!is_settled(handle)) return std::move(handle).failure();
  }
  for (std::size_t i = 0; i < data_.symbols.size; i++) {
    auto found = symbol(i, nullptr);
    if (!is_settled(found)) return std::move(found).failure();
  }
  return nullptr;
}

CUDA_EXT_COLD inline Result<Symbol> LoadedModule::find_symbol(Text name) noexcept {
  auto index = CUDA_EXT_ABI::find_symbol(data_, {name.data, name.size});
  if (!index) return std::move(index).failure();
  return symbol(*index, nullptr);
}

CUDA_EXT_COLD inline Result<Symbol> LoadedModule::symbol(std::size_t index, Stream stream) noexcept {
  CurrentContext here;
  if (auto failed = here.enter(stream)) return failed;
  Driver& driver = here.driver();
  if (driver.forked()) return failure(ErrorKind::driver, {after_fork()});
  const SymbolData& data = data_.symbols[index];
  auto found = find(here, data, data.name);
  if (!found) return std::move(found).failure();
  const UnitData& unit = data_.units[data.unit];
  const std::lock_guard<std::mutex> lock(loading_);
  driver_api::Library library = nullptr;
  Symbol symbol;
  const char* function = "cuLibraryLoadData";
  auto status = load(driver, unit, *found, library);
  if (!status) {
    function = "cuLibraryGetGlobal";
    status = driver.call.global_of_library(&symbol.address, &symbol.size, library, found->lowered);
  }
  if (status) return refusal(here, unit, *found, function, status);
  return symbol;
}

CUDA_EXT_COLD inline Failure LoadedModule::copy(const Symbol& symbol, void* host, bool to_gpu,
                                                Stream stream) noexcept {
  CurrentContext here;
  if (auto failed = here.enter(stream)) return failed;
  const auto& call = here.driver().call;
  const auto status = to_gpu ? call.copy_to_gpu(symbol.address, host, symbol.size, stream)
                             : call.copy_from_gpu(host, symbol.address, symbol.size, stream);
  if (!status) return nullptr;
  return here.driver().failed(to_gpu ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync", status);
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
