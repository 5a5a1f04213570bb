// Texts that are joined from parts, and failures: errors with such texts. They replace the exceptions of the
// standard library, too.

#pragma once

#include "../interface.hpp"

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>

// For functions that run once or after an error: they are optimized for size and not inlined.
#if defined(__GNUC__)
#define CUDA_EXT_COLD __attribute__((cold, noinline))
#elif defined(_MSC_VER)
#define CUDA_EXT_COLD __declspec(noinline)
#else
#define CUDA_EXT_COLD
#endif

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// A string or an integer, as text. A template for each length of a literal would be slow to compile.
class Part {
 public:
  Part(const char* text) noexcept : text_(text) {}
  Part(std::string_view text) noexcept : text_(text) {}
  Part(const std::string& text) noexcept : text_(text) {}

  template <class Number, std::enable_if_t<std::is_integral_v<Number>, int> = 0>
  Part(Number number) noexcept
      : number_(static_cast<unsigned long long>(number)), kind_(number < Number{} ? negative : positive) {}

  std::string text() const {
    if (kind_ == none) return std::string(text_);
    // std::to_string has a table that gcc makes a unique symbol, with which a shared object is never unloaded.
    char digits[24];
    const auto absolute = kind_ == negative ? 0 - number_ : number_;
    std::snprintf(digits, sizeof digits, "%s%llu", kind_ == negative ? "-" : "", absolute);
    return digits;
  }

 private:
  enum Kind : char { none, positive, negative };

  std::string_view text_;
  unsigned long long number_ = 0;
  Kind kind_ = none;
};

using Parts = std::initializer_list<Part>;

// Joins the `parts`.
inline std::string joined(Parts parts) {
  std::string text;
  for (const Part& part : parts) text += part.text();
  return text;
}

// Returns the environment variable, or nothing if it is not set.
inline std::string setting(const char* name) {
#if defined(_MSC_VER)
#pragma warning(suppress : 4996)  // of getenv; nothing here changes the environment
#endif
  const char* value = std::getenv(name);
  return value ? value : "";
}

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
    case ErrorKind::out_of_memory: throw std::bad_alloc();
  }
  throw DriverError(error);
#else
  std::fprintf(stderr, "%s\n", error.message);  // the loader was compiled without exceptions
  std::abort();
#endif
}

// An error with its text. Its last holder destroys it.
struct SharedError : ErrorInfo {
  SharedError(ErrorKind error, std::string content, int status)
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

// Returns an error whose message consists of `parts`. `code` is the driver's result of a failed call.
CUDA_EXT_COLD inline Failure failure(ErrorKind kind, Parts parts, int code = 0) {
  return Failure(*new SharedError(kind, joined(parts), code));
}

// The error for a lack of host memory, which needs no memory itself.
CUDA_EXT_COLD inline Failure out_of_memory() noexcept {
  static constexpr ErrorInfo error{ErrorKind::out_of_memory, "out of host memory", 0,
                                   [](const ErrorInfo&, int) noexcept {}, CUDA_EXT_ABI::raise};
  return Failure(error);
}

#if CUDA_EXT_EXCEPTIONS
CUDA_EXT_COLD inline Failure error_of(const std::exception& exception) noexcept {
  try {
    return failure(ErrorKind::toolchain, {exception.what()});
  } catch (...) {
    return out_of_memory();
  }
}
#endif

// Returns the result of `body`, or a failure instead of an exception. All functions that projects call go
// through this, unless they neither allocate memory nor use the file system.
template <class Body>
auto guarded(const Body& body) noexcept -> decltype(body()) {
#if CUDA_EXT_EXCEPTIONS
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& exception) {
    return error_of(exception);
  }
#else
  return body();
#endif
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
