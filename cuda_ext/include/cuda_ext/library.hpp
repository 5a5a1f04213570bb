// Kernels of a module, by name and as the typed objects that generated headers declare.

#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "data.hpp"
#include "driver.hpp"
#include "driver_api.hpp"
#include "error.hpp"
#include "launch.hpp"
#include "loaded_module.hpp"
#include "names.hpp"
#include "text.hpp"

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {

// Where the bytes of an argument lie, for a kernel whose parameters are not known here.
template <class T>
const void* address_of(const T& argument) noexcept {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_array_v<T>,
                "the GPU gets an argument as its bytes");
  if constexpr (std::is_null_pointer_v<T>) {
    static constexpr const void* null = nullptr;
    return &null;
  } else {
    return std::addressof(argument);
  }
}

// Whether arguments of these `sizes` fit the parameters of `kernel`.
CUDA_EXT_COLD inline Failure wrong_arguments(const KernelData& kernel, const Array<ParameterData>& parameters,
                                             const std::size_t* sizes, std::size_t count) {
  const auto counted = [](std::size_t number) {
    return joined({number ? std::to_string(number) : "no", number == 1 ? " argument" : " arguments"});
  };
  std::string reason;
  if (count != parameters.size) {
    reason = joined({"expected ", counted(parameters.size), ", found ", count});
  }
  for (std::size_t i = 0; i < count && reason.empty(); i++) {
    const ParameterData& parameter = parameters[i];
    if (sizes[i] == parameter.size) continue;
    if (!parameter.name) {
      reason = joined({"argument ", i, ": expected ", parameter.size, " bytes, found ", sizes[i]});
    } else {
      reason = joined({"argument '", parameter.name, "': expected the ", parameter.size, " bytes of ",
                       parameter.type, ", found ", sizes[i]});
    }
  }
  return failure(ErrorKind::argument, {reason, "\n  in a launch of ", signature(kernel)});
}

// The classes below are visible, so that they can be members of classes that are; what they do is hidden.
// That is why there is no std::shared_ptr: gcc shows some of its functions whatever it points to, and then
// the destructor of one shared object would unload what another has loaded.

// A module that is shared by its Library and its Kernels, and goes with the last of them.
class CUDA_EXT_VISIBLE SharedModule {
 public:
  CUDA_EXT_HIDDEN SharedModule() noexcept = default;
  CUDA_EXT_HIDDEN explicit SharedModule(const ModuleData& data) : module_(new LoadedModule(data)) {}
  CUDA_EXT_HIDDEN explicit SharedModule(std::unique_ptr<const OwnedModule> data)
      : module_(new LoadedModule(std::move(data))) {}
  CUDA_EXT_HIDDEN SharedModule(const SharedModule& other) noexcept : module_(other.module_) {
    if (module_) module_->holders.fetch_add(1, std::memory_order_relaxed);
  }
  CUDA_EXT_HIDDEN SharedModule(SharedModule&& other) noexcept
      : module_(std::exchange(other.module_, nullptr)) {}
  CUDA_EXT_HIDDEN SharedModule& operator=(SharedModule other) noexcept {
    std::swap(module_, other.module_);
    return *this;
  }
  CUDA_EXT_HIDDEN ~SharedModule() {
    if (module_ && module_->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete module_;
  }

  CUDA_EXT_HIDDEN LoadedModule& get() const noexcept { return *module_; }

 private:
  LoadedModule* module_ = nullptr;
};

// Functions whose names begin with try_ return what went wrong; the others throw it.

// A kernel of a Library. What it is in stays loaded while there is either of them.
class CUDA_EXT_VISIBLE Kernel {
 public:
  CUDA_EXT_HIDDEN Kernel() noexcept = default;  // no kernel, as after a move
  CUDA_EXT_HIDDEN Kernel(Kernel&&) noexcept = default;
  CUDA_EXT_HIDDEN Kernel& operator=(Kernel&&) noexcept = default;
  CUDA_EXT_HIDDEN Kernel(const Kernel&) = delete;
  CUDA_EXT_HIDDEN Kernel& operator=(const Kernel&) = delete;
  CUDA_EXT_HIDDEN ~Kernel() = default;

  CUDA_EXT_HIDDEN const KernelData& data() const noexcept { return *kernel_->data; }

  // Launches the kernel. The number of the arguments is checked, and the size of each.
  template <class... Arguments>
  CUDA_EXT_HIDDEN Result<void> try_launch(const LaunchConfig& config,
                                          const Arguments&... arguments) const noexcept {
    constexpr std::size_t count = sizeof...(Arguments);
    constexpr std::size_t sizes[count + 1] = {sizeof(Arguments)..., 0};
    Array<ParameterData> parameters = data().parameters;
    bool fits = false;
    if (!data().is_described) {
      if (auto failed = module().measure(*kernel_)) return failed;
      parameters = {kernel_->measured.get(), kernel_->parameter_count};
      fits = !parameters.data;  // the driver is older than 12.4
    }
    if (!fits) {
      fits = count == parameters.size;
      for (std::size_t i = 0; fits && i < count; i++) fits = sizes[i] == parameters[i].size;
      if (!fits) return wrong_arguments(data(), parameters, sizes, count);
    }
    void* addresses[count + 1] = {const_cast<void*>(address_of(arguments))..., nullptr};
    return try_launch_raw(config, addresses);
  }

  // The same with `arguments` that point to each argument, of which nothing is checked.
  CUDA_EXT_HIDDEN Result<void> try_launch_raw(const LaunchConfig& config, void** arguments) const noexcept {
    return module().launch(*kernel_, config, arguments);
  }

  // Its CUkernel, and a CUfunction_attribute of it, on the GPU of the current context.
  CUDA_EXT_HIDDEN Result<driver_api::Kernel> try_handle() const noexcept { return module().handle(*kernel_); }
  CUDA_EXT_HIDDEN Result<int> try_attribute(int which) const noexcept {
    return module().attribute(*kernel_, static_cast<driver_api::KernelAttribute>(which));
  }

#if CUDA_EXT_EXCEPTIONS
  template <class... Arguments>
  CUDA_EXT_HIDDEN void launch(const LaunchConfig& config, const Arguments&... arguments) const {
    try_launch(config, arguments...).value();
  }
  CUDA_EXT_HIDDEN void launch_raw(const LaunchConfig& config, void** arguments) const {
    try_launch_raw(config, arguments).value();
  }
  CUDA_EXT_HIDDEN driver_api::Kernel handle() const { return try_handle().value(); }
  CUDA_EXT_HIDDEN int attribute(int which) const { return try_attribute(which).value(); }
#endif

 private:
  friend class Library;

  CUDA_EXT_HIDDEN Kernel(SharedModule module, KernelOfModule& kernel) noexcept
      : module_(std::move(module)), kernel_(&kernel) {}

  CUDA_EXT_HIDDEN LoadedModule& module() const noexcept { return module_.get(); }

  SharedModule module_;
  KernelOfModule* kernel_ = nullptr;
};

// The kernels and symbols of a module. Making one does nothing yet: what they are in is loaded when the first
// is used. It is unloaded with the Library and all its Kernels, and nothing of it may run then.
class CUDA_EXT_VISIBLE Library {
 public:
  CUDA_EXT_HIDDEN Library() noexcept = default;  // no module, as after a move
  CUDA_EXT_HIDDEN explicit Library(const ModuleData& module) : module_(module) {}
  CUDA_EXT_HIDDEN explicit Library(std::unique_ptr<const OwnedModule> module) : module_(std::move(module)) {}
  CUDA_EXT_HIDDEN Library(Library&&) noexcept = default;
  CUDA_EXT_HIDDEN Library& operator=(Library&&) noexcept = default;
  CUDA_EXT_HIDDEN Library(const Library&) = delete;
  CUDA_EXT_HIDDEN Library& operator=(const Library&) = delete;
  CUDA_EXT_HIDDEN ~Library() = default;

  CUDA_EXT_HIDDEN const ModuleData& data() const noexcept { return module().data(); }

  // The kernel of that name expression, "ns::axpy<float>", in which white space does not matter. An
  // instantiation that was not built ahead is compiled, for the GPU of the current context now and for others
  // when it is launched there, if the module has its sources.
  CUDA_EXT_HIDDEN Result<Kernel> try_kernel(std::string_view name) const noexcept {
    auto kernel = module().kernel(name);
    if (!kernel) return std::move(kernel).failure();
    return Kernel(module_, **kernel);
  }

  // Compiles a module of a source for the GPU of the current context.
  CUDA_EXT_HIDDEN Result<void> try_prepare() const noexcept { return module().prepare(); }

  // The variable of that name on the GPU of the current context.
  CUDA_EXT_HIDDEN Result<Symbol> try_symbol(std::string_view name) const noexcept {
    auto index = find_symbol(data(), name);
    if (!index) return std::move(index).failure();
    return module().symbol(*index);
  }

#if CUDA_EXT_EXCEPTIONS
  CUDA_EXT_HIDDEN Kernel kernel(std::string_view name) const { return try_kernel(name).value(); }
  CUDA_EXT_HIDDEN Symbol symbol(std::string_view name) const { return try_symbol(name).value(); }
#endif

 private:
  template <const Library& (&library)(), std::size_t index>
  friend class StaticKernel;

  CUDA_EXT_HIDDEN Kernel kernel_at(std::size_t index) const noexcept {
    return Kernel(module_, module().kernel(index));
  }

  CUDA_EXT_HIDDEN LoadedModule& module() const noexcept { return module_.get(); }

  SharedModule module_;
};

// A kernel of generated code, which derives from this, and knows the types of its parameters: the arguments
// are those of argument.hpp. `library()` is what it is in, and `index` its place there.
template <const Library& (&library)(), std::size_t index>
class StaticKernel {
 public:
  // The same without types.
  static Kernel kernel() noexcept { return library().kernel_at(index); }

 protected:
  template <class... Arguments>
  static Failure submit(const LaunchConfig& config, const Arguments&... arguments) noexcept {
    void* addresses[sizeof...(Arguments) + 1] = {const_cast<void*>(arguments.address())..., nullptr};
    LoadedModule& module = library().module();
    return module.launch(module.kernel(index), config, addresses);
  }

  template <class... Arguments>
  static Result<void> attempt(const LaunchConfig& config, const Arguments&... arguments) noexcept {
    return submit(config, arguments...);
  }

#if CUDA_EXT_EXCEPTIONS
  template <class... Arguments>
  static void launch(const LaunchConfig& config, const Arguments&... arguments) {
    if (const Failure reason = submit(config, arguments...)) raise(*reason);
  }
#endif
};

}  // namespace v1
}  // namespace cuda_ext CUDA_EXT_HIDDEN
