// The driver, opened at its first use, and the context in which a function runs.
//
// The driver is opened once in a process, in any thread. If that fails, the error is kept. Each shared object
// opens its own driver.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "driver.hpp"
#include "driver_api.hpp"
#include "failure.hpp"

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

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

// True if there is a context for a launch in `stream`; a default stream uses the current context. A thread
// asks until it has a context, since the answer takes a hundredth of a launch. If the program then removes
// the context, a launch fails and is repeated with another context.
inline bool has_context(const Driver& driver, Stream stream) noexcept {
  static thread_local bool had_one = false;
  if (had_one || !is_default(stream)) return true;
  driver_api::Context current = nullptr;
  had_one = !driver.call.current_context(&current) && current;
  return had_one;
}

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
