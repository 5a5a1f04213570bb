// Launches, and what else is done with a loaded kernel.

#pragma once

#include "configuration.hpp"
#include "driver.hpp"
#include "driver_api.hpp"
#include "failure.hpp"
#include "loaded_kernel.hpp"
#include "loaded_module.hpp"
#include "text.hpp"

#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// "axpy<float>(int n, float a, const float* x, float* y)"
CUDA_EXT_COLD inline std::string signature(const KernelData& kernel) noexcept {
  if (!kernel.is_described) return kernel.expression;
  std::string text = joined({kernel.expression, "("});
  for (std::size_t i = 0; i < kernel.parameters.size; i++) {
    const ParameterData& parameter = kernel.parameters[i];
    const std::string_view type = parameter.type;
    const std::size_t declarator = type.find("(*)");
    if (i) text += ", ";
    if (declarator == std::string_view::npos) {
      text += joined({type, " ", parameter.name});
    } else {
      text += joined({type.substr(0, declarator), "(*", parameter.name, ")", type.substr(declarator + 3)});
    }
  }
  return text + ")";
}

// Whether arguments of these `sizes` fit the parameters of `kernel`.
CUDA_EXT_COLD inline Failure wrong_arguments(const KernelData& kernel, const Array<ParameterData>& parameters,
                                             const std::size_t* sizes, std::size_t count) noexcept {
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

// What cuLaunchKernel cannot do.
CUDA_EXT_COLD inline driver_api::Code submit_configured(const Driver& driver, driver_api::Kernel kernel,
                                                        const LaunchConfig& config,
                                                        void** arguments) noexcept {
  LaunchAttribute attributes[3 + most_attributes];
  unsigned count = 0;
  if (config.cooperative) attributes[count++] = {driver_api::cooperative, 1};
  if (config.dependent) attributes[count++] = {driver_api::programmatic_stream_serialization, 1};
  if (has_cluster(config)) {
    const unsigned cluster[] = {static_cast<unsigned>(config.cluster.x),
                                static_cast<unsigned>(config.cluster.y),
                                static_cast<unsigned>(config.cluster.z)};
    attributes[count++] = {driver_api::cluster, cluster};
  }
  for (const LaunchAttribute& attribute : config.attributes) attributes[count++] = attribute;
  const driver_api::LaunchConfig configured = {
      {static_cast<unsigned>(config.grid.x), static_cast<unsigned>(config.grid.y),
       static_cast<unsigned>(config.grid.z)},
      {static_cast<unsigned>(config.block.x), static_cast<unsigned>(config.block.y),
       static_cast<unsigned>(config.block.z)},
      static_cast<unsigned>(config.shared),
      config.stream,
      attributes,
      count};
  return driver.call.launch_configured(&configured, kernel, arguments, nullptr);
}

inline driver_api::Code submit(const Driver& driver, driver_api::Kernel kernel, const LaunchConfig& config,
                               void** arguments) noexcept {
  if (!is_plain(config)) return submit_configured(driver, kernel, config, arguments);
  return driver.call.launch(kernel, static_cast<unsigned>(config.grid.x),
                            static_cast<unsigned>(config.grid.y), static_cast<unsigned>(config.grid.z),
                            static_cast<unsigned>(config.block.x), static_cast<unsigned>(config.block.y),
                            static_cast<unsigned>(config.block.z), static_cast<unsigned>(config.shared),
                            config.stream, arguments, nullptr);
}

CUDA_EXT_COLD inline Failure LoadedModule::launch_with_care(KernelOfModule& kernel, const LaunchConfig& asked,
                                                            void** arguments) noexcept {
  CurrentContext here;
  if (auto failed = here.enter(asked.stream)) return failed;
  auto found = loaded(here, kernel);
  if (!found) return std::move(found).failure();
  LaunchConfig config = asked;
  Limits limits(here, **found);
  if (config.counts_threads) {
    if (auto failed = limits.divide(config)) return in_a_launch(*kernel.description, std::move(failed));
  }
  if (!(*found)->takes(config)) {
    if (auto failed = limits.permit(config)) return in_a_launch(*kernel.description, std::move(failed));
  }
  if (!arguments) return nullptr;
  const auto status = submit(here.driver(), (*found)->known(), config, arguments);
  return status ? refused(kernel, config, arguments, status, Contexts::entered) : nullptr;
}

// What it means that the driver answered a launch with `status`.
CUDA_EXT_COLD inline Failure LoadedModule::refused(KernelOfModule& kernel, const LaunchConfig& config,
                                                   void** arguments, driver_api::Code status,
                                                   Contexts contexts) noexcept {
  Driver& driver = *opened_driver.load(std::memory_order_acquire);
  if (driver.forked()) return failure(ErrorKind::driver, {after_fork()});
  if (status == driver_api::invalid_context && contexts == Contexts::unknown) {
    return launch_with_care(kernel, config, arguments);
  }
  const char* function = is_plain(config) ? "cuLaunchKernel" : "cuLaunchKernelEx";
  CurrentContext here;
  if (!is_sticky(status) && !here.enter(config.stream)) {
    if (status == driver_api::no_binary_for_gpu || status == driver_api::unsupported_ptx_version) {
      auto found = find(here, kernel);
      if (!found) return std::move(found).failure();
      return refusal(here, data_.units[kernel.description->unit], *found, function, status);
    }
    LoadedKernel* refusing = known(here, kernel);
    Failure reason = refusing ? Limits(here, *refusing).permit(config) : nullptr;
    if (reason && reason->kind == ErrorKind::argument)
      return in_a_launch(*kernel.description, std::move(reason));
  }
  const char* expression = kernel.description->expression;
  bool is_fault = false;
  const std::string text = driver.explain(function, status, expression, is_fault);
  return failure(ErrorKind::launch,
                 {expression, ": ", text, "; launched with ", text_of(config),
                  is_fault ? "; the fault may be of earlier work on this GPU" : ""},
                 status);
}

// `reason`, and which kernel was to be launched if it is about that.
CUDA_EXT_COLD inline Failure LoadedModule::in_a_launch(const KernelData& kernel, Failure reason) noexcept {
  if (reason->kind != ErrorKind::argument) return reason;
  return failure(reason->kind, {reason->message, "\n  in a launch of ", signature(kernel)});
}

inline void KernelOfModule::hold(int change) noexcept { module->hold(change); }

inline Failure KernelOfModule::launch(const LaunchConfig& config, void** arguments) noexcept {
  // Once the kernel is loaded, and is the same on all GPUs, this is the whole of it.
  const driver_api::Kernel known = everywhere.known();
  const int block = config.counts_threads ? everywhere.block_of(config) : 0;
  if (block) return launch(divided(config, block), arguments);
  if (!known || !everywhere.takes(config)) return module->launch_with_care(*this, config, arguments);
  // The handle is set only after the driver is open.
  const auto status = submit(*opened_driver.load(std::memory_order_relaxed), known, config, arguments);
  if (!status) return nullptr;
  return module->refused(*this, config, arguments, status, LoadedModule::Contexts::unknown);
}

inline void KernelOfModule::launch_or_raise(const LaunchConfig& config, void** arguments) {
  if (const Failure reason = launch(config, arguments)) raise(*reason);
}

inline Failure KernelOfModule::launch_checked(const LaunchConfig& config, void** arguments,
                                              const std::size_t* sizes, std::size_t count) noexcept {
  Array<ParameterData> parameters = description->parameters;
  if (!description->is_described) {
    if (auto failed = module->measure(*this)) return failed;
    const bool is_known = opened_driver.load(std::memory_order_acquire)->call.parameter_info;
    if (!is_known) return launch(config, arguments);  // the driver is older than 12.4
    parameters = {measured.data(), measured.size()};
  }
  bool fits = count == parameters.size;
  for (std::size_t i = 0; fits && i < count; i++) fits = sizes[i] == parameters[i].size;
  return fits ? launch(config, arguments) : wrong_arguments(*description, parameters, sizes, count);
}

inline Failure KernelOfModule::prepare(const LaunchConfig& config) noexcept {
  return module->launch_with_care(*this, config, nullptr);
}

CUDA_EXT_COLD inline Failure KernelOfModule::refuse(const Integer* const* given) const noexcept {
  std::size_t position = 0;
  while (!given[position]) position++;
  const Integer& integer = *given[position];
  const ParameterData& parameter = description->parameters[position];
  const std::string number =
      integer.is_signed ? std::to_string(static_cast<long long>(integer.bits)) : std::to_string(integer.bits);
  return failure(ErrorKind::argument,
                 {"argument '", parameter.name, "': ", number, " is out of the range of ", parameter.type,
                  "\n  in a launch of ", signature(*description)});
}

// What `use` returns, a Result, or why the kernel is not loaded.
template <class Use>
auto LoadedModule::with_loaded(KernelOfModule& kernel, const Use& use) noexcept {
  using Used = decltype(use(std::declval<const CurrentContext&>(), std::declval<LoadedKernel&>()));
  CurrentContext here;
  if (auto failed = here.enter(nullptr)) return Used(failed);
  auto found = loaded(here, kernel);
  return found ? use(here, **found) : Used(std::move(found).failure());
}

inline Result<driver_api::Kernel> KernelOfModule::handle() noexcept {
  return module->with_loaded(*this, [](const CurrentContext&, LoadedKernel& loaded) {
    return Result<driver_api::Kernel>(loaded.known());
  });
}

inline Result<int> KernelOfModule::attribute(int which) noexcept {
  return module->with_loaded(*this, [which](const CurrentContext& here, LoadedKernel& loaded) -> Result<int> {
    int value = 0;
    const auto status = here.driver().call.kernel_attribute(&value, driver_api::KernelAttribute{which},
                                                            loaded.known(), here.device());
    if (status) return here.driver().failed("cuKernelGetAttribute", status);
    return value;
  });
}

inline Failure KernelOfModule::set_attribute(int which, int value) noexcept {
  return module->with_loaded(*this, [=](const CurrentContext& here, LoadedKernel& loaded) -> Failure {
    const auto status = here.driver().call.set_kernel_attribute(driver_api::KernelAttribute{which}, value,
                                                                loaded.known(), here.device());
    return status ? here.driver().failed("cuKernelSetAttribute", status) : nullptr;
  });
}

inline Result<int> KernelOfModule::blocks_per_multiprocessor(int threads, std::size_t shared) noexcept {
  return module->with_loaded(*this, [=](const CurrentContext& here, LoadedKernel& loaded) {
    return Limits(here, loaded).blocks_per_multiprocessor(threads, shared);
  });
}

inline Result<int> KernelOfModule::best_block(std::size_t shared) noexcept {
  return module->with_loaded(*this, [shared](const CurrentContext& here, LoadedKernel& loaded) {
    return Limits(here, loaded).best_block(shared);
  });
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
