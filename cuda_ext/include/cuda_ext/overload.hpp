// Overload resolution among kernels.
//
// Each type in argument.hpp is made of an argument by a constructor, and among those C++ sees no better one. So
// the kernel whose parameters are of exactly the arguments' types is looked for first.

#pragma once

#include "argument.hpp"
#include "data.hpp"

#include <cstddef>
#include <type_traits>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {

// Whether a parameter takes an argument as it is. Where nothing is known but the size, that says it.
template <class Parameter, class Argument>
inline constexpr bool is_exactly = std::is_convertible_v<const Argument&, Parameter>;

template <class T, class Argument>
inline constexpr bool is_exactly<Value<T>, Argument> =
    std::is_same_v<T, Argument> || (holds_every<T, Argument>() && holds_every<Argument, T>());

template <std::size_t size, class Argument>
inline constexpr bool is_exactly<Enumerator<size>, Argument> = std::is_enum_v<Argument> && sizeof(Argument) == size;

template <class T, class Argument>
inline constexpr bool is_exactly<Pointer<T>, Argument> = false;

template <class T, class Element>
inline constexpr bool is_exactly<Pointer<T>, Element*> =
    std::is_const_v<T> == std::is_const_v<Element> && std::is_void_v<T> == std::is_void_v<Element> &&
    can_point<T, Element>();

// A kernel among others of its name.
template <class Kernel, class... Parameters>
struct Overload {
  using type = Kernel;

  template <class... Arguments>
  static constexpr bool takes_exactly() noexcept {
    if constexpr (sizeof...(Parameters) == sizeof...(Arguments)) {
      return (is_exactly<Parameters, std::decay_t<Arguments>> && ...);
    } else {
      return false;
    }
  }
};

// `type` is the kernel that takes exactly such arguments; there is none where no kernel does.
template <class Arguments, class... Overloads>
struct ExactOverload {};

template <class... Arguments, class First, class... Others>
struct ExactOverload<void(Arguments...), First, Others...>
    : std::conditional_t<First::template takes_exactly<Arguments...>(), First,
                         ExactOverload<void(Arguments...), Others...>> {};

template <class Arguments, class... Overloads>
using exact_overload = typename ExactOverload<Arguments, Overloads...>::type;

}  // namespace v1
}  // namespace cuda_ext
