// The interfaces of modules and kernels that the loader implements, and the handles of projects.

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// A name as an argument: a literal, a std::string, a std::string_view, or the like.
struct Text {
  const char* data;
  std::size_t size;

  Text(const char* text) noexcept : data(text ? text : ""), size(std::strlen(data)) {}
  template <class T, class = decltype(std::declval<const T&>().data() + std::declval<const T&>().size())>
  Text(const T& text) noexcept : data(text.data()), size(text.size()) {}
};

// The address of a variable on one GPU, and its size in bytes.
struct CUDA_EXT_VISIBLE Symbol {
  void* address = nullptr;
  std::size_t size = 0;
};

// The resources of a kernel on one GPU: registers and bytes of local memory per thread, bytes of static
// shared memory per block and of constant memory, the largest number of threads per block, and the versions
// of PTX and of the machine code (90 for 9.0).
struct CUDA_EXT_VISIBLE Attributes {
  int registers = 0;
  int local = 0;
  int shared = 0;
  int constant = 0;
  int most_threads = 0;
  int ptx = 0;
  int binary = 0;
};

// An integer of any type that was passed for a parameter that cannot hold it.
struct Integer {
  unsigned long long bits = 0;
  bool is_signed = false;
};

// A kernel of a module, loaded or not. Functions with a launch configuration work on the GPU of its stream.
// The others work on the GPU of the current context, or else on the first.
class ModuleKernel {
 public:
  // These change the number of the module's holders.
  virtual void hold(int change) noexcept = 0;
  virtual const KernelData& data() const noexcept = 0;

  // These launch the kernel. `arguments` are the addresses of the arguments. The second function throws
  // errors.
  virtual Failure launch(const LaunchConfig& config, void** arguments) noexcept = 0;
  virtual void launch_or_raise(const LaunchConfig& config, void** arguments) = 0;
  // Loads the kernel and raises its limits, as a launch with `config` does.
  virtual Failure prepare(const LaunchConfig& config) noexcept = 0;
  // Returns the error if `count` arguments do not have the `sizes` of the parameters, in a launch in `stream`.
  virtual Failure check(Stream stream, const std::size_t* sizes, std::size_t count) noexcept = 0;
  // Returns the error for an argument that its parameter cannot hold: the first of `given` that is not
  // nullptr. There is one for each parameter.
  virtual Failure refuse(const Integer* const* given) const noexcept = 0;

  virtual Result<::CUkern_st*> handle() noexcept = 0;
  virtual Result<int> attribute(int which) noexcept = 0;
  virtual Failure set_attribute(int which, int value) noexcept = 0;
  virtual Result<int> blocks_per_multiprocessor(int threads, std::size_t shared) noexcept = 0;
  virtual Result<int> best_block(std::size_t shared) noexcept = 0;

 protected:
  ~ModuleKernel() = default;
};

// A module, which is unloaded and destroyed with its last holder.
class Module {
 public:
  virtual void hold(int change) noexcept = 0;
  virtual const ModuleData& data() const noexcept = 0;
  virtual Failure open_driver() noexcept = 0;
  virtual Failure load() noexcept = 0;
  virtual ModuleKernel& kernel(std::size_t index) noexcept = 0;
  virtual Result<ModuleKernel*> find_kernel(Text name) noexcept = 0;
  // Finds a variable on the GPU of the stream.
  virtual Result<Symbol> symbol(std::size_t index, Stream stream) noexcept = 0;
  virtual Result<Symbol> find_symbol(Text name, Stream stream) noexcept = 0;
  // Copies between the variable `name`, which must have `size` bytes, and the host, like cuMemcpyHtoDAsync or
  // cuMemcpyDtoHAsync.
  virtual Failure copy(const Symbol& symbol, Text name, void* host, std::size_t size, bool to_gpu,
                       Stream stream) noexcept = 0;

 protected:
  ~Module() = default;
};

// A pointer to a module, or to one of its kernels. It is one of the module's holders.
template <class T>
class CUDA_EXT_VISIBLE Held {
 public:
  CUDA_EXT_HIDDEN constexpr Held(T* held = nullptr) noexcept : held_(held) {}
  CUDA_EXT_HIDDEN Held(Held&& other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
  CUDA_EXT_HIDDEN Held& operator=(Held&& other) noexcept {
    std::swap(held_, other.held_);
    return *this;
  }
  CUDA_EXT_HIDDEN ~Held() {
    if (held_) held_->hold(-1);
  }

  CUDA_EXT_HIDDEN T& operator*() const noexcept { return *held_; }
  CUDA_EXT_HIDDEN T* operator->() const noexcept { return held_; }
  CUDA_EXT_HIDDEN explicit operator bool() const noexcept { return held_ != nullptr; }

  // Calls a function of it, if there is one.
  template <class Returned, class... Parameters, class... Arguments>
  CUDA_EXT_HIDDEN Returned call(Returned (T::*function)(Parameters...) noexcept, Arguments... arguments) const noexcept {
    if (!held_) return empty_handle();
    return (held_->*function)(arguments...);
  }

 private:
  T* held_;
};

template <class T>
const void* address_of(const T& argument) noexcept {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_array_v<T>,
                "the GPU gets an argument as its bytes");
  if constexpr (std::is_null_pointer_v<T>) {
    static constexpr const void* null = nullptr;
    return &null;
  } else {
    return const_cast<const unsigned char*>(&reinterpret_cast<const volatile unsigned char&>(argument));
  }
}

// Launches `kernel` after a check of the number of the arguments and the size of each.
template <class... Arguments>
Failure launch_checked(ModuleKernel& kernel, const LaunchConfig& config, const Arguments&... arguments) noexcept {
  constexpr std::size_t sizes[] = {sizeof(Arguments)..., 0};
  void* addresses[] = {const_cast<void*>(address_of(arguments))..., nullptr};
  if (auto failed = kernel.check(config.stream, sizes, sizeof...(Arguments))) return failed;
  return kernel.launch(config, addresses);
}

// Functions whose names begin with try_ return errors; the others throw them.

// A kernel of a Library. The module stays loaded as long as it has a Library or a Kernel.
class CUDA_EXT_VISIBLE Kernel {
 public:
  CUDA_EXT_HIDDEN Kernel() noexcept = default;  // no kernel, as after a move
  CUDA_EXT_HIDDEN explicit Kernel(ModuleKernel& kernel) noexcept : kernel_(&kernel) { kernel.hold(1); }
  CUDA_EXT_HIDDEN Kernel(Kernel&&) noexcept = default;
  CUDA_EXT_HIDDEN Kernel& operator=(Kernel&&) noexcept = default;
  CUDA_EXT_HIDDEN ~Kernel() = default;

  CUDA_EXT_HIDDEN const KernelData& data() const noexcept { return kernel_->data(); }

  // Launches the kernel, and checks the number of the arguments and the size of each.
  template <class... Arguments>
  CUDA_EXT_HIDDEN Result<void> try_launch(const LaunchConfig& config,
                                          const Arguments&... arguments) const noexcept {
    if (!kernel_) return empty_handle();
    return launch_checked(*kernel_, config, arguments...);
  }

  // Launches the kernel with the addresses of the arguments, and checks nothing.
  CUDA_EXT_HIDDEN Result<void> try_launch_raw(const LaunchConfig& config, void** arguments) const noexcept {
    if (!kernel_) return empty_handle();
    return kernel_->launch(config, arguments);
  }

  // Loads the kernel and raises its limits, as a launch with `config` does. After that, a launch is one call
  // of the driver, which it must be while a graph is captured.
  CUDA_EXT_HIDDEN Result<void> try_prepare(const LaunchConfig& config) const noexcept {
    if (!kernel_) return empty_handle();
    return kernel_->prepare(config);
  }

  // Return the CUkernel, and its CUfunction_attributes on the GPU of the current context.
  CUDA_EXT_HIDDEN Result<::CUkern_st*> try_handle() const noexcept { return kernel_.call(&ModuleKernel::handle); }
  CUDA_EXT_HIDDEN Result<int> try_attribute(int which) const noexcept {
    return kernel_.call(&ModuleKernel::attribute, which);
  }
  CUDA_EXT_HIDDEN Result<Attributes> try_attributes() const noexcept {
    int values[7] = {};
    for (int which = 0; which < 7; which++) {
      auto value = try_attribute(which);
      if (!value) return std::move(value).failure();
      values[which] = *value;
    }
    return Attributes{values[4], values[3], values[1], values[2], values[0], values[5], values[6]};
  }
  CUDA_EXT_HIDDEN Result<void> try_set_attribute(int which, int value) const noexcept {
    return kernel_.call(&ModuleKernel::set_attribute, which, value);
  }

  // Return the number of blocks of `threads` threads that are resident on a multiprocessor at once, and the
  // block size with the highest occupancy. `shared` is the size of a block's dynamic shared memory in bytes.
  CUDA_EXT_HIDDEN Result<int> try_blocks_per_multiprocessor(int threads,
                                                            std::size_t shared = 0) const noexcept {
    return kernel_.call(&ModuleKernel::blocks_per_multiprocessor, threads, shared);
  }
  CUDA_EXT_HIDDEN Result<int> try_best_block(std::size_t shared = 0) const noexcept {
    return kernel_.call(&ModuleKernel::best_block, shared);
  }

#if CUDA_EXT_EXCEPTIONS
  template <class... Arguments>
  CUDA_EXT_HIDDEN void launch(const LaunchConfig& config, const Arguments&... arguments) const {
    try_launch(config, arguments...).value();
  }
  CUDA_EXT_HIDDEN void launch_raw(const LaunchConfig& config, void** arguments) const {
    try_launch_raw(config, arguments).value();
  }
  CUDA_EXT_HIDDEN void prepare(const LaunchConfig& config) const { try_prepare(config).value(); }
  CUDA_EXT_HIDDEN ::CUkern_st* handle() const { return try_handle().value(); }
  CUDA_EXT_HIDDEN int attribute(int which) const { return try_attribute(which).value(); }
  CUDA_EXT_HIDDEN Attributes attributes() const { return try_attributes().value(); }
  CUDA_EXT_HIDDEN void set_attribute(int which, int value) const { try_set_attribute(which, value).value(); }
  CUDA_EXT_HIDDEN int blocks_per_multiprocessor(int threads, std::size_t shared = 0) const {
    return try_blocks_per_multiprocessor(threads, shared).value();
  }
  CUDA_EXT_HIDDEN int best_block(std::size_t shared = 0) const { return try_best_block(shared).value(); }
#endif

 private:
  Held<ModuleKernel> kernel_;
};

// The kernels and symbols of a module. The constructor loads nothing: the first use of a kernel or symbol
// loads its image. The last Library or Kernel unloads all images; no kernel may be running then.
class CUDA_EXT_VISIBLE Library {
 public:
  CUDA_EXT_HIDDEN Library() noexcept = default;  // no library, as after a move
  CUDA_EXT_HIDDEN explicit Library(const ModuleData& data) : module_(data.open(data)) {}
  CUDA_EXT_HIDDEN explicit Library(Module& module) noexcept : module_(&module) {}  // its only holder
  CUDA_EXT_HIDDEN Library(Library&&) noexcept = default;
  CUDA_EXT_HIDDEN Library& operator=(Library&&) noexcept = default;
  CUDA_EXT_HIDDEN ~Library() = default;

  CUDA_EXT_HIDDEN const ModuleData& data() const noexcept { return module_->data(); }

  // True if there is a driver and a GPU that can be used.
  CUDA_EXT_HIDDEN bool gpu_available() const noexcept { return module_ && !module_->open_driver(); }

  // Finds the kernel of a name expression, "ns::axpy<float>"; white space is ignored. With JIT, an
  // instantiation that was not built is compiled for the GPU of the current context. For other GPUs, it is
  // compiled at its first launch there.
  CUDA_EXT_HIDDEN Result<Kernel> try_kernel(Text name) const noexcept {
    auto kernel = module_.call(&Module::find_kernel, name);
    if (!kernel) return std::move(kernel).failure();
    return Kernel(**kernel);
  }

  // Finds the variable of this name on the GPU of the current context.
  CUDA_EXT_HIDDEN Result<Symbol> try_symbol(Text name) const noexcept {
    return module_.call(&Module::find_symbol, name, nullptr);
  }

  // Copy the whole variable `name` on the GPU of the stream from or to an object of its size, in the order of the
  // stream, as cuMemcpyHtoDAsync and cuMemcpyDtoHAsync do.
  template <class Source>
  CUDA_EXT_HIDDEN Result<void> try_copy_from(Text name, const Source& source, StreamRef stream = nullptr) const noexcept {
    return copy(name, source, true, stream);
  }
  template <class Target>
  CUDA_EXT_HIDDEN Result<void> try_copy_to(Text name, Target& target, StreamRef stream = nullptr) const noexcept {
    static_assert(!std::is_const_v<Target>, "the target of a copy must not be const");
    return copy(name, target, false, stream);
  }

  // Loads everything that was built for the GPU of the current context.
  CUDA_EXT_HIDDEN Result<void> try_load() const noexcept { return module_.call(&Module::load); }

#if CUDA_EXT_EXCEPTIONS
  CUDA_EXT_HIDDEN Kernel kernel(Text name) const { return try_kernel(name).value(); }
  CUDA_EXT_HIDDEN Symbol symbol(Text name) const { return try_symbol(name).value(); }
  template <class Source>
  CUDA_EXT_HIDDEN void copy_from(Text name, const Source& source, StreamRef stream = nullptr) const {
    try_copy_from(name, source, stream).value();
  }
  template <class Target>
  CUDA_EXT_HIDDEN void copy_to(Text name, Target& target, StreamRef stream = nullptr) const {
    try_copy_to(name, target, stream).value();
  }
  CUDA_EXT_HIDDEN void load() const { try_load().value(); }
#endif

  CUDA_EXT_HIDDEN Module& module() const noexcept { return *module_; }

 private:
  template <class Host>
  CUDA_EXT_HIDDEN Result<void> copy(Text name, Host& host, bool to_gpu, Stream stream) const noexcept {
    static_assert(std::is_trivially_copyable_v<Host> && !std::is_pointer_v<Host>, "the bytes of the object are copied");
    void* bytes = &const_cast<unsigned char&>(reinterpret_cast<const volatile unsigned char&>(host));
    auto symbol = module_.call(&Module::find_symbol, name, stream);
    if (!symbol) return std::move(symbol).failure();
    return module_->copy(*symbol, name, bytes, sizeof host, to_gpu, stream);
  }

  Held<Module> module_;
};

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
