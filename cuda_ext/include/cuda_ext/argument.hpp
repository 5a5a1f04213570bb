// The parameter types of generated kernel wrappers.
//
// Each is made, implicitly, of what can be passed without a loss and of nothing else, so that a wrong
// argument does not compile, and `std::is_invocable` tells. `address()` is where the bytes lie that the
// driver copies, until the end of the full expression.

#pragma once

#include "data.hpp"

#include <cstddef>
#include <cstdint>  // whose types generated headers use
#include <cstring>
#include <memory>
#include <type_traits>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {

// Whether every value of From is one of To: what C++ does not call narrowing. A bool is made of a bool only.
template <class To, class From>
constexpr bool holds_every() noexcept {
  if constexpr (!std::is_arithmetic_v<From>) {
    return false;
  } else if constexpr (std::is_same_v<To, bool> || std::is_same_v<From, bool>) {
    return std::is_same_v<From, bool> && std::is_integral_v<To>;
  } else if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
    constexpr bool is_alike = std::is_signed_v<To> == std::is_signed_v<From>;
    return is_alike ? sizeof(To) >= sizeof(From) : std::is_signed_v<To> && sizeof(To) > sizeof(From);
  } else {
    return std::is_floating_point_v<To> && std::is_floating_point_v<From> && sizeof(To) >= sizeof(From);
  }
}

// A number, or a bool.
template <class T>
class Value {
 public:
  template <class U, std::enable_if_t<holds_every<T, U>(), int> = 0>
  constexpr Value(U value) noexcept : value_(static_cast<T>(value)) {}

  const void* address() const noexcept { return &value_; }

 private:
  T value_;
};

// An enum of `size` bytes, of any type of that size, or its number.
template <std::size_t size>
class Enumerator {
 public:
  template <class T,
            std::enable_if_t<(std::is_enum_v<T> || (std::is_integral_v<T> && !std::is_same_v<T, bool>)) &&
                                 sizeof(T) == size,
                             int> = 0>
  Enumerator(T value) noexcept {
    std::memcpy(bytes_, &value, size);
  }

  const void* address() const noexcept { return bytes_; }

 private:
  unsigned char bytes_[size];
};

// A class or union of `size` bytes, of any type of that size. It is not copied.
template <std::size_t size>
class Structure {
 public:
  template <class T, std::enable_if_t<(std::is_class_v<T> || std::is_union_v<T>) &&
                                          std::is_trivially_copyable_v<T> && sizeof(T) == size,
                                      int> = 0>
  Structure(const T& value) noexcept : address_(std::addressof(value)) {}

  const void* address() const noexcept { return address_; }

 private:
  const void* address_;
};

// `size` bytes of which nothing else is known. They are not copied.
template <std::size_t size>
class Opaque {
 public:
  template <
      class T,
      std::enable_if_t<std::is_trivially_copyable_v<T> && !std::is_array_v<T> && sizeof(T) == size, int> = 0>
  Opaque(const T& value) noexcept : address_(std::addressof(value)) {}

  const void* address() const noexcept { return address_; }

 private:
  const void* address_;
};

// Elements of a pointer that the host cannot name: a class, union or enum, and another pointer.
struct Class;
struct Pointee;

// Whether what a `From*` points at can be elements T. Neither is const or volatile.
template <class T, class From>
constexpr bool are_elements() noexcept {
  if constexpr (std::is_same_v<T, From>) {
    return true;
  } else if constexpr (std::is_void_v<T>) {
    return std::is_object_v<From>;
  } else if constexpr (std::is_same_v<T, Class>) {
    return std::is_class_v<From> || std::is_union_v<From> || std::is_enum_v<From> || std::is_void_v<From>;
  } else if constexpr (std::is_same_v<T, Pointee>) {
    return std::is_pointer_v<From>;
  } else if constexpr (std::is_same_v<From, std::byte>) {
    return std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) == 1;
  } else if constexpr (std::is_integral_v<T> && std::is_integral_v<From> && !std::is_same_v<T, bool> &&
                       !std::is_same_v<From, bool>) {
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

// An address on the GPU, of elements T.
template <class T>
class Pointer {
 public:
  template <class U, std::enable_if_t<can_point<T, U>(), int> = 0>
  constexpr Pointer(U* pointer) noexcept : pointer_(pointer) {}

  // A template, because a literal 0 would be a nullptr_t.
  template <class Null, std::enable_if_t<std::is_null_pointer_v<Null>, int> = 0>
  constexpr Pointer(Null) noexcept {}

  const void* address() const noexcept { return &pointer_; }

 private:
  const volatile void* pointer_ = nullptr;
};

}  // namespace v1
}  // namespace cuda_ext
