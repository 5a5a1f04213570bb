// Launches of kernels, and their other functions.

#pragma once

#include "loaded_module.hpp"

#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// Writes the signature: "axpy<float>(int n, float a, const float* x, float* y)"
CUDA_EXT_COLD inline std::string signature(const KernelData& kernel) {
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

// Returns the error for arguments whose `sizes` are not those of the parameters.
CUDA_EXT_COLD inline Failure wrong_arguments(const KernelData& kernel, const Array<ParameterData>& parameters,
                                             const std::size_t* sizes, std::size_t count) {
  const auto counted = [](std::size_t number) {
    return joined({number ? joined({number}) : "no", number == 1 ? " argument" : " arguments"});
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

// Launches with attributes, which cuLaunchKernel does not support.
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

inline driver_api::Code submit_plain(const Driver& driver, driver_api::Kernel kernel,
                                     const LaunchConfig& config, void** arguments) noexcept {
  return driver.call.launch(kernel, static_cast<unsigned>(config.grid.x),
                            static_cast<unsigned>(config.grid.y), static_cast<unsigned>(config.grid.z),
                            static_cast<unsigned>(config.block.x), static_cast<unsigned>(config.block.y),
                            static_cast<unsigned>(config.block.z), static_cast<unsigned>(config.shared),
                            config.stream, arguments, nullptr);
}

inline driver_api::Code submit(const Driver& driver, driver_api::Kernel kernel, const LaunchConfig& config,
                               void** arguments) noexcept {
  const auto submit_it = is_plain(config) ? submit_plain : submit_configured;
  return submit_it(driver, kernel, config, arguments);
}

// True if the error says that there is no image for this GPU and driver.
constexpr bool is_absence(ErrorKind kind) noexcept {
  return kind == ErrorKind::no_image || kind == ErrorKind::ptx_too_new || kind == ErrorKind::driver_too_old;
}

// Returns the error for arguments that satisfy no candidate's condition.
CUDA_EXT_COLD inline Failure none_holds(const KernelData& kernel) {
  std::string conditions;
  for (const CandidateData& each : kernel.candidates) {
    conditions += joined({conditions.empty() ? "" : "; or if ", each.when});
  }
  return failure(ErrorKind::argument, {"this kernel was compiled for other arguments: if ", conditions});
}

// Adds the kernel of the launch to `error`, if the error is about it.
CUDA_EXT_COLD inline Failure of_launch(const KernelData& kernel, Failure error) {
  if (error->kind != ErrorKind::argument) return error;
  return failure(error->kind, {error->message, "\n  in a launch of ", signature(kernel)});
}

CUDA_EXT_COLD inline Failure LoadedModule::load_and_launch(KernelOfModule& kernel,
                                                           const LaunchConfig& requested, void** arguments) {
  CurrentContext here;
  if (auto failed = here.enter(requested.stream)) return failed;
  if (kernel.candidates) return launch_candidate(here, kernel, requested, arguments);
  auto loaded = load(here, kernel);
  if (!loaded) return std::move(loaded).failure();
  return launch_loaded(here, kernel, **loaded, requested, arguments);
}

CUDA_EXT_COLD inline Failure LoadedModule::launch_loaded(const CurrentContext& here, KernelOfModule& kernel,
                                                         LoadedKernel& loaded, LaunchConfig config,
                                                         void** arguments) {
  const KernelData& data = *kernel.description;
  if (const FixedLaunchData* fixed = loaded.fixed) {
    if (auto failed = fix(config, *fixed, data)) return of_launch(data, std::move(failed));
  }
  Limits limits(here, loaded);
  if (config.counts_threads) {
    if (auto failed = limits.divide(config)) return of_launch(data, std::move(failed));
  }
  if (!loaded.permits(config)) {
    if (auto failed = limits.permit(config)) return of_launch(data, std::move(failed));
  }
  if (!arguments) return nullptr;
  const std::size_t size = loaded.fixed ? loaded.fixed->scratch : 0;
  Scratch scratch(here.driver(), config.stream);
  if (size) {
    if (auto failed = scratch.allocate(here.device(), size, config.grid)) {
      return of_launch(data, std::move(failed));
    }
    if (scratch.status) return here.driver().failed("cuMemAllocAsync", scratch.status);
  }
  PassedParameters passed(data, arguments, scratch);
  if (data.passed.size) arguments = passed.addresses();
  const auto status = submit(here.driver(), loaded.get(), config, arguments);
  return status ? explain_launch(kernel, config, status) : nullptr;
}

CUDA_EXT_COLD inline Failure LoadedModule::launch_candidate(const CurrentContext& here, KernelOfModule& kernel,
                                                            const LaunchConfig& config, void** arguments) {
  const KernelData& data = *kernel.description;
  const Driver::Device& device = here.driver().at(here.device());
  Failure absent;
  bool is_present = false;
  for (std::size_t i = 0; i < data.candidates.size; i++) {
    const CandidateData& candidate = data.candidates[i];
    KernelOfModule& own = kernel.candidates[i];
    const LoadedKernel* known = get_loaded(here, own);
    const char* architecture = known ? known->architecture : nullptr;
    if (!known) {
      auto location = find(here, own);
      if (!location) {
        absent = std::move(location).failure();
        if (!is_absence(absent->kind)) return absent;
        continue;
      }
      architecture = location->architecture;
    }
    is_present = true;
    if (arguments && !holds(candidate, arguments, device, architecture)) continue;
    auto loaded = load(here, own);
    if (!loaded) return std::move(loaded).failure();
    Failure failed = launch_loaded(here, own, **loaded, config, arguments);
    if (arguments || failed) return failed;
  }
  const bool has_default = !*data.candidates[data.candidates.size - 1].when;
  if (!is_present || (arguments && has_default)) return absent;
  return arguments ? of_launch(data, none_holds(data)) : nullptr;
}

CUDA_EXT_COLD inline Failure LoadedModule::explain_launch(KernelOfModule& kernel, LaunchConfig config,
                                                          driver_api::Code status) {
  Driver& driver = *opened_driver.load(std::memory_order_acquire);
  if (driver.forked()) return failure(ErrorKind::driver, {after_fork()});
  const int block = config.counts_threads ? kernel.everywhere.block_of(config) : 0;
  if (block) config = divided(config, block);
  const char* function = is_plain(config) ? "cuLaunchKernel" : "cuLaunchKernelEx";
  CurrentContext here;
  if (!is_sticky(status) && !here.enter(config.stream)) {
    if (status == driver_api::no_binary_for_gpu || status == driver_api::unsupported_ptx_version) {
      auto location = find(here, kernel);
      if (!location) return std::move(location).failure();
      return images_.explain(here, *location, function, status);
    }
    LoadedKernel* loaded = get_loaded(here, kernel);
    Failure error = loaded ? Limits(here, *loaded).permit(config) : nullptr;
    if (error && error->kind == ErrorKind::argument) return of_launch(*kernel.description, std::move(error));
  }
  const char* expression = kernel.description->expression;
  bool is_fault = false;
  const std::string text = driver.explain(function, status, expression, is_fault);
  return failure(ErrorKind::launch,
                 {expression, ": ", text, "; launched with ", text_of(config),
                  is_fault ? "; the fault may be of earlier work on this GPU" : ""},
                 status);
}

template <class Returned, class... Parameters, class... Arguments>
Returned LoadedModule::ask(KernelOfModule& kernel, Returned (Limits::*function)(Parameters...),
                           Arguments... arguments) noexcept {
  return guarded([&]() -> Returned {
    CurrentContext here;
    if (auto failed = here.enter(nullptr)) return failed;
    auto loaded = load(here, kernel);
    if (!loaded) return std::move(loaded).failure();
    return (Limits(here, **loaded).*function)(arguments...);
  });
}

inline void KernelOfModule::hold(int change) noexcept { module->hold(change); }

// All that a common launch costs: this has few instructions, and calls only the driver.
inline driver_api::Code KernelOfModule::try_launch(const LaunchConfig& config, void** arguments) noexcept {
  if (!is_plain(config)) return launch_uncommon(config, arguments);
  const driver_api::Kernel handle = everywhere.get();
  if (!handle || !everywhere.permits_plain(config)) return not_started;
  // The kernel is the same on all GPUs, and the driver is open, since the kernel is loaded.
  if (is_default(config.stream) && !had_context) return not_started;
  return submit_plain(*opened_driver.load(std::memory_order_relaxed), handle, config, arguments);
}

inline driver_api::Code KernelOfModule::launch_uncommon(const LaunchConfig& config, void** arguments) noexcept {
  const int block = config.counts_threads ? everywhere.block_of(config) : 0;
  if (block) return try_launch(divided(config, block), arguments);
  const driver_api::Kernel handle = everywhere.get();
  if (!handle || !everywhere.permits(config)) return not_started;
  if (is_default(config.stream) && !had_context) return not_started;
  return submit(*opened_driver.load(std::memory_order_relaxed), handle, config, arguments);
}

CUDA_EXT_COLD inline Failure KernelOfModule::complete(driver_api::Code code, const LaunchConfig& config,
                                                      void** arguments) noexcept {
  const bool is_refused = code != not_started && code != driver_api::invalid_context;
  return guarded([&] {
    return is_refused ? module->explain_launch(*this, config, code)
                      : module->load_and_launch(*this, config, arguments);
  });
}

inline Failure KernelOfModule::launch(const LaunchConfig& config, void** arguments) noexcept {
  const auto code = try_launch(config, arguments);
  return code ? complete(code, config, arguments) : nullptr;
}

inline void KernelOfModule::launch_or_raise(const LaunchConfig& config, void** arguments) {
  const auto code = try_launch(config, arguments);
  if (!code) return;
  if (const Failure error = complete(code, config, arguments)) raise(*error);
}

inline Failure KernelOfModule::prepare(const LaunchConfig& config) noexcept {
  return complete(not_started, config, nullptr);
}

inline Failure KernelOfModule::check(Stream stream, const std::size_t* sizes, std::size_t count) noexcept {
  Array<ParameterData> parameters = description->parameters;
  if (!description->is_described) {
    if (auto failed = guarded([&] { return module->measure(*this, stream); })) return failed;
    parameters = {measured.data(), measured.size()};
  }
  bool fits = count == parameters.size;
  for (std::size_t i = 0; fits && i < count; i++) fits = sizes[i] == parameters[i].size;
  if (fits) return nullptr;
  return guarded([&] { return wrong_arguments(*description, parameters, sizes, count); });
}

CUDA_EXT_COLD inline Failure KernelOfModule::refuse(const Integer* const* given) const noexcept {
  return guarded([&] {
    std::size_t position = 0;
    while (!given[position]) position++;
    const Integer& integer = *given[position];
    const std::string number =
        integer.is_signed ? joined({static_cast<long long>(integer.bits)}) : joined({integer.bits});
    const bool is_named = description->is_described;
    const ParameterData parameter = is_named ? description->parameters[position] : ParameterData{};
    const std::string name = is_named ? joined({"'", parameter.name, "'"}) : joined({position + 1});
    return failure(ErrorKind::argument,
                   {"argument ", name, ": ", number, " is out of the range of ",
                    is_named ? parameter.type : "the parameter", "\n  in a launch of ", signature(*description)});
  });
}

inline Result<driver_api::Kernel> KernelOfModule::handle() noexcept { return module->ask(*this, &Limits::handle); }

inline Result<int> KernelOfModule::attribute(int which) noexcept {
  return module->ask(*this, &Limits::attribute, driver_api::KernelAttribute{which});
}

inline Failure KernelOfModule::set_attribute(int which, int value) noexcept {
  return module->ask(*this, &Limits::set_attribute, driver_api::KernelAttribute{which}, value);
}

inline Result<int> KernelOfModule::blocks_per_multiprocessor(int threads, std::size_t shared) noexcept {
  return module->ask(*this, &Limits::blocks_per_multiprocessor, threads, shared);
}

inline Result<int> KernelOfModule::best_block(std::size_t shared) noexcept {
  return module->ask(*this, &Limits::best_block, shared);
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
