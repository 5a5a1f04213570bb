// Errors, as exceptions and, for projects without exceptions, as results.
//
// They have the classes and messages of the Python package (cuda_ext/errors.py).

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// One value for each class of exceptions below.
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
  out_of_memory,  // of the host; std::bad_alloc
};

// `code` is the CUresult of the driver call that failed, or 0.
struct CUDA_EXT_VISIBLE ErrorInfo {
  ErrorKind kind;
  const char* message;
  int code;

  // Functions of the loader: they change the number of holders, or throw the exception.
  void (*hold)(const ErrorInfo& info, int change) noexcept;
  void (*raise)(const ErrorInfo& info);
};

// A shared pointer to the reason for a failure; empty after a success.
class CUDA_EXT_VISIBLE Failure {
 public:
  CUDA_EXT_HIDDEN constexpr Failure(std::nullptr_t = nullptr) noexcept {}
  CUDA_EXT_HIDDEN explicit Failure(const ErrorInfo& info) noexcept : info_(&info) { info.hold(info, 1); }
  CUDA_EXT_HIDDEN Failure(const Failure& other) noexcept : info_(other.info_) {
    if (info_) info_->hold(*info_, 1);
  }
  CUDA_EXT_HIDDEN Failure(Failure&& other) noexcept : info_(std::exchange(other.info_, nullptr)) {}
  CUDA_EXT_HIDDEN Failure& operator=(Failure other) noexcept {
    std::swap(info_, other.info_);
    return *this;
  }
  CUDA_EXT_HIDDEN ~Failure() {
    if (info_) info_->hold(*info_, -1);
  }

  CUDA_EXT_HIDDEN explicit operator bool() const noexcept { return info_ != nullptr; }
  CUDA_EXT_HIDDEN const ErrorInfo& operator*() const noexcept { return *info_; }
  CUDA_EXT_HIDDEN const ErrorInfo* operator->() const noexcept { return info_; }
#if CUDA_EXT_EXCEPTIONS
  [[noreturn]] CUDA_EXT_HIDDEN void raise() const {
    info_->raise(*info_);
    std::terminate();  // compilers cannot know that a function pointer does not return
  }
#endif

 private:
  const ErrorInfo* info_ = nullptr;
};

#if CUDA_EXT_EXCEPTIONS

class CUDA_EXT_VISIBLE Error : public std::exception {
 public:
  CUDA_EXT_HIDDEN explicit Error(const ErrorInfo& info) noexcept : info_(info) {}

  const char* what() const noexcept override { return info_->message; }
  CUDA_EXT_HIDDEN ErrorKind kind() const noexcept { return info_->kind; }

 protected:
  Failure info_;
};

// An argument or an option of a launch does not fit the kernel; nothing reached the GPU.
struct CUDA_EXT_VISIBLE ArgumentError : Error { using Error::Error; };

// The module has no kernel, symbol or instantiation of that name.
struct CUDA_EXT_VISIBLE KernelNotFoundError : Error { using Error::Error; };

// The CUDA driver is missing, unusable, or refused a request. `code` is its CUresult, or 0.
struct CUDA_EXT_VISIBLE DriverError : Error {
  using Error::Error;
  CUDA_EXT_HIDDEN int code() const noexcept { return info_->code; }
};

// There is no driver library on this machine.
struct CUDA_EXT_VISIBLE NoDriverError : DriverError { using DriverError::DriverError; };

// The driver is older than the images need.
struct CUDA_EXT_VISIBLE DriverTooOldError : DriverError { using DriverError::DriverError; };

// There is a driver, but no GPU that it can use.
struct CUDA_EXT_VISIBLE NoDeviceError : DriverError { using DriverError::DriverError; };

// The driver refused or failed a launch.
struct CUDA_EXT_VISIBLE LaunchError : DriverError { using DriverError::DriverError; };

// The driver refused to load an image.
struct CUDA_EXT_VISIBLE LoadError : DriverError { using DriverError::DriverError; };

// The module holds no image that the GPU can run.
struct CUDA_EXT_VISIBLE NoImageError : LoadError { using LoadError::LoadError; };

// Only PTX fits the GPU, and this driver is older than the PTX.
struct CUDA_EXT_VISIBLE PtxTooNewError : LoadError { using LoadError::LoadError; };

// A function of the driver failed.
struct CUDA_EXT_VISIBLE DriverCallError : DriverError { using DriverError::DriverError; };

// The compiler refused a request on demand. The message contains the compiler's text.
struct CUDA_EXT_VISIBLE CompilationError : Error { using Error::Error; };

// A part of the tool chain that compilation on demand needs is unusable.
struct CUDA_EXT_VISIBLE ToolchainError : Error { using Error::Error; };

#endif

// The error of a Kernel or a Library that is used though it holds none.
inline Failure empty_handle() noexcept {
  static constexpr ErrorInfo error{
      ErrorKind::argument,
      "this Kernel or Library is empty, as after a move or without an initializer; take one from "
      "Library::kernel(), or from cuda_ext_library() of a generated header",
      0, [](const ErrorInfo&, int) noexcept {},
      [](const ErrorInfo& info) {
#if CUDA_EXT_EXCEPTIONS
        throw ArgumentError(info);
#else
        static_cast<void>(info);
#endif
      }};
  return Failure(error);
}

// A value or an error. It is move-only, and compilers warn if it is discarded.
template <class T>
class [[nodiscard]] CUDA_EXT_VISIBLE Result {
 public:
  CUDA_EXT_HIDDEN Result(Result&&) noexcept = default;
  CUDA_EXT_HIDDEN Result& operator=(Result&&) noexcept = default;
  CUDA_EXT_HIDDEN ~Result() = default;
  CUDA_EXT_HIDDEN Result(T value) noexcept : value_(std::move(value)) {}
  CUDA_EXT_HIDDEN Result(Failure failure) noexcept : failure_(std::move(failure)) {}

  CUDA_EXT_HIDDEN bool ok() const noexcept { return !failure_; }
  CUDA_EXT_HIDDEN explicit operator bool() const noexcept { return ok(); }

  // Only after a failure.
  CUDA_EXT_HIDDEN const ErrorInfo& error() const noexcept { return *failure_; }
  CUDA_EXT_HIDDEN Failure failure() && noexcept { return std::move(failure_); }

  // Only after a success.
  CUDA_EXT_HIDDEN T& operator*() & noexcept { return value_; }
  CUDA_EXT_HIDDEN const T& operator*() const& noexcept { return value_; }
  CUDA_EXT_HIDDEN T&& operator*() && noexcept { return std::move(value_); }
  CUDA_EXT_HIDDEN T* operator->() noexcept { return &value_; }
  CUDA_EXT_HIDDEN const T* operator->() const noexcept { return &value_; }

#if CUDA_EXT_EXCEPTIONS
  // Throws the exception of the error if there is one.
  CUDA_EXT_HIDDEN T& value() & {
    if (failure_) failure_.raise();
    return value_;
  }
  CUDA_EXT_HIDDEN const T& value() const& {
    if (failure_) failure_.raise();
    return value_;
  }
  CUDA_EXT_HIDDEN T value() && {
    if (failure_) failure_.raise();
    return std::move(value_);
  }
#endif

 private:
  T value_{};
  Failure failure_;
};

template <>
class [[nodiscard]] CUDA_EXT_VISIBLE Result<void> {
 public:
  CUDA_EXT_HIDDEN Result(Result&&) noexcept = default;
  CUDA_EXT_HIDDEN Result& operator=(Result&&) noexcept = default;
  CUDA_EXT_HIDDEN ~Result() = default;
  CUDA_EXT_HIDDEN Result(Failure failure = nullptr) noexcept : failure_(std::move(failure)) {}

  CUDA_EXT_HIDDEN bool ok() const noexcept { return !failure_; }
  CUDA_EXT_HIDDEN explicit operator bool() const noexcept { return ok(); }

  // Only after a failure.
  CUDA_EXT_HIDDEN const ErrorInfo& error() const noexcept { return *failure_; }
  CUDA_EXT_HIDDEN Failure failure() && noexcept { return std::move(failure_); }

#if CUDA_EXT_EXCEPTIONS
  // Throws the exception of the error if there is one.
  CUDA_EXT_HIDDEN void value() const {
    if (failure_) failure_.raise();
  }
#endif

 private:
  Failure failure_;
};

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
