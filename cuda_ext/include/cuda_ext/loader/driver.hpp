// The CUDA driver, opened at its first use and never before.
//
// The first caller opens it, in whichever thread. The outcome is kept, failure too, for as long as the
// process lives; each shared object has its own.

#pragma once

#include "driver_api.hpp"
#include "failure.hpp"
#include "shared_library.hpp"
#include "text.hpp"

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#if !defined(_WIN32)
#include <unistd.h>
#endif

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// A version is 1000 * major + 10 * minor, as CUDA counts.
inline std::string version_text(int version) noexcept {
  return joined({version / 1000, ".", version % 1000 / 10});
}

inline long current_process() noexcept {
#if defined(_WIN32)
  return 1;  // none is forked
#else
  return long{::getpid()};
#endif
}

// The driver, once it could be opened.
class Driver {
 public:
  // `capability` is 90 for 9.0.
  struct Device {
    int capability = 0;
    std::atomic<driver_api::Context> primary_context{nullptr};
  };

  driver_api::Functions call{};
  int version = 0;
  int count = 0;  // of the GPUs that this process sees
  std::unique_ptr<Device[]> devices;
  std::mutex permitting;  // held while a kernel is permitted more than by default

  // Opens the library and asks for what does not change. Called once, before anything else.
  Failure open() noexcept;

  // Whether this process is a child of the one that opened the driver, and can do nothing with it.
  bool forked() const noexcept { return process_ != current_process(); }

  // As it is called in messages: "sm_90".
  std::string name_of(int device) const noexcept { return joined({"sm_", at(device).capability}); }

  Device& at(int device) const noexcept { return devices[static_cast<std::size_t>(device)]; }

  // What `device` has of something; INT_MAX, which is no limit, where the driver does not say.
  int attribute(int device, driver_api::DeviceAttribute attribute) const noexcept {
    int value = 0;
    return call.device_attribute(&value, attribute, device) == driver_api::success ? value : INT_MAX;
  }

  // The primary context of `device`, which all libraries of this process share. It is kept.
  Result<driver_api::Context> primary_context(int device) noexcept;

  // Why `function` failed.
  Failure failed(const char* function, driver_api::Code status) noexcept;

  // The same as text, for a call on behalf of `subject`. An error after which nothing works any more is kept,
  // and reported with all that follow; `is_fault` says whether this is it.
  std::string explain(const char* function, driver_api::Code status, std::string_view subject,
                      bool& is_fault) noexcept;

 private:
  using GetFunction = driver_api::Code(CUDA_EXT_CALL*)(const char* name, void** function, int version,
                                                       std::uint64_t flags, int* found);

  template <class Function>
  bool find(Function& function, const char* name, int since) noexcept;
  bool find_what_opening_takes() noexcept;
  bool find_the_rest() noexcept;
  Failure look_at_devices() noexcept;
  Failure refusal(const char* function, driver_api::Code status) noexcept;
  Failure too_old() noexcept;

  GetFunction get_function_ = nullptr;
  Failure missing_;  // of a function that was not found
  long process_ = current_process();
  std::mutex faulting_;
  std::string fault_;
};

inline const char* after_fork() noexcept {
  return "CUDA was used before this process was forked, and the driver does not survive that; use CUDA in "
         "child processes only, or have them start another program";
}

// Errors of a kernel that already ran, after which the process gets nothing else.
inline bool is_sticky(driver_api::Code status) noexcept {
  switch (status) {
    case driver_api::contained:
    case driver_api::illegal_address:
    case driver_api::launch_timeout:
    case driver_api::assertion:
    case driver_api::tensor_memory_leak: return true;
    default: return driver_api::hardware_stack_error <= status && status <= driver_api::launch_failed;
  }
}

CUDA_EXT_COLD inline Failure Driver::failed(const char* function, driver_api::Code status) noexcept {
  if (forked()) return failure(ErrorKind::driver, {after_fork()});
  bool is_fault = false;
  return failure(ErrorKind::driver_call, {explain(function, status, "", is_fault)}, status);
}

CUDA_EXT_COLD inline std::string Driver::explain(const char* function, driver_api::Code status,
                                                 std::string_view subject, bool& is_fault) noexcept {
  const char* name = nullptr;
  const char* description = nullptr;
  if (call.error_name(status, &name) != driver_api::success || !name) name = "unknown error";
  if (call.error_string(status, &description) != driver_api::success || !description) {
    description = "no description";
  }
  std::string text = joined({function, " failed: ", name, " (", status, "): ", description});
  const std::lock_guard<std::mutex> lock(faulting_);
  if (!fault_.empty()) {
    return joined(
        {text, "; no work on the GPU succeeds in this process any more since ", fault_, "; start another"});
  }
  is_fault = is_sticky(status);
  if (is_fault) fault_ = subject.empty() ? text : joined({subject, ": ", text});
  return text;
}

CUDA_EXT_COLD inline Result<driver_api::Context> Driver::primary_context(int device) noexcept {
  std::atomic<driver_api::Context>& known = at(device).primary_context;
  driver_api::Context context = known.load(std::memory_order_acquire);
  if (context) return context;
  // Two threads may both come here; the driver counts, and gives both the same.
  const auto status = call.retain_primary_context(&context, device);
  if (status) return failed("cuDevicePrimaryCtxRetain", status);
  known.store(context, std::memory_order_release);
  return context;
}

CUDA_EXT_COLD inline std::string no_device() noexcept {
  const std::string text = "the CUDA driver finds no GPU";
#if defined(_MSC_VER)
#pragma warning(suppress : 4996)  // of getenv; nothing here changes the environment
#endif
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) return text + "; see whether nvidia-smi lists one";
  return joined({text, " among CUDA_VISIBLE_DEVICES='", visible, "'; change or unset that"});
}

// What cuInit means by `status`, and what to do.
CUDA_EXT_COLD inline Failure Driver::refusal(const char* function, driver_api::Code status) noexcept {
  const char* remedy = "see whether nvidia-smi works; reboot, or reinstall the driver";
  switch (status) {
    case driver_api::not_initialized: return failure(ErrorKind::driver, {after_fork()}, status);
    case driver_api::no_device:
    case driver_api::invalid_device: return failure(ErrorKind::no_device, {no_device()}, status);
    case driver_api::stub_library:
      return failure(ErrorKind::no_driver,
                     {"the CUDA library that was found is a stub for linking, ",
                      "not a driver; take the toolkit's stubs directory out of LD_LIBRARY_PATH"},
                     status);
    case driver_api::system_driver_mismatch:
      remedy = "the driver's library and its kernel module are of different versions; reboot";
      break;
    case driver_api::compat_not_supported_on_device:
      remedy = "this GPU does not take CUDA's compatibility package; remove it, or upgrade the driver";
      break;
    case driver_api::system_not_ready:
      remedy = "the machine is still starting, or a service that the GPUs need (Fabric Manager) is down";
      break;
    default: break;
  }
  bool is_fault = false;
  const std::string text = explain(function, status, "", is_fault);
  return failure(ErrorKind::driver, {"the CUDA driver cannot be used: ", text, "; ", remedy}, status);
}

CUDA_EXT_COLD inline Failure Driver::too_old() noexcept {
  return failure(ErrorKind::driver_too_old, {"the NVIDIA driver supports CUDA up to ", version_text(version),
                                             ", and launching takes 12.0 or newer; upgrade the driver"});
}

CUDA_EXT_COLD inline Failure Driver::open() noexcept {
#if defined(__APPLE__)
  return failure(ErrorKind::no_driver,
                 {"there is no CUDA driver for macOS: kernels can be built and inspected here, ",
                  "and launched under Linux and Windows"});
#else
#if defined(_WIN32)
  const SharedLibrary library(L"nvcuda.dll", LibrarySearch::system);
#else
  const SharedLibrary library("libcuda.so.1", LibrarySearch::system);
#endif
  if (!library.reason().empty()) {
    return failure(ErrorKind::no_driver, {"there is no CUDA driver on this machine (", library.reason(),
                                          "); launching kernels takes an NVIDIA GPU and its driver"});
  }
  library.find(get_function_, "cuGetProcAddress_v2");
  if (!get_function_) {  // it came with 12.0
    library.find(call.driver_version, "cuDriverGetVersion");
    if (call.driver_version) call.driver_version(&version);
    return too_old();
  }
  if (!find_what_opening_takes()) return std::move(missing_);
  if (const auto status = call.init(0)) return refusal("cuInit", status);
  if (const auto status = call.driver_version(&version)) return failed("cuDriverGetVersion", status);
  if (version < 12000) return too_old();
  if (!find_the_rest()) return std::move(missing_);
  if (const auto status = call.device_count(&count)) return failed("cuDeviceGetCount", status);
  if (count <= 0) return failure(ErrorKind::no_device, {no_device()});
  return look_at_devices();
#endif
}

CUDA_EXT_COLD inline Failure Driver::look_at_devices() noexcept {
  devices = std::make_unique<Device[]>(static_cast<std::size_t>(count));
  for (int device = 0; device < count; device++) {
    int major = 0;
    int minor = 0;
    auto status = call.device_attribute(&major, driver_api::DeviceAttribute::capability_major, device);
    if (status == driver_api::success) {
      status = call.device_attribute(&minor, driver_api::DeviceAttribute::capability_minor, device);
    }
    if (status) return failed("cuDeviceGetAttribute", status);
    at(device).capability = 10 * major + minor;
  }
  return nullptr;
}

// `since` is the CUDA in which the function came to be what driver_api.hpp declares.
template <class Function>
bool Driver::find(Function& function, const char* name, int since) noexcept {
  void* address = nullptr;
  int found = 0;
  const auto status = get_function_(name, &address, since, 0, &found);
  function = reinterpret_cast<Function>(address);
  if (status == driver_api::success && address) return true;
  if (status == driver_api::stub_library) {
    missing_ = refusal("cuGetProcAddress", status);
  } else {
    missing_ = failure(ErrorKind::driver_too_old, {"the NVIDIA driver has no ", name, " of CUDA ",
                                                   version_text(since), "; upgrade the driver"});
  }
  return false;
}

CUDA_EXT_COLD inline bool Driver::find_what_opening_takes() noexcept {
  return find(call.error_name, "cuGetErrorName", 6000) && find(call.error_string, "cuGetErrorString", 6000) &&
         find(call.init, "cuInit", 2000) && find(call.driver_version, "cuDriverGetVersion", 2020);
}

CUDA_EXT_COLD inline bool Driver::find_the_rest() noexcept {
  if (!find(call.parameter_info, "cuKernelGetParamInfo", 12040)) missing_ = nullptr;
  return find(call.device_count, "cuDeviceGetCount", 2000) &&
         find(call.device_attribute, "cuDeviceGetAttribute", 2000) &&
         find(call.retain_primary_context, "cuDevicePrimaryCtxRetain", 7000) &&
         find(call.current_context, "cuCtxGetCurrent", 4000) &&
         find(call.set_current_context, "cuCtxSetCurrent", 4000) &&
         find(call.push_context, "cuCtxPushCurrent", 4000) &&
         find(call.pop_context, "cuCtxPopCurrent", 4000) &&
         find(call.current_device, "cuCtxGetDevice", 2000) &&
         find(call.context_of_stream, "cuStreamGetCtx", 9020) &&
         find(call.load_library, "cuLibraryLoadData", 12000) &&
         find(call.unload_library, "cuLibraryUnload", 12000) &&
         find(call.kernel_of_library, "cuLibraryGetKernel", 12000) &&
         find(call.global_of_library, "cuLibraryGetGlobal", 12000) &&
         find(call.kernel_attribute, "cuKernelGetAttribute", 12000) &&
         find(call.set_kernel_attribute, "cuKernelSetAttribute", 12000) &&
         find(call.blocks_per_multiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050) &&
         find(call.best_block, "cuOccupancyMaxPotentialBlockSize", 6050) &&
         find(call.copy_to_gpu, "cuMemcpyHtoDAsync", 3020) &&
         find(call.copy_from_gpu, "cuMemcpyDtoHAsync", 3020) &&
         find(call.largest_cluster, "cuOccupancyMaxPotentialClusterSize", 11070) &&
         find(call.launch, "cuLaunchKernel", 4000) && find(call.launch_configured, "cuLaunchKernelEx", 11060);
}

// What came of opening the driver: one of the first two, once that is done.
inline std::atomic<Driver*> opened_driver{nullptr};
inline std::atomic<const SharedError*> why_no_driver{nullptr};
inline std::atomic<long> opening_process{0};
inline std::mutex opening;

// The driver, or why there is none that can be used.
CUDA_EXT_COLD inline Result<Driver*> open_driver() noexcept {
  if (Driver* driver = opened_driver.load(std::memory_order_acquire)) {
    if (driver->forked()) return failure(ErrorKind::driver, {after_fork()});
    return driver;
  }
  if (!why_no_driver.load(std::memory_order_acquire)) {
    // Said before the lock is taken: a process that is forked while another thread holds it never gets it.
    long process = 0;
    if (!opening_process.compare_exchange_strong(process, current_process()) &&
        process != current_process()) {
      return failure(ErrorKind::driver, {after_fork()});
    }
    const std::lock_guard<std::mutex> lock(opening);
    if (Driver* driver = opened_driver.load(std::memory_order_relaxed)) return driver;
    if (!why_no_driver.load(std::memory_order_relaxed)) {
      auto driver = std::make_unique<Driver>();
      Failure reason = driver->open();
      if (!reason) {
        opened_driver.store(driver.get(), std::memory_order_release);
        return driver.release();  // never freed: other threads may launch until the process ends
      }
      reason->hold(*reason, 1);  // as long as the process lives
      why_no_driver.store(static_cast<const SharedError*>(&*reason), std::memory_order_release);
    }
  }
  return Failure(*why_no_driver.load(std::memory_order_relaxed));
}

// The context in which a launch in some stream runs. What is made current is so for as long as this lives,
// but for one thing: where a thread has no context and the stream is a default one, the primary context of
// the first GPU becomes current, and stays so, as with the CUDA runtime.
class CurrentContext {
 public:
  CurrentContext() = default;
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext() {
    driver_api::Context popped = nullptr;
    if (is_pushed_) driver_->call.pop_context(&popped);
  }

  // Opens the driver too, if that has not been done.
  CUDA_EXT_COLD Failure enter(Stream stream) noexcept {
    driver_ = opened_driver.load(std::memory_order_acquire);
    if (!driver_) {
      auto opened = open_driver();
      if (!opened) return std::move(opened).failure();
      driver_ = *opened;
    }
    driver_api::Context current = nullptr;
    if (auto failed = check("cuCtxGetCurrent", driver_->call.current_context(&current))) return failed;
    if (auto failed = is_default(stream) ? enter_any(current) : enter_that_of(stream, current)) return failed;
    return check("cuCtxGetDevice", driver_->call.current_device(&device_));
  }

  // Once it is entered.
  Driver& driver() const noexcept { return *driver_; }
  int device() const noexcept { return device_; }

 private:
  // Handles that stand for streams of every context.
  static bool is_default(Stream stream) noexcept { return reinterpret_cast<std::uintptr_t>(stream) <= 2; }

  Failure enter_any(driver_api::Context current) noexcept {
    if (current) return nullptr;
    auto primary = driver_->primary_context(0);
    if (!primary) return std::move(primary).failure();
    return check("cuCtxSetCurrent", driver_->call.set_current_context(*primary));
  }

  Failure enter_that_of(Stream stream, driver_api::Context current) noexcept {
    driver_api::Context context = nullptr;
    const auto status = driver_->call.context_of_stream(stream, &context);
    if (auto failed = check("cuStreamGetCtx", status)) return failed;
    if (context == current) return nullptr;
    if (auto failed = check("cuCtxPushCurrent", driver_->call.push_context(context))) return failed;
    is_pushed_ = true;
    return nullptr;
  }

  Failure check(const char* function, driver_api::Code status) noexcept {
    return status ? driver_->failed(function, status) : nullptr;
  }

  Driver* driver_ = nullptr;
  int device_ = 0;
  bool is_pushed_ = false;
};

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
