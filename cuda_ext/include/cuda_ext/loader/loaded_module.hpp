// A module: its kernels, which are loaded at their first use, and its variables.

#pragma once

#include <atomic>
#include <cstddef>
#include <forward_list>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "derived_launches.hpp"
#include "image_parameters.hpp"
#include "loaded_images.hpp"

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

class LoadedModule;

// A kernel of a module, loaded or not. With one GPU, `everywhere` is the kernel on it. With several GPUs,
// `everywhere` has a handle if the handle is the same on all of them, and the limits that every GPU has;
// `on_device` are the kernels on each GPU. A kernel with derived launches has only these.
struct KernelOfModule final : ModuleKernel {
  LoadedModule* module = nullptr;
  const KernelData* description = nullptr;
  bool is_built = true;  // if false, it is compiled on demand for each GPU
  LoadedKernel everywhere;
  std::atomic<LoadedKernel*> on_device{nullptr};
  // The sizes of the parameters of a kernel without a description, if they are known.
  std::atomic<bool> is_measured{false};
  std::vector<ParameterData> measured;
  std::unique_ptr<KernelOfModule[]> candidates;

  KernelOfModule() noexcept = default;
  KernelOfModule(const KernelOfModule&) = delete;
  KernelOfModule& operator=(const KernelOfModule&) = delete;
  ~KernelOfModule() { delete[] on_device.load(std::memory_order_acquire); }

  void describe(LoadedModule& owner, const KernelData& data) {
    module = &owner;
    description = &data;
    const auto& others = data.candidates;
    if (others.size) candidates.reset(new KernelOfModule[others.size]);
    for (std::size_t i = 0; i < others.size; i++) candidates[i].describe(owner, *others[i].kernel);
  }

  void hold(int change) noexcept override;
  const KernelData& data() const noexcept override { return *description; }
  Failure launch(const LaunchConfig& config, void** arguments) noexcept override;
  void launch_or_raise(const LaunchConfig& config, void** arguments) override;
  Failure prepare(const LaunchConfig& config) noexcept override;
  Failure check(Stream stream, const std::size_t* sizes, std::size_t count) noexcept override;
  Failure refuse(const Integer* const* given) const noexcept override;
  Result<driver_api::Kernel> handle() noexcept override;
  Result<int> attribute(int which) noexcept override;
  Failure set_attribute(int which, int value) noexcept override;
  Result<int> blocks_per_multiprocessor(int threads, std::size_t shared) noexcept override;
  Result<int> best_block(std::size_t shared) noexcept override;

  // Launches the kernel if nothing else is to be done first. Returns the driver's code, or `not_started`.
  driver_api::Code try_launch(const LaunchConfig& config, void** arguments) noexcept;
  // Does this with attributes, or with a number of threads.
  driver_api::Code launch_uncommon(const LaunchConfig& config, void** arguments) noexcept;
  // Completes a launch with this code, which is not done, or explains why the driver refused it.
  Failure complete(driver_api::Code code, const LaunchConfig& config, void** arguments) noexcept;
  static constexpr driver_api::Code not_started = -1;
};

class LoadedModule final : public Module {
 public:
  explicit LoadedModule(const ModuleData& data)
      : data_(data), images_(data), kernels_(new KernelOfModule[data.kernels.size]) {
    for (std::size_t i = 0; i < data.kernels.size; i++) kernels_[i].describe(*this, data.kernels[i]);
  }
  explicit LoadedModule(std::shared_ptr<const ModuleData> owned) : LoadedModule(*owned) {
    owned_ = std::move(owned);
  }

  void hold(int change) noexcept override {
    if (holders_.fetch_add(change, std::memory_order_acq_rel) + change == 0) delete this;
  }
  const ModuleData& data() const noexcept override { return data_; }
  Failure open_driver() noexcept override {
    return guarded([] { return CUDA_EXT_ABI::open_driver().failure(); });
  }
  Failure load() noexcept override;
  KernelOfModule& kernel(std::size_t index) noexcept override { return kernels_[index]; }
  Result<ModuleKernel*> find_kernel(Text name) noexcept override;
  Result<Symbol> symbol(std::size_t index, Stream stream) noexcept override;
  Result<Symbol> find_symbol(Text name, Stream stream) noexcept override;
  Failure copy(const Symbol& symbol, Text name, void* host, std::size_t size, bool to_gpu,
               Stream stream) noexcept override;

  // Loads a kernel, raises its limits as necessary, and launches it if there are `arguments`.
  Failure load_and_launch(KernelOfModule& kernel, const LaunchConfig& config, void** arguments);
  // Does this for the first candidate for this GPU and these arguments, or without arguments for all
  // candidates.
  Failure launch_candidate(const CurrentContext& here, KernelOfModule& kernel, const LaunchConfig& config,
                           void** arguments);
  Failure launch_loaded(const CurrentContext& here, KernelOfModule& kernel, LoadedKernel& loaded,
                        LaunchConfig config, void** arguments);
  // Returns the error for a launch to which the driver returned `status`.
  Failure explain_launch(KernelOfModule& kernel, LaunchConfig config, driver_api::Code status);
  // Reads the sizes of the parameters of a kernel that is launched in `stream` from its image.
  Failure measure(KernelOfModule& kernel, Stream stream);
  // Calls a function of the limits of `kernel` on the GPU of the current context, and returns its result.
  template <class Returned, class... Parameters, class... Arguments>
  Returned ask(KernelOfModule& kernel, Returned (Limits::*function)(Parameters...), Arguments... arguments) noexcept;

 private:
  // An instantiation that was not built ahead.
  struct Instantiation {
    KernelData data;
    KernelOfModule kernel;
  };

  static bool is_on_device(const CurrentContext& here, const KernelOfModule& kernel) noexcept {
    return here.driver().count > 1 || is_derived(*kernel.description);
  }
  static LoadedKernel* get_loaded(const CurrentContext& here, KernelOfModule& kernel) noexcept;
  Result<LoadedKernel*> load(const CurrentContext& here, KernelOfModule& kernel);
  Result<Location> find(const CurrentContext& here, const KernelOfModule& kernel);
  Result<Symbol> load(const SymbolData& variable, Stream stream);
  KernelOfModule* instantiate(std::string_view expression, const CompiledOnDemand* compiled);

  std::shared_ptr<const ModuleData> owned_;  // `data_`, unless it is constant
  const ModuleData& data_;
  LoadedImages images_;
  std::atomic<int> holders_{1};
  std::mutex loading_;  // protects kernels, and the members below
  std::unique_ptr<KernelOfModule[]> kernels_;
  std::forward_list<Instantiation> instantiations_;
};

// Returns the kernel on this GPU, or nullptr if it is not loaded.
inline LoadedKernel* LoadedModule::get_loaded(const CurrentContext& here, KernelOfModule& kernel) noexcept {
  LoadedKernel* loaded = &kernel.everywhere;
  if (is_on_device(here, kernel)) {
    loaded = kernel.on_device.load(std::memory_order_acquire);
    if (loaded) loaded += here.device();
  }
  return loaded && loaded->get() ? loaded : nullptr;
}

// Returns the kernel on this GPU, and loads it if necessary.
CUDA_EXT_COLD inline Result<LoadedKernel*> LoadedModule::load(const CurrentContext& here,
                                                              KernelOfModule& kernel) {
  if (LoadedKernel* loaded = get_loaded(here, kernel)) return loaded;
  Driver& driver = here.driver();
  // Test this before the lock, which is never released in a process that was forked while it was held.
  if (driver.forked()) return failure(ErrorKind::driver, {after_fork()});
  auto location = find(here, kernel);
  if (!location) return std::move(location).failure();
  const std::lock_guard<std::mutex> lock(loading_);
  if (LoadedKernel* loaded = get_loaded(here, kernel)) return loaded;
  auto handle = images_.load_kernel(here, *location);
  if (!handle) return std::move(handle).failure();
  LoadedKernel* loaded = &kernel.everywhere;
  if (is_on_device(here, kernel)) {
    loaded = kernel.on_device.load(std::memory_order_relaxed);
    if (!loaded) {
      loaded = new LoadedKernel[static_cast<std::size_t>(driver.count)];
      kernel.on_device.store(loaded, std::memory_order_release);
    }
    loaded += here.device();
    const KernelData& data = *kernel.description;
    const bool is_same = !is_derived(data) && images_.is_same_on_all_devices(here, data, *location);
    if (is_same) kernel.everywhere.handle.store(*handle, std::memory_order_release);
  }
  loaded->architecture = location->architecture;
  loaded->fixed = find_fixed(*kernel.description, *location->unit, location->architecture);
  loaded->handle.store(*handle, std::memory_order_release);
  return loaded;
}

// Finds the image of the kernel for this GPU.
CUDA_EXT_COLD inline Result<Location> LoadedModule::find(const CurrentContext& here,
                                                         const KernelOfModule& kernel) {
  const KernelData& data = *kernel.description;
  return kernel.is_built ? images_.find(here, data) : images_.find_instantiation(here, data);
}

// Compiles an instantiation that was not built ahead.
CUDA_EXT_COLD inline Result<ModuleKernel*> LoadedModule::find_kernel(Text text) noexcept {
  return guarded([&]() -> Result<ModuleKernel*> {
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
    if (KernelOfModule* known = instantiate(name, nullptr)) return known;
    std::string unavailable;
    auto compiled = images_.compile(here, instantiable->unit, name, unavailable);
    if (!compiled) return std::move(compiled).failure();
    if (*compiled) return instantiate(name, *compiled);
    return not_found(data_, name, unavailable);
  });
}

// Returns the instantiation, which is added if it was `compiled` now; nullptr if it is unknown.
CUDA_EXT_COLD inline KernelOfModule* LoadedModule::instantiate(std::string_view expression,
                                                               const CompiledOnDemand* compiled) {
  const std::lock_guard<std::mutex> lock(loading_);
  for (Instantiation& each : instantiations_) {
    if (each.data.expression == expression) return &each.kernel;
  }
  if (!compiled) return nullptr;
  const char* lowered = compiled->compiled->lowered_name(expression);
  Instantiation& added = instantiations_.emplace_front();
  added.data = {compiled->expression.c_str(), lowered ? lowered : "", compiled->unit, {}, {}, false};
  added.kernel.module = this;
  added.kernel.description = &added.data;
  added.kernel.is_built = false;
  return &added.kernel;
}

CUDA_EXT_COLD inline Failure LoadedModule::measure(KernelOfModule& kernel, Stream stream) {
  if (kernel.is_measured.load(std::memory_order_acquire)) return nullptr;
  CurrentContext here;
  if (auto failed = here.enter(stream)) return failed;
  auto location = find(here, kernel);
  if (!location) return std::move(location).failure();
  const std::lock_guard<std::mutex> lock(loading_);
  if (kernel.is_measured.load(std::memory_order_relaxed)) return nullptr;
  const bool is_ptx = location->architecture[0] == 'c';
  kernel.measured = is_ptx ? parameters_in_ptx(reinterpret_cast<const char*>(location->image), location->lowered)
                           : parameters_in_cubin(location->image, location->lowered);
  kernel.is_measured.store(true, std::memory_order_release);
  return nullptr;
}

// Skips kernels that were built only for other GPUs.
CUDA_EXT_COLD inline Failure LoadedModule::load() noexcept {
  const auto fails = [](const auto& result) { return !result && result.error().kind != ErrorKind::no_image; };
  for (std::size_t i = 0; i < data_.kernels.size; i++) {
    auto handle = kernels_[i].handle();
    if (fails(handle)) return std::move(handle).failure();
    for (std::size_t j = 0; j < data_.kernels[i].candidates.size; j++) {
      handle = kernels_[i].candidates[j].handle();
      if (fails(handle)) return std::move(handle).failure();
    }
  }
  for (std::size_t i = 0; i < data_.symbols.size; i++) {
    auto loaded = symbol(i, nullptr);
    if (fails(loaded)) return std::move(loaded).failure();
  }
  return nullptr;
}

CUDA_EXT_COLD inline Result<Symbol> LoadedModule::load(const SymbolData& variable, Stream stream) {
  CurrentContext here;
  if (auto failed = here.enter(stream)) return failed;
  if (here.driver().forked()) return failure(ErrorKind::driver, {after_fork()});
  auto location = images_.find(here, variable);
  if (!location) return std::move(location).failure();
  return images_.load_symbol(here, *location);
}

CUDA_EXT_COLD inline Result<Symbol> LoadedModule::symbol(std::size_t index, Stream stream) noexcept {
  return guarded([&] { return load(data_.symbols[index], stream); });
}

CUDA_EXT_COLD inline Result<Symbol> LoadedModule::find_symbol(Text text, Stream stream) noexcept {
  return guarded([&]() -> Result<Symbol> {
    const std::string name(text.data, text.size);
    auto index = CUDA_EXT_ABI::find_symbol(data_, name);
    if (index) return load(data_.symbols[*index], stream);
    // Only the driver knows the variables of a program whose names C++ does not mangle.
    if (!is_of_program(data_) || name.find_first_of(":<") != name.npos) return std::move(index).failure();
    auto found = load({name.c_str(), name.c_str(), 0, "", 0, {}}, stream);
    if (!found && found.error().code == driver_api::not_found) return std::move(index).failure();
    return found;
  });
}

CUDA_EXT_COLD inline Failure LoadedModule::copy(const Symbol& symbol, Text name, void* host, std::size_t size,
                                                bool to_gpu, Stream stream) noexcept {
  return guarded([&]() -> Failure {
    if (symbol.size != size) {
      const std::string_view variable(name.data, name.size);
      return failure(ErrorKind::argument,
                     {"variable '", variable, "': expected ", symbol.size, " bytes, found ", size});
    }
    CurrentContext here;
    if (auto failed = here.enter(stream)) return failed;
    const auto& call = here.driver().call;
    const auto status = to_gpu ? call.copy_to_gpu(symbol.address, host, size, stream)
                               : call.copy_from_gpu(host, symbol.address, size, stream);
    if (!status) return nullptr;
    return here.driver().failed(to_gpu ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync", status);
  });
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
