// The CUDA driver: its functions, its GPUs, its errors, and the context in which a function runs.
//
// The driver is opened once in a process, at its first use, in any thread. If that fails, the error is kept. Each
// shared object opens its own driver.

#pragma once

#include "driver_api.hpp"
#include "shared_library.hpp"

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

// Writes a CUDA version, 1000 * major + 10 * minor, as text.
inline std::string version_text(int version) { return joined({version / 1000, ".", version % 1000 / 10}); }

inline long current_process() noexcept {
#if defined(_WIN32)
  return 1;  // processes are not forked
#else
  return long{::getpid()};
#endif
}

class Driver {
 public:
  struct Device {
    int capability = 0;  // 90 for 9.0
    char name[128] = "";
    std::atomic<driver_api::Context> primary_context{nullptr};
  };

  driver_api::Functions call{};
  int version = 0;
  int count = 0;  // the number of GPUs that are visible to this process
  std::unique_ptr<Device[]> devices;
  std::mutex limiting;  // held while the limits of a kernel are changed

  // Opens the library and reads all constant data. This is called once, before anything else.
  Failure open();

  // True if this process was forked from the one that opened the driver, so that the driver cannot be used
  // here.
  bool forked() const noexcept { return process_ != current_process(); }

  // "sm_90"
  std::string name_of(int device) const { return joined({"sm_", at(device).capability}); }

  Device& at(int device) const noexcept { return devices[static_cast<std::size_t>(device)]; }

  // Returns an attribute of `device`; INT_MAX, which is no limit, if the driver does not know it.
  int attribute(int device, driver_api::DeviceAttribute attribute) const noexcept {
    int value = 0;
    return call.device_attribute(&value, attribute, device) == driver_api::success ? value : INT_MAX;
  }

  // Returns the primary context of `device`, which all libraries of this process share. It is never released.
  Result<driver_api::Context> primary_context(int device);

  // Returns the error of `function`.
  Failure failed(const char* function, driver_api::Code status);

  // Writes the error as text, for a call for `subject`. The first error after which all calls fail is kept
  // and added to the texts of all later errors; `is_fault` is set to true if this is that error.
  std::string explain(const char* function, driver_api::Code status, std::string_view subject,
                      bool& is_fault);

 private:
  using GetFunction = driver_api::Code(CUDA_EXT_CALL*)(const char* name, void** function, int version,
                                                       std::uint64_t flags, int* found);

  template <class Function>
  bool find(Function& function, const char* name, int since);
  bool find_first_functions();
  bool find_other_functions();
  Failure read_devices();
  Failure unusable(const char* function, driver_api::Code status);
  Failure too_old();

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

// True if `status` is the error of an earlier kernel, after which all calls of this process fail.
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

CUDA_EXT_COLD inline Failure Driver::failed(const char* function, driver_api::Code status) {
  if (forked()) return failure(ErrorKind::driver, {after_fork()});
  bool is_fault = false;
  return failure(ErrorKind::driver_call, {explain(function, status, "", is_fault)}, status);
}

CUDA_EXT_COLD inline std::string Driver::explain(const char* function, driver_api::Code status,
                                                 std::string_view subject, bool& is_fault) {
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

CUDA_EXT_COLD inline Result<driver_api::Context> Driver::primary_context(int device) {
  std::atomic<driver_api::Context>& known = at(device).primary_context;
  driver_api::Context context = known.load(std::memory_order_acquire);
  if (context) return context;
  // Two threads may call this at once; both get the same context.
  const auto status = call.retain_primary_context(&context, device);
  if (status) return failed("cuDevicePrimaryCtxRetain", status);
  known.store(context, std::memory_order_release);
  return context;
}

CUDA_EXT_COLD inline std::string no_device() {
  const std::string text = "the CUDA driver finds no GPU";
#if defined(_MSC_VER)
#pragma warning(suppress : 4996)  // of getenv; nothing here changes the environment
#endif
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) return text + "; see whether nvidia-smi lists one";
  return joined({text, " among CUDA_VISIBLE_DEVICES='", visible, "'; change or unset that"});
}

// Returns the error of `function`, cuInit or cuGetProcAddress, with a remedy.
CUDA_EXT_COLD inline Failure Driver::unusable(const char* function, driver_api::Code status) {
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
      remedy = "this GPU does not support CUDA's compatibility package; remove it, or upgrade the driver";
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

CUDA_EXT_COLD inline Failure Driver::too_old() {
  return failure(ErrorKind::driver_too_old, {"the NVIDIA driver supports CUDA up to ", version_text(version),
                                             ", and launches require 12.0 or newer; upgrade the driver"});
}

CUDA_EXT_COLD inline Failure Driver::open() {
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
                                          "); launching kernels requires an NVIDIA GPU and its driver"});
  }
  library.find(get_function_, "cuGetProcAddress_v2");
  if (!get_function_) {  // the driver is older than 12.0
    library.find(call.driver_version, "cuDriverGetVersion");
    if (call.driver_version) call.driver_version(&version);
    return too_old();
  }
  if (!find_first_functions()) return std::move(missing_);
  if (const auto status = call.init(0)) return unusable("cuInit", status);
  if (const auto status = call.driver_version(&version)) return failed("cuDriverGetVersion", status);
  if (version < 12000) return too_old();
  if (!find_other_functions()) return std::move(missing_);
  if (const auto status = call.device_count(&count)) return failed("cuDeviceGetCount", status);
  if (count <= 0) return failure(ErrorKind::no_device, {no_device()});
  return read_devices();
#endif
}

CUDA_EXT_COLD inline Failure Driver::read_devices() {
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
    status = call.device_name(at(device).name, sizeof at(device).name, device);
    if (status) return failed("cuDeviceGetName", status);
  }
  return nullptr;
}

template <class Function>
bool Driver::find(Function& function, const char* name, int since) {
  void* address = nullptr;
  int found = 0;
  const auto status = get_function_(name, &address, since, 0, &found);
  function = reinterpret_cast<Function>(address);
  if (status == driver_api::success && address) return true;
  if (status == driver_api::stub_library) {
    missing_ = unusable("cuGetProcAddress", status);
  } else {
    missing_ = failure(ErrorKind::driver_too_old, {"the NVIDIA driver has no ", name, " of CUDA ",
                                                   version_text(since), "; upgrade the driver"});
  }
  return false;
}

#define CUDA_EXT_FIND(function, name, since, ...) &&find(call.function, name, since)
CUDA_EXT_COLD inline bool Driver::find_first_functions() { return true CUDA_EXT_FIRST_FUNCTIONS(CUDA_EXT_FIND); }
CUDA_EXT_COLD inline bool Driver::find_other_functions() { return true CUDA_EXT_OTHER_FUNCTIONS(CUDA_EXT_FIND); }
#undef CUDA_EXT_FIND

// The driver, once it is open. It is never closed: other threads may launch until the process ends.
inline std::atomic<Driver*> opened_driver{nullptr};

inline std::atomic<const ErrorInfo*> opening_error{nullptr};
inline std::atomic<long> opening_process{0};
inline std::mutex opening;

// Returns the driver, or the error of opening it.
CUDA_EXT_COLD inline Result<Driver*> open_driver() {
  if (Driver* driver = opened_driver.load(std::memory_order_acquire)) {
    if (driver->forked()) return failure(ErrorKind::driver, {after_fork()});
    return driver;
  }
  if (!opening_error.load(std::memory_order_acquire)) {
    // Test this before the lock: a process that was forked while another thread held the lock never gets it.
    long process = 0;
    if (!opening_process.compare_exchange_strong(process, current_process()) &&
        process != current_process()) {
      return failure(ErrorKind::driver, {after_fork()});
    }
    const std::lock_guard<std::mutex> lock(opening);
    if (Driver* driver = opened_driver.load(std::memory_order_relaxed)) return driver;
    if (!opening_error.load(std::memory_order_relaxed)) {
      auto driver = std::make_unique<Driver>();
      const Failure error = driver->open();
      if (!error) {
        opened_driver.store(driver.get(), std::memory_order_release);
        return driver.release();
      }
      error->hold(*error, 1);  // until the process ends
      opening_error.store(&*error, std::memory_order_release);
    }
  }
  return Failure(*opening_error.load(std::memory_order_relaxed));
}

// True if the handle is a stream that each context has: CU_STREAM_LEGACY or CU_STREAM_PER_THREAD.
inline bool is_default(Stream stream) noexcept { return reinterpret_cast<std::uintptr_t>(stream) <= 2; }

// True if this thread had a context for launches in a default stream. If the program then removes that, a launch
// fails and is repeated with another context.
inline thread_local bool had_context = false;

// The context in which a launch in a stream runs. It is current during the lifetime of this object. If the
// thread has no context and the stream is a default one, the primary context of the first GPU becomes and
// stays current, as with the CUDA runtime.
class CurrentContext {
 public:
  CurrentContext() = default;
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext() {
    driver_api::Context popped = nullptr;
    if (is_pushed_) driver_->call.pop_context(&popped);
  }

  // Opens the driver, if it is not open, and makes the context of `stream` current.
  CUDA_EXT_COLD Failure enter(Stream stream) {
    driver_ = opened_driver.load(std::memory_order_acquire);
    if (!driver_) {
      auto opened = open_driver();
      if (!opened) return std::move(opened).failure();
      driver_ = *opened;
    }
    driver_api::Context current = nullptr;
    if (auto failed = check("cuCtxGetCurrent", driver_->call.current_context(&current))) return failed;
    if (auto failed = is_default(stream) ? enter_primary(current) : enter_stream(stream, current)) {
      return failed;
    }
    had_context = had_context || is_default(stream);
    return check("cuCtxGetDevice", driver_->call.current_device(&device_));
  }

  // These require a successful call of enter().
  Driver& driver() const noexcept { return *driver_; }
  int device() const noexcept { return device_; }

 private:
  Failure enter_primary(driver_api::Context current) {
    if (current) return nullptr;
    auto primary = driver_->primary_context(0);
    if (!primary) return std::move(primary).failure();
    return check("cuCtxSetCurrent", driver_->call.set_current_context(*primary));
  }

  Failure enter_stream(Stream stream, driver_api::Context current) {
    driver_api::Context context = nullptr;
    const auto status = driver_->call.context_of_stream(stream, &context);
    if (auto failed = check("cuStreamGetCtx", status)) return failed;
    if (context == current) return nullptr;
    if (auto failed = check("cuCtxPushCurrent", driver_->call.push_context(context))) return failed;
    is_pushed_ = true;
    return nullptr;
  }

  Failure check(const char* function, driver_api::Code status) {
    return status ? driver_->failed(function, status) : nullptr;
  }

  Driver* driver_ = nullptr;
  int device_ = 0;
  bool is_pushed_ = false;
};

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
