// Failures, with a text put together from its parts.

#pragma once

#include "../interface.hpp"
#include "text.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

// For what runs once, or when something went wrong, and so must not grow what runs every time.
#if defined(__GNUC__)
#define CUDA_EXT_COLD __attribute__((cold, noinline))
#elif defined(_MSC_VER)
#define CUDA_EXT_COLD __declspec(noinline)
#else
#define CUDA_EXT_COLD
#endif

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

[[noreturn]] CUDA_EXT_COLD inline void raise(const ErrorInfo& error) {
#if CUDA_EXT_EXCEPTIONS
  switch (error.kind) {
    case ErrorKind::argument: throw ArgumentError(error);
    case ErrorKind::kernel_not_found: throw KernelNotFoundError(error);
    case ErrorKind::driver: break;
    case ErrorKind::no_driver: throw NoDriverError(error);
    case ErrorKind::driver_too_old: throw DriverTooOldError(error);
    case ErrorKind::no_device: throw NoDeviceError(error);
    case ErrorKind::launch: throw LaunchError(error);
    case ErrorKind::load: throw LoadError(error);
    case ErrorKind::no_image: throw NoImageError(error);
    case ErrorKind::ptx_too_new: throw PtxTooNewError(error);
    case ErrorKind::driver_call: throw DriverCallError(error);
    case ErrorKind::compilation: throw CompilationError(error);
    case ErrorKind::toolchain: throw ToolchainError(error);
  }
  throw DriverError(error);
#else
  std::fprintf(stderr, "%s\n", error.message);  // the loader was compiled without exceptions
  std::abort();
#endif
}

// An error with its text, which goes with the last that holds it. Where memory runs out, the program ends.
struct SharedError : ErrorInfo {
  SharedError(ErrorKind error, std::string content, int status) noexcept
      : ErrorInfo{error, nullptr, status, change_holders, CUDA_EXT_ABI::raise}, text(std::move(content)) {
    message = text.c_str();
  }

  static void change_holders(const ErrorInfo& info, int change) noexcept {
    auto& self = static_cast<const SharedError&>(info);
    if (self.holders.fetch_add(change, std::memory_order_acq_rel) + change == 0) delete &self;
  }

  std::string text;
  mutable std::atomic<int> holders{0};
};

// The message consists of `parts`. `code` is what the driver answered to a call that failed.
CUDA_EXT_COLD inline Failure failure(ErrorKind kind, Parts parts, int code = 0) noexcept {
  return Failure(*new SharedError(kind, joined(parts), code));
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
