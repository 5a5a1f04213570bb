// Kernels and variables as generated headers declare them: objects that know their types.

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// Whether a parameter of a kernel takes an argument as it is. Where only the size is known, that decides.
template <class Parameter, class Argument>
inline constexpr bool is_exactly = std::is_convertible_v<const Argument&, Parameter>;

template <class T, class Argument>
inline constexpr bool is_exactly<Value<T>, Argument> =
    std::is_same_v<T, Argument> || (holds_every<T, Argument>() && holds_every<Argument, T>());

template <class Named, class Argument>
inline constexpr bool is_exactly<Enumerator<Named>, Argument> =
    std::is_enum_v<Argument> && std::is_convertible_v<Argument, Enumerator<Named>>;

template <class T, class Argument>
inline constexpr bool is_exactly<Pointer<T>, Argument> = false;

template <class T, class Element>
inline constexpr bool is_exactly<Pointer<T>, Element*> =
    std::is_const_v<T> == std::is_const_v<Element> && std::is_void_v<T> == std::is_void_v<Element> &&
    can_point<T, Element>();

// Whether it takes every value of that type.
template <class Parameter, class Argument>
inline constexpr bool is_lossless = true;
template <class T, class Argument>
inline constexpr bool is_lossless<Value<T>, Argument> = holds_every<T, Argument>();

// The kernel `index` of the module that `kernel_at` is of, with these parameters, types of argument.hpp.
template <ModuleKernel& (&kernel_at)(std::size_t), std::size_t index, class... Parameters>
class TypedKernel {
 public:
  // The same without types.
  static Kernel kernel() noexcept { return Kernel(kernel_at(index)); }

#if CUDA_EXT_EXCEPTIONS
  // Launches the kernel, and throws what goes wrong.
  void operator()(const LaunchConfig& config, Parameters... arguments) const {
    if ((arguments.misfit() || ... || false)) return refuse(arguments.misfit()...).value();
    submit_or_raise(config, arguments.get()...);
  }
#endif

  // Launches the kernel, and returns what goes wrong.
  Result<void> try_launch(const LaunchConfig& config, Parameters... arguments) const noexcept {
    if ((arguments.misfit() || ... || false)) return refuse(arguments.misfit()...);
    return submit(config, arguments.get()...);
  }

  // How well it takes such arguments among kernels of its name: exactly, without a loss, after a check, or
  // not.
  template <class... Arguments>
  static constexpr int rank() noexcept {
    if constexpr (sizeof...(Parameters) != sizeof...(Arguments)) {
      return 0;
    } else if constexpr (!(std::is_convertible_v<const Arguments&, Parameters> && ... && true)) {
      return 0;
    } else {
      constexpr bool exactly = (is_exactly<Parameters, Arguments> && ... && true);
      constexpr bool lossless = (is_lossless<Parameters, Arguments> && ... && true);
      return exactly ? 3 : lossless ? 2 : 1;
    }
  }

 private:
  template <class... Misfits>
  static Result<void> refuse(const Misfits*... misfits) noexcept {
    const Integer* const given[] = {misfits..., nullptr};
    return kernel_at(index).refuse(given);
  }

  template <class... Values>
  static Failure submit(const LaunchConfig& config, const Values&... values) noexcept {
    void* addresses[] = {const_cast<void*>(static_cast<const void*>(&values))..., nullptr};
    return kernel_at(index).launch(config, addresses);
  }

#if CUDA_EXT_EXCEPTIONS
  template <class... Values>
  static void submit_or_raise(const LaunchConfig& config, const Values&... values) {
    void* addresses[] = {const_cast<void*>(static_cast<const void*>(&values))..., nullptr};
    kernel_at(index).launch_or_raise(config, addresses);
  }
#endif
};

template <std::size_t index, class First, class... Others>
struct NthType : NthType<index - 1, Others...> {};
template <class First, class... Others>
struct NthType<0, First, Others...> {
  using type = First;
};

// What compilers name in an error if no kernel is launched.
struct NoKernelTakesTheseArguments {};
struct SeveralKernelsTakeTheseArguments {};

// Kernels of one name: of those that take the arguments, the one that takes them best is launched.
template <class... Kernels>
class Overloads {
 public:
  // The index of that kernel, or of one of the structures above behind all kernels.
  template <class... Arguments>
  static constexpr std::size_t choose() noexcept {
    constexpr int ranks[] = {Kernels::template rank<std::decay_t<Arguments>...>()...};
    constexpr std::size_t none = sizeof...(Kernels);
    std::size_t chosen = none;
    int best = 0;
    for (std::size_t i = 0; i < none; i++) {
      if (ranks[i] > best) {
        best = ranks[i];
        chosen = i;
      } else if (best && ranks[i] == best && best < 3) {
        chosen = none + 1;
      }
    }
    return chosen;
  }

  template <class... Arguments>
  using Chosen = typename NthType<choose<Arguments...>(), Kernels..., NoKernelTakesTheseArguments,
                                  SeveralKernelsTakeTheseArguments>::type;

#if CUDA_EXT_EXCEPTIONS
  template <class... Arguments, class Kernel = Chosen<Arguments...>, class = decltype(Kernel::kernel())>
  void operator()(const LaunchConfig& config, const Arguments&... arguments) const {
    Kernel()(config, arguments...);
  }
#endif

  template <class... Arguments, class Kernel = Chosen<Arguments...>, class = decltype(Kernel::kernel())>
  Result<void> try_launch(const LaunchConfig& config, const Arguments&... arguments) const noexcept {
    return Kernel().try_launch(config, arguments...);
  }
};

// Template arguments as the compiler spells them, for the name of an instantiation.
template <class T>
struct TypeArgument {
  static constexpr TypeText text() noexcept { return type_name<T>(); }
};
template <auto value>
struct ValueArgument {
  static constexpr TypeText text() noexcept { return printed_value<value>(); }
};
// In the place of an argument that has a default in device code.
struct NoArgument {
  static constexpr TypeText text() noexcept { return {}; }
};

// The name expression of an instantiation of the template `Template::name`.
template <class Template, class... Arguments>
class NameExpression {
 public:
  constexpr NameExpression() noexcept {
    put(TypeText(Template::name));
    char separator = '<';
    const auto add = [&](TypeText argument) {
      if (argument.empty()) return;
      put({&separator, 1});
      put(argument);
      separator = ',';
    };
    (add(Arguments::text()), ...);
    put(separator == '<' ? TypeText("<>") : TypeText(">"));
  }

  operator Text() const noexcept { return text_; }

 private:
  // Without the inline namespaces of the C++ library, __1 and the like, which device code has otherwise.
  constexpr void put(TypeText text) noexcept {
    while (!text.empty()) {
      const bool is_start = size_ == 0 || text_[size_ - 1] == ':';
      std::size_t end = 0;
      while (is_start && text.starts_with("__") && end < text.size && is_of_word(text.data[end])) end++;
      if (end && text.from(end).starts_with("::")) {
        text = text.from(end + 2);
      } else {
        text_[size_++] = *text.data;
        text = text.from(1);
      }
    }
  }

  static constexpr bool is_of_word(char letter) noexcept {
    return letter == '_' || ('0' <= letter && letter <= '9') || ('A' <= letter && letter <= 'Z') ||
           ('a' <= letter && letter <= 'z');
  }

  char text_[sizeof(Template::name) + (Arguments::text().size + ... + 0) + sizeof...(Arguments) + 2] = {};
  std::size_t size_ = 0;
};

// An instantiation that was not built ahead: it is compiled at its first launch.
template <const Library& (&library)(), class Template, class... Arguments>
class Instantiation {
 public:
  // The same without types.
  static Result<Kernel> try_kernel() noexcept { return library().try_kernel(expression); }
#if CUDA_EXT_EXCEPTIONS
  static Kernel kernel() { return try_kernel().value(); }
#endif

 protected:
  static Result<ModuleKernel*> find() noexcept {
    static thread_local ModuleKernel* known = nullptr;
    if (!known) {
      auto found = library().module().find_kernel(expression);
      if (!found) return found;
      known = *found;
    }
    return known;
  }

 private:
  static constexpr NameExpression<Template, Arguments...> expression{};
};

// The same with parameters, which are types of argument.hpp.
template <class Instantiation, class... Parameters>
class TypedOnDemand : public Instantiation {
 public:
  Result<void> try_launch(const LaunchConfig& config, Parameters... arguments) const noexcept {
    auto found = Instantiation::find();
    if (!found) return std::move(found).failure();
    const Integer* const misfits[] = {arguments.misfit()..., nullptr};
    if ((arguments.misfit() || ... || false)) return (*found)->refuse(misfits);
    return Kernel(**found).try_launch(config, arguments.get()...);
  }

#if CUDA_EXT_EXCEPTIONS
  void operator()(const LaunchConfig& config, Parameters... arguments) const {
    try_launch(config, arguments...).value();
  }
#endif
};

// The same where the parameters are not known: only the sizes of arguments are checked, as of a kernel by name.
template <class Instantiation>
class SizedOnDemand : public Instantiation {
 public:
  template <class... Values>
  Result<void> try_launch(const LaunchConfig& config, const Values&... values) const noexcept {
    auto found = Instantiation::find();
    if (!found) return std::move(found).failure();
    return Kernel(**found).try_launch(config, values...);
  }

#if CUDA_EXT_EXCEPTIONS
  template <class... Values>
  void operator()(const LaunchConfig& config, const Values&... values) const {
    try_launch(config, values...).value();
  }
#endif
};

// The elements of an array, or of what has them at data(), or else the object itself.
template <class Host, class = void>
struct ElementOf {
  using type = std::remove_cv_t<std::remove_all_extents_t<Host>>;
};
template <class Host>
struct ElementOf<Host, std::void_t<decltype(*std::declval<Host&>().data())>> {
  using type = std::decay_t<decltype(*std::declval<Host&>().data())>;
};
template <class Host>
struct ElementOf<Host*> {
  using type = std::remove_cv_t<Host>;
};

// Whether a Host is, or points to, a copy of a variable of `size` bytes with elements T. A class without
// elements may be a copy of numbers.
template <class T, std::size_t size, class Host>
constexpr bool is_copy() noexcept {
  using Element = typename ElementOf<std::remove_cv_t<Host>>::type;
  if constexpr (std::is_pointer_v<Host>) {
    return are_elements<T, Element>();
  } else if constexpr (!std::is_trivially_copyable_v<Host> || sizeof(Host) != size) {
    return false;
  } else {
    return are_elements<T, Element>() ||
           (is_class<Host> && std::is_same_v<std::remove_cv_t<Host>, Element> &&
            !std::is_base_of_v<Class, T>);
  }
}

// The variable `index` of the module of `library`, which has `size` bytes with elements T. It has a copy on
// each GPU.
template <const Library& (&library)(), std::size_t index, std::size_t size, class T>
class TypedSymbol {
 public:
  using Element = std::conditional_t<std::is_base_of_v<Class, T> || std::is_same_v<T, Pointee>, void, T>;

  // Where it lies on the GPU of the current context.
  Result<Element*> try_address() const noexcept {
    auto symbol = library().module().symbol(index, nullptr);
    if (!symbol) return std::move(symbol).failure();
    return static_cast<Element*>(symbol->address);
  }

  // Copy all of the variable on the GPU of the stream, from host memory and into it, in the order of the
  // stream, as cuMemcpyHtoDAsync and cuMemcpyDtoHAsync do. In host memory is an object of its type, an array
  // or std::array of its elements, or a pointer to them.
  template <class Source, std::enable_if_t<is_copy<T, size, Source>(), int> = 0>
  Result<void> try_copy_from(const Source& source, StreamRef stream = nullptr) const noexcept {
    return copy(source, true, stream);
  }
  template <class Target, std::enable_if_t<is_copy<T, size, std::remove_reference_t<Target>>(), int> = 0>
  Result<void> try_copy_to(Target&& target, StreamRef stream = nullptr) const noexcept {
    using Host = std::remove_reference_t<Target>;
    constexpr bool is_pointer = std::is_pointer_v<Host>;
    static_assert(!std::is_const_v<std::conditional_t<is_pointer, std::remove_pointer_t<Host>, Host>>,
                  "the target of a copy must not be const");
    static_assert(is_pointer || std::is_lvalue_reference_v<Target>,
                  "the target of a copy must not be a temporary object");
    return copy(target, false, stream);
  }

#if CUDA_EXT_EXCEPTIONS
  Element* address() const { return try_address().value(); }
  template <class Source, std::enable_if_t<is_copy<T, size, Source>(), int> = 0>
  void copy_from(const Source& source, StreamRef stream = nullptr) const {
    try_copy_from(source, stream).value();
  }
  template <class Target, std::enable_if_t<is_copy<T, size, std::remove_reference_t<Target>>(), int> = 0>
  void copy_to(Target&& target, StreamRef stream = nullptr) const {
    try_copy_to(std::forward<Target>(target), stream).value();
  }
#endif

 private:
  template <class Host>
  static Result<void> copy(Host& host, bool to_gpu, Stream stream) noexcept {
    using HostElement = typename ElementOf<std::remove_cv_t<Host>>::type;
    if constexpr (std::is_base_of_v<Class, T> && !std::is_void_v<HostElement>) {
      check_layout<HostElement, T>();
    }
    const volatile void* address = nullptr;
    if constexpr (std::is_pointer_v<Host>) {
      address = host;
    } else {
      address = &reinterpret_cast<const volatile unsigned char&>(host);
    }
    Module& module = library().module();
    auto symbol = module.symbol(index, stream);
    if (!symbol) return std::move(symbol).failure();
    return module.copy(*symbol, const_cast<void*>(address), to_gpu, stream);
  }
};

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
