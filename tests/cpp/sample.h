// A header as a build generates it, for the module sample.kernels.

#pragma once

#include <cuda_ext/interface.hpp>

namespace sample::kernels {

CUDA_EXT_HIDDEN extern const ::cuda_ext::ModuleData cuda_ext_module;
CUDA_EXT_HIDDEN const ::cuda_ext::Library& cuda_ext_library();
CUDA_EXT_HIDDEN ::cuda_ext::ModuleKernel& cuda_ext_kernel(::std::size_t index);

namespace cuda_ext_kernels CUDA_EXT_HIDDEN {

namespace loader = ::cuda_ext;
using loader::Pointer;
using loader::Value;

template <::std::size_t index>
struct wrapper;
template <::std::size_t index, class... Parameters>
using Typed = loader::TypedKernel<cuda_ext_kernel, index, loader::LaunchConfig, Parameters...>;

struct type_ns_Particle : loader::Class {
  static constexpr char name[] = "ns::Particle";
  static constexpr ::std::size_t size = 12;
  static constexpr ::std::size_t alignment = 4;
};
struct type_ns_Mode : loader::Class {
  static constexpr char name[] = "ns::Mode";
  static constexpr ::std::size_t size = 4;
};
struct type_int128 : loader::Class {
  static constexpr char name[] = "__int128";
  static constexpr ::std::size_t size = 16;
};

// axpy<float>(int n, float a, const float* x, float* y)
template <>
struct wrapper<0> : Typed<0, Value<::std::int32_t>, Value<float>, Pointer<const float>, Pointer<float>> {};

// axpy<double>(int n, double a, const double* x, double* y)
template <>
struct wrapper<1> : Typed<1, Value<::std::int32_t>, Value<double>, Pointer<const double>, Pointer<double>> {};

template <>
struct wrapper<2> : Typed<2> {};
template <>
struct wrapper<3> : Typed<3> {};
template <>
struct wrapper<4> : Typed<4> {};
template <>
struct wrapper<5> : Typed<5> {};
template <>
struct wrapper<6> : Typed<6> {};
template <>
struct wrapper<7> : Typed<7> {};
template <>
struct wrapper<8> : Typed<8> {};

// ov(int n), ov(float a, int* x)
template <>
struct wrapper<9> : Typed<9, Value<::std::int32_t>> {};
template <>
struct wrapper<10> : Typed<10, Value<float>, Pointer<::std::int32_t>> {};

// ns::move<ns::Particle, 4>(ns::Particle* particles, ns::Particle origin, ns::Mode mode, bool back, __int128
// wide)
template <>
struct wrapper<11> : Typed<11, Pointer<type_ns_Particle>, loader::Structure<type_ns_Particle>,
                           loader::Enumerator<type_ns_Mode>, Value<bool>, loader::Structure<type_int128>> {};

template <>
struct wrapper<12> : loader::Overloads<wrapper<9>, wrapper<10>> {};

inline constexpr ::std::size_t not_built = 13;
template <>
struct wrapper<not_built> {};

template <class T0>
constexpr ::std::size_t find_axpy_kernels() noexcept {
  if (::std::is_same_v<T0, float>) return 0;
  if (::std::is_same_v<T0, double>) return 1;
  return not_built;
}
template <class T0>
struct axpy_kernels : wrapper<find_axpy_kernels<T0>()> {
  static_assert(find_axpy_kernels<T0>() != not_built,
                "axpy: not built for these template arguments; built: axpy<float>, axpy<double>");
};

template <class T0, auto V1>
constexpr ::std::size_t find_ns_move_kernels() noexcept {
  if (loader::is_named<T0>("ns::Particle") && loader::number<V1>() == 4) return 11;
  return not_built;
}
template <class T0, auto V1>
struct ns_move_kernels : wrapper<find_ns_move_kernels<T0, V1>()> {
  static_assert(find_ns_move_kernels<T0, V1>() != not_built,
                "ns::move: not built for these template arguments");
};

}  // namespace cuda_ext_kernels CUDA_EXT_HIDDEN

template <class T0>
inline constexpr cuda_ext_kernels::axpy_kernels<T0> axpy{};
inline constexpr cuda_ext_kernels::wrapper<2> plain{};
inline constexpr cuda_ext_kernels::wrapper<3> tiled{};
inline constexpr cuda_ext_kernels::wrapper<4> gemm{};
inline constexpr cuda_ext_kernels::wrapper<5> later{};
inline constexpr cuda_ext_kernels::wrapper<6> small{};
inline constexpr cuda_ext_kernels::wrapper<7> separate{};
inline constexpr cuda_ext_kernels::wrapper<8> narrow{};
inline constexpr cuda_ext_kernels::wrapper<12> ov{};
inline constexpr cuda_ext_kernels::loader::TypedSymbol<cuda_ext_library, 0, 36, float> weights{};
namespace ns {
template <class T0, auto V1>
inline constexpr cuda_ext_kernels::ns_move_kernels<T0, V1> move{};
}

}  // namespace sample::kernels
