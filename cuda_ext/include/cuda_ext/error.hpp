// Errors, as exceptions and, for projects without exceptions, as results.
//
// Everything below works with results; exceptions are thrown from them at the outermost layer. The classes
// and their messages are those of the Python package (cuda_ext/errors.py). Where memory runs out, the program
// ends.
//
// The exceptions are the same in all shared objects of a process, whichever version of these headers each
// has. So neither they nor ErrorInfo change while the namespace is v1.

#pragma once

#include "data.hpp"
#include "text.hpp"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

// Whether there are functions that throw. They are left out, and nothing else changes, where the compiler has
// no exceptions or a project defines this as 0.
#if !defined(CUDA_EXT_EXCEPTIONS)
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
#define CUDA_EXT_EXCEPTIONS 1
#else
#define CUDA_EXT_EXCEPTIONS 0
#endif
#endif

// For what runs once, or when something went wrong, and so must not grow what runs every time.
#if defined(__GNUC__)
#define CUDA_EXT_COLD __attribute__((cold, noinline))
#elif defined(_MSC_VER)
#define CUDA_EXT_COLD __declspec(noinline)
#else
#define CUDA_EXT_COLD
#endif

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {

// One for each class of exceptions below.
enum class CUDA_EXT_VISIBLE ErrorKind {
  argument,
  kernel_not_found,
  driver,
  no_driver,
  driver_too_old,
  no_device,
  launch,
  load,
  no_image,
  ptx_too_new,
  driver_call,
  compilation,
  toolchain,
};

// `code` is the CUresult of the call of the driver that failed, and 0 where none did.
struct ErrorInfo {
  ErrorKind kind;
  std::string message;
  int code;
};

// Why something did not work; empty where it did.
using Failure = std::unique_ptr<const ErrorInfo>;

// The message consists of `parts`. `code` is what the driver answered to a call that failed.
CUDA_EXT_COLD inline Failure failure(ErrorKind kind, Parts parts, int code = 0) noexcept {
  return Failure(new ErrorInfo{kind, joined(parts), code});
}

#if CUDA_EXT_EXCEPTIONS

class CUDA_EXT_VISIBLE Error : public std::runtime_error {
 public:
  CUDA_EXT_HIDDEN explicit Error(const ErrorInfo& info)
      : std::runtime_error(info.message), kind_(info.kind) {}

  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

// An argument or an option of a launch does not fit the kernel; nothing reached the GPU.
class CUDA_EXT_VISIBLE ArgumentError : public Error {
 public:
  using Error::Error;
};

// The module has no kernel, symbol or instantiation of that name.
class CUDA_EXT_VISIBLE KernelNotFoundError : public Error {
 public:
  using Error::Error;
};

// The CUDA driver is missing, unusable, or refused a request. `code` is its CUresult, 0 where there is none.
class CUDA_EXT_VISIBLE DriverError : public Error {
 public:
  CUDA_EXT_HIDDEN explicit DriverError(const ErrorInfo& info) : Error(info), code_(info.code) {}

  int code() const noexcept { return code_; }

 private:
  int code_;
};

// There is no driver library on this machine.
class CUDA_EXT_VISIBLE NoDriverError : public DriverError {
 public:
  using DriverError::DriverError;
};

// The driver is older than the images need.
class CUDA_EXT_VISIBLE DriverTooOldError : public DriverError {
 public:
  using DriverError::DriverError;
};

// There is a driver, but no GPU that it can use.
class CUDA_EXT_VISIBLE NoDeviceError : public DriverError {
 public:
  using DriverError::DriverError;
};

// The driver refused or failed a launch.
class CUDA_EXT_VISIBLE LaunchError : public DriverError {
 public:
  using DriverError::DriverError;
};

// The driver refused to load an image.
class CUDA_EXT_VISIBLE LoadError : public DriverError {
 public:
  using DriverError::DriverError;
};

// The module holds no image that the GPU can run.
class CUDA_EXT_VISIBLE NoImageError : public LoadError {
 public:
  using LoadError::LoadError;
};

// Only PTX fits the GPU, and this driver is older than the PTX.
class CUDA_EXT_VISIBLE PtxTooNewError : public LoadError {
 public:
  using LoadError::LoadError;
};

// A function of the driver failed.
class CUDA_EXT_VISIBLE DriverCallError : public DriverError {
 public:
  using DriverError::DriverError;
};

// The compiler refused, on demand, what was asked for; the message holds its own text.
class CUDA_EXT_VISIBLE CompilationError : public Error {
 public:
  using Error::Error;
};

// A part of the tool chain, which compiling on demand takes, is unusable.
class CUDA_EXT_VISIBLE ToolchainError : public Error {
 public:
  using Error::Error;
};

[[noreturn]] CUDA_EXT_COLD inline void raise(const ErrorInfo& error) {
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
}

#endif

// A value or an error. It is move-only, and compilers warn if it is discarded.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) noexcept : value_(std::move(value)) {}
  Result(Failure failure) noexcept : failure_(std::move(failure)) {}

  bool ok() const noexcept { return !failure_; }
  explicit operator bool() const noexcept { return ok(); }

  // Only where something went wrong.
  const ErrorInfo& error() const noexcept { return *failure_; }
  Failure failure() && noexcept { return std::move(failure_); }

  // Only where nothing did.
  T& operator*() & noexcept { return value_; }
  T&& operator*() && noexcept { return std::move(value_); }
  T* operator->() noexcept { return &value_; }

#if CUDA_EXT_EXCEPTIONS
  // Throws the exception of the error if there is one.
  T& value() & {
    if (failure_) raise(*failure_);
    return value_;
  }
  T value() && {
    if (failure_) raise(*failure_);
    return std::move(value_);
  }
#endif

 private:
  T value_{};
  Failure failure_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result(Failure failure = nullptr) noexcept : failure_(std::move(failure)) {}

  bool ok() const noexcept { return !failure_; }
  explicit operator bool() const noexcept { return ok(); }

  // Only where something went wrong.
  const ErrorInfo& error() const noexcept { return *failure_; }
  Failure failure() && noexcept { return std::move(failure_); }

#if CUDA_EXT_EXCEPTIONS
  // Throws the exception of the error if there is one.
  void value() const {
    if (failure_) raise(*failure_);
  }
#endif

 private:
  Failure failure_;
};

}  // namespace v1
}  // namespace cuda_ext
