// Modules and kernels as the loader implements them, and as projects hold them.

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// A name that is passed: a literal, a std::string, a std::string_view, or the like.
struct Text {
  const char* data;
  std::size_t size;

  Text(const char* text) noexcept : data(text), size(std::strlen(text)) {}
  template <class T, class = decltype(std::declval<const T&>().data() + std::declval<const T&>().size())>
  Text(const T& text) noexcept : data(text.data()), size(text.size()) {}
};

// Where a variable lies on one GPU, and how many bytes it has.
struct CUDA_EXT_VISIBLE Symbol {
  void* address = nullptr;
  std::size_t size = 0;
};

// What a kernel uses on one GPU, as the compiler left it: registers and bytes of local memory of a thread,
// bytes of static shared memory of a block and of constant memory, the most threads of a block, and the
// versions of PTX and of the machine code, 90 for 9.0.
struct CUDA_EXT_VISIBLE Attributes {
  int registers = 0;
  int local = 0;
  int shared = 0;
  int constant = 0;
  int most_threads = 0;
  int ptx = 0;
  int binary = 0;
};

// An integer of any type, as it was passed for a parameter that cannot hold it.
struct Integer {
  unsigned long long bits = 0;
  bool is_signed = false;
};

// A kernel of a module, loaded or not. All is done on the GPU of the current context, or the first where
// there is none; launches, in that of the stream.
class ModuleKernel {
 public:
  virtual void hold(int change) noexcept = 0;  // of its module
  virtual const KernelData& data() const noexcept = 0;

  // Launches the kernel. `arguments` points to each argument. The second throws what goes wrong.
  virtual Failure launch(const LaunchConfig& config, void** arguments) noexcept = 0;
  virtual void launch_or_raise(const LaunchConfig& config, void** arguments) = 0;
  // The same for `count` arguments of these `sizes`, which have to be those of the parameters.
  virtual Failure launch_checked(const LaunchConfig& config, void** arguments, const std::size_t* sizes,
                                 std::size_t count) noexcept = 0;
  // What a launch with `config` does before the driver is called for it: load, and set limits.
  virtual Failure prepare(const LaunchConfig& config) noexcept = 0;
  // The error of the first of `given`, one for each parameter, that is not nullptr.
  virtual Failure refuse(const Integer* const* given) const noexcept = 0;

  virtual Result<::CUkern_st*> handle() noexcept = 0;
  virtual Result<int> attribute(int which) noexcept = 0;
  virtual Failure set_attribute(int which, int value) noexcept = 0;
  virtual Result<int> blocks_per_multiprocessor(int threads, std::size_t shared) noexcept = 0;
  virtual Result<int> best_block(std::size_t shared) noexcept = 0;

 protected:
  ~ModuleKernel() = default;
};

// A module: what is loaded of it goes with the last that holds it.
class Module {
 public:
  virtual void hold(int change) noexcept = 0;
  virtual const ModuleData& data() const noexcept = 0;
  virtual Failure open_driver() noexcept = 0;
  virtual Failure load() noexcept = 0;
  virtual ModuleKernel& kernel(std::size_t index) noexcept = 0;
  virtual Result<ModuleKernel*> find_kernel(Text name) noexcept = 0;
  // On the GPU of the stream, as of a launch.
  virtual Result<Symbol> symbol(std::size_t index, Stream stream) noexcept = 0;
  virtual Result<Symbol> find_symbol(Text name) noexcept = 0;
  // Copies between `symbol` and the host, to the GPU or from it, as cuMemcpyHtoDAsync and cuMemcpyDtoHAsync.
  virtual Failure copy(const Symbol& symbol, void* host, bool to_gpu, Stream stream) noexcept = 0;

 protected:
  ~Module() = default;
};

// Functions whose names begin with try_ return what went wrong; the others throw it.

// A kernel of a Library. What it is in stays loaded while there is either of them.
class CUDA_EXT_VISIBLE Kernel {
 public:
  CUDA_EXT_HIDDEN Kernel() noexcept = default;  // no kernel, as after a move
  CUDA_EXT_HIDDEN explicit Kernel(ModuleKernel& kernel) noexcept : kernel_(&kernel) { kernel.hold(1); }
  CUDA_EXT_HIDDEN Kernel(Kernel&& other) noexcept : kernel_(std::exchange(other.kernel_, nullptr)) {}
  CUDA_EXT_HIDDEN Kernel& operator=(Kernel&& other) noexcept {
    std::swap(kernel_, other.kernel_);
    return *this;
  }
  CUDA_EXT_HIDDEN ~Kernel() {
    if (kernel_) kernel_->hold(-1);
  }

  CUDA_EXT_HIDDEN const KernelData& data() const noexcept { return kernel_->data(); }

  // Launches the kernel. The number of the arguments is checked, and the size of each.
  template <class... Arguments>
  CUDA_EXT_HIDDEN Result<void> try_launch(const LaunchConfig& config,
                                          const Arguments&... arguments) const noexcept {
    constexpr std::size_t count = sizeof...(Arguments);
    constexpr std::size_t sizes[count + 1] = {sizeof(Arguments)..., 0};
    void* addresses[count + 1] = {const_cast<void*>(address_of(arguments))..., nullptr};
    return kernel_->launch_checked(config, addresses, sizes, count);
  }

  // The same with `arguments` that point to each argument, of which nothing is checked.
  CUDA_EXT_HIDDEN Result<void> try_launch_raw(const LaunchConfig& config, void** arguments) const noexcept {
    return kernel_->launch(config, arguments);
  }

  // Loads the kernel and sets its limits as a launch with `config` does, so that the launch does not, which
  // matters while a graph is captured.
  CUDA_EXT_HIDDEN Result<void> try_prepare(const LaunchConfig& config) const noexcept {
    return kernel_->prepare(config);
  }

  // Its CUkernel, and a CUfunction_attribute of it, on the GPU of the current context.
  CUDA_EXT_HIDDEN Result<::CUkern_st*> try_handle() const noexcept { return kernel_->handle(); }
  CUDA_EXT_HIDDEN Result<int> try_attribute(int which) const noexcept { return kernel_->attribute(which); }
  CUDA_EXT_HIDDEN Result<Attributes> try_attributes() const noexcept {
    int values[7] = {};
    for (int which = 0; which < 7; which++) {
      auto value = kernel_->attribute(which);
      if (!value) return std::move(value).failure();
      values[which] = *value;
    }
    return Attributes{values[4], values[3], values[1], values[2], values[0], values[5], values[6]};
  }
  CUDA_EXT_HIDDEN Result<void> try_set_attribute(int which, int value) const noexcept {
    return kernel_->set_attribute(which, value);
  }

  // How many blocks of so many threads are resident on a multiprocessor at once, and the number of threads
  // with the highest occupancy. `shared` counts bytes of dynamic shared memory of a block.
  CUDA_EXT_HIDDEN Result<int> try_blocks_per_multiprocessor(int threads,
                                                            std::size_t shared = 0) const noexcept {
    return kernel_->blocks_per_multiprocessor(threads, shared);
  }
  CUDA_EXT_HIDDEN Result<int> try_best_block(std::size_t shared = 0) const noexcept {
    return kernel_->best_block(shared);
  }

#if CUDA_EXT_EXCEPTIONS
  template <class... Arguments>
  CUDA_EXT_HIDDEN void launch(const LaunchConfig& config, const Arguments&... arguments) const {
    try_launch(config, arguments...).value();
  }
  CUDA_EXT_HIDDEN void launch_raw(const LaunchConfig& config, void** arguments) const {
    kernel_->launch_or_raise(config, arguments);
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
  template <class T>
  CUDA_EXT_HIDDEN static const void* address_of(const T& argument) noexcept {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_array_v<T>,
                  "the GPU gets an argument as its bytes");
    if constexpr (std::is_null_pointer_v<T>) {
      static constexpr const void* null = nullptr;
      return &null;
    } else {
      return &reinterpret_cast<const unsigned char&>(argument);
    }
  }

  ModuleKernel* kernel_ = nullptr;
};

// The kernels and symbols of a module. Making one does nothing yet: what they are in is loaded when the first
// is used. It is unloaded with the Library and all its Kernels, and nothing of it may run then.
class CUDA_EXT_VISIBLE Library {
 public:
  CUDA_EXT_HIDDEN Library() noexcept = default;  // no library, as after a move
  CUDA_EXT_HIDDEN explicit Library(const ModuleData& data) : module_(data.open(data)) {}
  CUDA_EXT_HIDDEN explicit Library(Module& module) noexcept
      : module_(&module) {}  // of which it is the holder
  CUDA_EXT_HIDDEN Library(Library&& other) noexcept : module_(std::exchange(other.module_, nullptr)) {}
  CUDA_EXT_HIDDEN Library& operator=(Library&& other) noexcept {
    std::swap(module_, other.module_);
    return *this;
  }
  CUDA_EXT_HIDDEN ~Library() {
    if (module_) module_->hold(-1);
  }

  CUDA_EXT_HIDDEN const ModuleData& data() const noexcept { return module_->data(); }

  // Whether kernels can be launched here: there is a driver that can be used, and a GPU.
  CUDA_EXT_HIDDEN bool gpu_available() const noexcept { return !module_->open_driver(); }

  // The kernel of that name expression, "ns::axpy<float>", in which white space does not matter. An
  // instantiation that was not built ahead is compiled, for the GPU of the current context now and for others
  // when it is launched there, if the module has its sources.
  CUDA_EXT_HIDDEN Result<Kernel> try_kernel(Text name) const noexcept {
    auto kernel = module_->find_kernel(name);
    if (!kernel) return std::move(kernel).failure();
    return Kernel(**kernel);
  }

  // The variable of that name on the GPU of the current context.
  CUDA_EXT_HIDDEN Result<Symbol> try_symbol(Text name) const noexcept { return module_->find_symbol(name); }

  // Loads all that was built ahead for the GPU of the current context.
  CUDA_EXT_HIDDEN Result<void> try_load() const noexcept { return module_->load(); }

#if CUDA_EXT_EXCEPTIONS
  CUDA_EXT_HIDDEN Kernel kernel(Text name) const { return try_kernel(name).value(); }
  CUDA_EXT_HIDDEN Symbol symbol(Text name) const { return try_symbol(name).value(); }
  CUDA_EXT_HIDDEN void load() const { try_load().value(); }
#endif

  CUDA_EXT_HIDDEN Module& module() const noexcept { return *module_; }

 private:
  Module* module_ = nullptr;
};

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
