// A header as a build generates it, for the module sample.kernels.

#pragma once

#include <cuda_ext/loader.hpp>

namespace sample::kernels {

CUDA_EXT_HIDDEN extern const ::cuda_ext::ModuleData cuda_ext_module;
CUDA_EXT_HIDDEN const ::cuda_ext::Library& cuda_ext_library();

namespace cuda_ext_kernels CUDA_EXT_HIDDEN {

// axpy<float>(int n, float a, const float* x, float* y)
struct kernel_0 : ::cuda_ext::StaticKernel<cuda_ext_library, 0> {
#if CUDA_EXT_EXCEPTIONS
  void operator()(const ::cuda_ext::LaunchConfig& config, ::cuda_ext::Value<::std::int32_t> n,
                  ::cuda_ext::Value<float> a, ::cuda_ext::Pointer<const float> x,
                  ::cuda_ext::Pointer<float> y) const {
    launch(config, n, a, x, y);
  }
#endif
  [[nodiscard]] ::cuda_ext::Result<void> try_launch(const ::cuda_ext::LaunchConfig& config,
                                                    ::cuda_ext::Value<::std::int32_t> n,
                                                    ::cuda_ext::Value<float> a,
                                                    ::cuda_ext::Pointer<const float> x,
                                                    ::cuda_ext::Pointer<float> y) const noexcept {
    return attempt(config, n, a, x, y);
  }
};

// axpy<double>(int n, double a, const double* x, double* y)
struct kernel_1 : ::cuda_ext::StaticKernel<cuda_ext_library, 1> {
#if CUDA_EXT_EXCEPTIONS
  void operator()(const ::cuda_ext::LaunchConfig& config, ::cuda_ext::Value<::std::int32_t> n,
                  ::cuda_ext::Value<double> a, ::cuda_ext::Pointer<const double> x,
                  ::cuda_ext::Pointer<double> y) const {
    launch(config, n, a, x, y);
  }
#endif
};

// Kernels without parameters.
template <::std::size_t index>
struct plain_kernel : ::cuda_ext::StaticKernel<cuda_ext_library, index> {
#if CUDA_EXT_EXCEPTIONS
  void operator()(const ::cuda_ext::LaunchConfig& config) const { this->launch(config); }
#endif
  [[nodiscard]] ::cuda_ext::Result<void> try_launch(const ::cuda_ext::LaunchConfig& config) const noexcept {
    return this->attempt(config);
  }
};

// ov(int n), ov(float a, int* x)
struct kernel_9 : ::cuda_ext::StaticKernel<cuda_ext_library, 9> {
#if CUDA_EXT_EXCEPTIONS
  void operator()(const ::cuda_ext::LaunchConfig& config, ::cuda_ext::Value<::std::int32_t> n) const {
    launch(config, n);
  }
#endif
};
struct kernel_10 : ::cuda_ext::StaticKernel<cuda_ext_library, 10> {
#if CUDA_EXT_EXCEPTIONS
  void operator()(const ::cuda_ext::LaunchConfig& config, ::cuda_ext::Value<float> a,
                  ::cuda_ext::Pointer<::std::int32_t> x) const {
    launch(config, a, x);
  }
#endif
};
struct ov_ : kernel_9, kernel_10 {
#if CUDA_EXT_EXCEPTIONS
  using kernel_9::operator();
  using kernel_10::operator();
#endif
};

// ns::move<ns::Particle, 4>(ns::Particle* particles, ns::Particle origin, ns::Mode mode, bool back, __int128
// wide)
struct kernel_11 : ::cuda_ext::StaticKernel<cuda_ext_library, 11> {
#if CUDA_EXT_EXCEPTIONS
  void operator()(const ::cuda_ext::LaunchConfig& config, ::cuda_ext::Pointer<::cuda_ext::Class> particles,
                  ::cuda_ext::Structure<12> origin, ::cuda_ext::Enumerator<4> mode,
                  ::cuda_ext::Value<bool> back, ::cuda_ext::Opaque<16> wide) const {
    launch(config, particles, origin, mode, back, wide);
  }
#endif
};

template <unsigned long long... Arguments>
struct axpy_ {
  static_assert(sizeof...(Arguments) == ~0u,
                "axpy: not built for these template arguments; built: axpy<float>, axpy<double>");
};
template <>
struct axpy_<::cuda_ext::type_id<float>> : kernel_0 {};
template <>
struct axpy_<::cuda_ext::type_id<double>> : kernel_1 {};

template <unsigned long long... Arguments>
struct move_ {
  static_assert(sizeof...(Arguments) == ~0u, "ns::move: not built for these template arguments");
};
template <>
struct move_<::cuda_ext::named_type("ns::Particle"), ::cuda_ext::value_id(4)> : kernel_11 {};

}  // namespace cuda_ext_kernels

template <class T0>
inline constexpr cuda_ext_kernels::axpy_<::cuda_ext::type_id<T0>> axpy{};
inline constexpr cuda_ext_kernels::plain_kernel<2> plain{};
inline constexpr cuda_ext_kernels::plain_kernel<3> tiled{};
inline constexpr cuda_ext_kernels::plain_kernel<4> gemm{};
inline constexpr cuda_ext_kernels::plain_kernel<5> later{};
inline constexpr cuda_ext_kernels::plain_kernel<6> small{};
inline constexpr cuda_ext_kernels::plain_kernel<7> separate{};
inline constexpr cuda_ext_kernels::plain_kernel<8> narrow{};
inline constexpr cuda_ext_kernels::ov_ ov{};
namespace ns {
template <class T0, long long V1>
inline constexpr cuda_ext_kernels::move_<::cuda_ext::type_id<T0>, ::cuda_ext::value_id(V1)> move{};
}

}  // namespace sample::kernels
