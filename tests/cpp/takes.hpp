// What a kernel of a generated header takes, for static_assert.

#pragma once

#include <cuda_ext/interface.hpp>

#include <type_traits>
#include <utility>

using Launch = cuda_ext::LaunchConfig;

template <class Kernel, class Arguments, class = void>
inline constexpr bool is_launched_by = false;
template <class Kernel, class... Arguments>
inline constexpr bool is_launched_by<
    Kernel, void(Arguments...),
    std::void_t<decltype(std::declval<const Kernel&>().try_launch(std::declval<Launch>(), std::declval<Arguments>()...))>> =
    true;

// Whether `kernel` can be launched with such arguments, in either of two ways that take the same.
template <class... Arguments, class Kernel>
constexpr bool takes(const Kernel&) {
  constexpr bool found = is_launched_by<Kernel, void(Arguments...)>;
#if CUDA_EXT_EXCEPTIONS
  static_assert(std::is_invocable_v<const Kernel&, Launch, Arguments...> == found);
#endif
  return found;
}
