// The parameter types of kernels as objects.
//
// Each converts implicitly from the types that can be passed for it, and from no others: a wrong argument
// does not compile, and `std::is_invocable` is false. The driver copies the bytes of the value of `get()`.

// Constants that the compiler finds out of range are an error in clang. In gcc they are a warning, since gcc
// may find them on a path that is never taken.
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wgcc-compat"
#define CUDA_EXT_REFUSE_CONSTANT(condition, text) __attribute__((diagnose_if(condition, text, "error")))
#else
#define CUDA_EXT_REFUSE_CONSTANT(condition, text)
#endif

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

template <class T>
inline constexpr bool is_integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// True if To can hold every value of From, so that C++ does not call the conversion narrowing. Only a bool
// converts to a bool.
template <class To, class From>
constexpr bool holds_every() noexcept {
  if constexpr (std::is_same_v<From, bool>) {
    return std::is_integral_v<To>;
  } else if constexpr (is_integer<To> && is_integer<From>) {
    constexpr bool is_alike = std::is_signed_v<To> == std::is_signed_v<From>;
    return is_alike ? sizeof(To) >= sizeof(From) : std::is_signed_v<To> && sizeof(To) > sizeof(From);
  } else {
    return std::is_floating_point_v<To> && std::is_floating_point_v<From> && sizeof(To) >= sizeof(From);
  }
}

// True if `value` is one of To, both integers.
template <class To, class From>
constexpr bool holds(From value) noexcept {
  if constexpr (holds_every<To, From>()) {
    return true;
  } else {
    return static_cast<From>(static_cast<To>(value)) == value &&
           (static_cast<To>(value) < To{}) == (value < From{});
  }
}

#if defined(__GNUC__) && !defined(__clang__)
__attribute__((noinline, warning("this constant is out of range for the kernel's parameter"))) inline void
refuse_constant() noexcept {
  __asm__ volatile("");  // keeps the call, and with it the warning: a call without effects would vanish
}
#endif

// The base of all parameters. Integers of some types may not fit.
class AlwaysFits {
 public:
  constexpr const Integer* misfit() const noexcept { return nullptr; }
};

// A number, or a bool. Takes integers of any type, which must fit.
template <class T>
class Value {
 public:
  template <class U, std::enable_if_t<holds_every<T, U>(), int> = 0>
  constexpr Value(U value) noexcept : value_(static_cast<T>(value)) {}

  template <class U, std::enable_if_t<is_integer<T> && is_integer<U> && !holds_every<T, U>(), int> = 0>
  constexpr Value(U value) noexcept
      CUDA_EXT_REFUSE_CONSTANT(!holds<T>(value), "this constant is out of range for the kernel's parameter")
      : value_(static_cast<T>(value)),
        fits_(holds<T>(value)),
        passed_{static_cast<unsigned long long>(value), std::is_signed_v<U>} {
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
    if (__builtin_constant_p(value) && !holds<T>(value)) refuse_constant();
#endif
  }

  constexpr T get() const noexcept { return value_; }
  constexpr const Integer* misfit() const noexcept { return fits_ ? nullptr : &passed_; }

 private:
  T value_;
  bool fits_ = true;
  Integer passed_{};
};

// The bytes of a value of any type.
template <std::size_t size>
struct Bytes {
  unsigned char bytes[size];
};

// A launch copies the bytes of a volatile object, too.
template <std::size_t size, class T>
const Bytes<size>* bytes_of(const T& value) noexcept {
  return const_cast<const Bytes<size>*>(&reinterpret_cast<const volatile Bytes<size>&>(value));
}

// A type of device code that a header cannot name. Derived structures have its `name`, which is empty if it
// can be any class, and its `size` and `alignment`, which are 0 if they are not known.
struct Class {
  static constexpr char name[] = "";
  static constexpr std::size_t size = 0;
  static constexpr std::size_t alignment = 0;

  // Derived structures compare the members of T with those in device code.
  template <class T>
  static constexpr void check_members() noexcept {}
};

// The target of a pointer to a pointer.
struct Pointee {};

template <class T>
inline constexpr bool is_class = std::is_class_v<T> || std::is_union_v<T>;

// True if T, volatile or not, has this name, as far as names tell.
template <class T, class Named>
constexpr bool is_type() noexcept {
  if constexpr (sizeof(Named::name) > 1) {
    return is_named<std::remove_volatile_t<T>>(Named::name);
  } else {
    return is_class<T>;
  }
}

// Compilers print these names if a static_assert fails: the bytes here, and in device code (0 if not known
// there).
template <std::size_t here, std::size_t on_device>
inline constexpr bool are_sizes_equal = here == on_device || !on_device;
// Members are aligned to at most 16 bytes. A larger alignment is the choice of a header and does not move
// members.
template <std::size_t here, std::size_t on_device>
inline constexpr bool are_alignments_equal =
    here == on_device || !on_device || (here >= 16 && on_device >= 16);

// Compiles only if the bytes of a T with the name of this type can be a value of it.
template <class T, class Named>
constexpr void check_layout() noexcept {
  static_assert(std::is_trivially_copyable_v<T>,
                "a type that is passed to the GPU must be trivially copyable, because its bytes are copied");
  static_assert(are_sizes_equal<sizeof(T), Named::size>,
                "this type has another size in device code; declare both alike, best in one header");
  static_assert(are_alignments_equal<alignof(T), Named::alignment>,
                "this type has another alignment in device code; declare both alike, best in one header");
  if constexpr (sizeof(T) == Named::size) Named::template check_members<std::remove_cv_t<T>>();
}

// True if T is the enumeration of this name, or any enumeration if the name is not known.
template <class T, class Named>
inline constexpr bool is_enumeration =
    std::is_enum_v<T> && (sizeof(Named::name) == 1 || is_type<T, Named>());

// An enumeration of this name, or an integer of its size.
template <class Named>
class Enumerator : public AlwaysFits {
 public:
  template <class T, std::enable_if_t<is_enumeration<T, Named>, int> = 0>
  Enumerator(T value) noexcept {
    check_layout<T, Named>();
    std::memcpy(&value_, &value, Named::size);
  }

  template <class T, std::enable_if_t<is_integer<T> && sizeof(T) == Named::size, int> = 0>
  Enumerator(T number) noexcept {
    std::memcpy(&value_, &number, Named::size);
  }

  template <class T, std::enable_if_t<std::is_enum_v<T> && !is_enumeration<T, Named>, int> = 0>
  Enumerator(T) = delete;  // another enumeration; if it mirrors that of device code, specialize device_name

  Bytes<Named::size> get() const noexcept { return value_; }

 private:
  Bytes<Named::size> value_;
};

// A value of `size` bytes about which nothing else is known. It is not copied.
template <std::size_t size>
class Opaque : public AlwaysFits {
 public:
  template <
      class T,
      std::enable_if_t<std::is_trivially_copyable_v<T> && !std::is_array_v<T> && sizeof(T) == size, int> = 0>
  Opaque(const T& value) noexcept : value_(bytes_of<size>(value)) {}

  const Bytes<size>& get() const noexcept { return *value_; }

 private:
  const Bytes<size>* value_;
};

// A class or union of this name and layout. It is not copied.
template <class Named>
class Structure : public AlwaysFits {
 public:
  template <class T, std::enable_if_t<is_type<T, Named>(), int> = 0>
  Structure(const T& value) noexcept : value_(bytes_of<Named::size>(value)) {
    check_layout<T, Named>();
  }

  template <class T, std::enable_if_t<is_class<T> && !is_type<T, Named>(), int> = 0>
  Structure(const T&) = delete;  // another class; if it mirrors that of device code, specialize device_name

  const Bytes<Named::size>& get() const noexcept { return *value_; }

 private:
  const Bytes<Named::size>* value_;
};

// True if a `From*` can point to elements T. Neither type is const or volatile.
template <class T, class From>
constexpr bool are_elements() noexcept {
  if constexpr (std::is_same_v<T, From>) {
    return true;
  } else if constexpr (std::is_void_v<T>) {
    return std::is_object_v<From>;
  } else if constexpr (std::is_base_of_v<Class, T>) {
    return std::is_void_v<From> || is_type<From, T>();
  } else if constexpr (std::is_same_v<T, Pointee>) {
    return std::is_pointer_v<From>;
  } else if constexpr (std::is_same_v<From, std::byte>) {
    return is_integer<T> && sizeof(T) == 1;
  } else if constexpr (is_integer<T> && is_integer<From>) {
    return sizeof(T) == sizeof(From) && (sizeof(T) == 1 || std::is_signed_v<T> == std::is_signed_v<From>);
  } else {
    return false;
  }
}

template <class T, class From>
constexpr bool can_point() noexcept {
  return (std::is_const_v<T> || !std::is_const_v<From>) &&
         are_elements<std::remove_cv_t<T>, std::remove_cv_t<From>>();
}

template <class T, class From>
constexpr bool is_other_class() noexcept {
  if constexpr (std::is_base_of_v<Class, T> && is_class<From>) {
    return !is_type<std::remove_cv_t<From>, T>();
  } else {
    return false;
  }
}

// An address on the GPU of elements T.
template <class T>
class Pointer : public AlwaysFits {
 public:
  template <class U, std::enable_if_t<can_point<T, U>(), int> = 0>
  constexpr Pointer(U* pointer) noexcept : pointer_(pointer) {}

  template <class U, std::enable_if_t<is_other_class<T, U>(), int> = 0>
  Pointer(U*) = delete;  // to another class; if it mirrors that of device code, specialize device_name

  // Templates, because a literal 0 would be a nullptr_t or a CUdeviceptr.
  template <class Null, std::enable_if_t<std::is_null_pointer_v<Null>, int> = 0>
  constexpr Pointer(Null) noexcept {}
  template <class Address, std::enable_if_t<std::is_same_v<Address, unsigned long long>, int> = 0,
            class = void>
  Pointer(Address address) noexcept
      : pointer_(reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address))) {}

  constexpr const volatile void* get() const noexcept { return pointer_; }

 private:
  const volatile void* pointer_ = nullptr;
};

// A value of exactly this type. It is not copied.
template <class T>
class Exactly : public AlwaysFits {
 public:
  template <class U, std::enable_if_t<std::is_same_v<U, T>, int> = 0>
  Exactly(const U& value) noexcept : value_(&value) {}

  const T& get() const noexcept { return *value_; }

 private:
  const T* value_;
};

// A parameter whose type is the argument T of the kernel template.
template <class T>
using ArgumentOf =
    std::conditional_t<std::is_arithmetic_v<T>, Value<T>,
                       std::conditional_t<std::is_pointer_v<T>, Pointer<std::remove_pointer_t<T>>, Exactly<T>>>;

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext

#undef CUDA_EXT_REFUSE_CONSTANT
#if defined(__clang__)
#pragma clang diagnostic pop
#endif
