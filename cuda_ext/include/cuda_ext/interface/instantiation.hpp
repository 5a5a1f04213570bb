// Instantiations of kernel templates that are compiled on demand, as generated headers declare them.

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// Template arguments as the compiler spells them, for the name of an instantiation.
template <class T>
struct TypeArgument {
  static constexpr TypeText text() noexcept { return type_name<T>(); }
};
template <auto value>
struct ValueArgument {
  static constexpr TypeText text() noexcept { return printed_value<value>(); }
};
// Takes the place of an argument that has a default in device code.
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
  // Leaves out the inline namespaces of the C++ library, such as __1, which differ in device code.
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

  char text_[sizeof(Template::name) + (Arguments::text().size + ... + 0) + sizeof...(Arguments) + 2] = {};
  std::size_t size_ = 0;
};

// An instantiation that was not built ahead: it is compiled at its first launch.
template <const Library& (&library)(), class Template, class... Arguments>
class Instantiation {
 public:
  // The kernel without parameter types.
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

// An instantiation with parameters, which are types of argument.hpp.
template <class Instantiation, class... Parameters>
class TypedOnDemand : public Instantiation {
 public:
  Result<void> try_launch(const LaunchConfig& config, Parameters... arguments) const noexcept {
    auto found = Instantiation::find();
    if (!found) return std::move(found).failure();
    const Integer* const misfits[] = {arguments.misfit()..., nullptr};
    if ((arguments.misfit() || ... || false)) return (*found)->refuse(misfits);
    return launch_checked(**found, config, arguments.get()...);
  }

#if CUDA_EXT_EXCEPTIONS
  void operator()(const LaunchConfig& config, Parameters... arguments) const {
    try_launch(config, arguments...).value();
  }
#endif
};

// An instantiation with unknown parameters: a launch checks only the sizes of arguments, as for a kernel by
// name.
template <class Instantiation>
class SizedOnDemand : public Instantiation {
 public:
  template <class... Values>
  Result<void> try_launch(const LaunchConfig& config, const Values&... values) const noexcept {
    auto found = Instantiation::find();
    if (!found) return std::move(found).failure();
    return launch_checked(**found, config, values...);
  }

#if CUDA_EXT_EXCEPTIONS
  template <class... Values>
  void operator()(const LaunchConfig& config, const Values&... values) const {
    try_launch(config, values...).value();
  }
#endif
};

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
