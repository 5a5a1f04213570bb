// Variables as generated headers declare them: objects that know the types of their elements.

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// The element type of an array, or of an object with data(); otherwise the type of the object itself.
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

// True if a Host refers to elements elsewhere, as std::span does. The elements of a constant view are
// constant only if all are.
template <class Host, class = void>
inline constexpr bool is_view = false;
template <class Host>
inline constexpr bool is_view<Host, std::void_t<decltype(*std::declval<const Host&>().data())>> =
    std::is_same_v<decltype(std::declval<Host&>().data()), decltype(std::declval<const Host&>().data())>;

// True if a Host is, or points to, a copy of a variable of `size` bytes with elements T. A class without
// elements may be a copy of numbers.
template <class T, std::size_t size, class Host>
constexpr bool is_copy() noexcept {
  using Element = typename ElementOf<std::remove_cv_t<Host>>::type;
  if constexpr (std::is_pointer_v<Host>) {
    return are_elements<T, Element>();
  } else if constexpr (!std::is_trivially_copyable_v<Host> || sizeof(Host) != size ||
                       is_view<std::remove_cv_t<Host>>) {
    return false;
  } else {
    return are_elements<T, Element>() ||
           (is_class<Host> && std::is_same_v<std::remove_cv_t<Host>, Element> &&
            !std::is_base_of_v<Class, T>);
  }
}

// The variable `index` of the module of `library`. It has `size` bytes with elements T, and a copy on each
// GPU.
template <const Library& (&library)(), std::size_t index, std::size_t size, class T>
class TypedSymbol {
 public:
  using Element = std::conditional_t<std::is_base_of_v<Class, T> || std::is_same_v<T, Pointee>, void, T>;

  // Its address on the GPU of the current context.
  Result<Element*> try_address() const noexcept {
    auto symbol = library().module().symbol(index, nullptr);
    if (!symbol) return std::move(symbol).failure();
    return static_cast<Element*>(symbol->address);
  }

  // Copy the whole variable on the GPU of the stream from or to host memory, in the order of the stream, as
  // cuMemcpyHtoDAsync and cuMemcpyDtoHAsync do. The host memory is an object of the variable's type, an array
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
    return module.copy(*symbol, nullptr, const_cast<void*>(address), symbol->size, to_gpu, stream);
  }
};

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
