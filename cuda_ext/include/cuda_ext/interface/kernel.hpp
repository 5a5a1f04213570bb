// Kernels as generated headers declare them: objects that know the types of their parameters.

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// True if a parameter of a kernel takes an argument unchanged. If only its size is known, the size decides.
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

// True if the parameter takes every value of the argument's type.
template <class Parameter, class Argument>
inline constexpr bool is_lossless = true;
template <class T, class Argument>
inline constexpr bool is_lossless<Value<T>, Argument> = holds_every<T, Argument>();

// The kernel `index` of the module of `kernel_at`, with these parameters, which are types of argument.hpp. The
// configuration is a LaunchGrid if the image fixes everything except the grid.
template <ModuleKernel& (&kernel_at)(std::size_t), std::size_t index, class LaunchedWith, class... Parameters>
class TypedKernel {
 public:
  using Config = LaunchedWith;

  // The kernel without parameter types.
  static Kernel kernel() noexcept { return Kernel(kernel_at(index)); }

#if CUDA_EXT_EXCEPTIONS
  // Launches the kernel, and throws errors.
  void operator()(const Config& config, Parameters... arguments) const {
    if ((arguments.misfit() || ... || false)) return refuse(arguments.misfit()...).value();
    submit_or_raise(config, arguments.get()...);
  }
#endif

  // Launches the kernel, and returns errors.
  Result<void> try_launch(const Config& config, Parameters... arguments) const noexcept {
    if ((arguments.misfit() || ... || false)) return refuse(arguments.misfit()...);
    return submit(config, arguments.get()...);
  }

  // Rates how well the kernel takes such arguments among kernels of its name: exactly, without a loss, after
  // a check, or not.
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

// Compilers name these in an error if no kernel can be launched.
struct NoKernelTakesTheseArguments {};
struct SeveralKernelsTakeTheseArguments {};

// Kernels of one name. A call launches the kernel that takes the arguments best. All kernels take the same
// configuration.
template <class... Kernels>
class Overloads {
 public:
  using Config = typename NthType<0, Kernels...>::type::Config;

  // The index of this kernel, or after all kernels, of one of the structures above.
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
  void operator()(const Config& config, const Arguments&... arguments) const {
    Kernel()(config, arguments...);
  }
#endif

  template <class... Arguments, class Kernel = Chosen<Arguments...>, class = decltype(Kernel::kernel())>
  Result<void> try_launch(const Config& config, const Arguments&... arguments) const noexcept {
    return Kernel().try_launch(config, arguments...);
  }
};

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
