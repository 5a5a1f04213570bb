// Kernels with names and template arguments of all kinds, each of which takes an int unless it says otherwise.

#include <awkward/class/new.h>

#include "takes.hpp"

#include <cstddef>
#include <cstdint>

namespace k = awkward::class_::new_;

namespace ns {
struct A {
  double x;
};
struct Eight {
  double x;
};
struct Particle;
enum class Mode : unsigned char { slow, fast };
template <class T, int N>
struct vec;
}  // namespace ns

// Names that something else has.
static_assert(takes<int>(k::Library) && takes<int>(k::axpy_) && takes<int>(k::größe) && takes<int>(k::my_cast));
static_assert(takes<int>(k::cuda_ext_kernels_) && takes<int>(k::cuda_ext_module_));
static_assert(takes<int>(k::cuda_ext_library_) && takes<int>(k::linux_) && takes<int>(k::kernel_data));
static_assert(takes<int>(k::std_) && takes<int>(k::std::g) && takes<int>(k::ns::std::f));
static_assert(takes<int>(k::cuda_ext_) && takes<int>(k::cuda_ext::h) && takes<int>(k::cuda_ext::v1::h<int>));
static_assert(takes<int>(k::new_2_) && takes<int>(k::new_::k) && takes<int>(k::ns::cuda_ext_kernels_::f));
static_assert(takes<int>(k::ns::a::b) && takes<int>(k::ns::a::c<int>));
static_assert(takes<int>(k::ns::a_) && takes<int>(k::ns::a_2_));
static_assert(takes<int>(k::a_b<int>) && takes<int>(k::a::b<int>));
static_assert(takes<int>(k::T0<int>) && takes<int>(k::T0<>) && takes<int>(k::both<>) && takes<int>(k::both<int>));
static_assert(takes<int>(k::axpy<float>) && takes<int>(k::axpy__<int>));

// Values and types.
static_assert(takes<int>(k::values<-1>) && takes<int>(k::values<'a'>) && takes<int>(k::values<true>));
static_assert(takes<int>(k::values<128u>) && takes<int>(k::values<-9223372036854775807 - 1>));
static_assert(takes<int>(k::values<'\''>) && takes<int>(k::values<'"'>) && takes<int>(k::values<'\\'>));
static_assert(takes<int>(k::values<256>) && takes<int>(k::values<static_cast<char>(2)>));
static_assert(takes<int>(k::big<long>) && takes<int>(k::big<long long>) && takes<int>(k::big<std::int64_t>));
static_assert(takes<int>(k::big<const std::int64_t*>) && takes<int>(k::big<std::size_t>));
static_assert(takes<int>(k::mixed<4, long>) && takes<int>(k::mixed<256, long>));
static_assert(takes<int>(k::mixed<4, std::int64_t>) && takes<int>(k::mixed<256, std::int64_t>));
static_assert(takes<int>(k::typed<ns::vec<float, 4>>) && takes<int>(k::typed<ns::vec<unsigned, 2>>));
static_assert(takes<int>(k::typed<ns::Particle>) && takes<int>(k::typed<const ns::Particle*>));
static_assert(takes<int>(k::typed<std::byte>) && takes<int>(k::typed<const volatile float&>));
static_assert(takes<int>(k::pack<int>) && takes<int>(k::pack<int, float>) && takes<int>(k::pack<>));
static_assert(takes<int>(k::defaults<float>) && takes<int>(k::defaults<float, 4>));
static_assert(takes<int>(k::mode<ns::Mode::fast>) && takes<int>(k::mode<1>) && takes<int>(k::mode_ns_Mode_fast));

// What templates cannot tell, and what is no name in C++.
static_assert(takes<int>(k::either_int) && takes<int>(k::either_4));
static_assert(takes<int>(k::function_void_int) && takes<int>(k::function_nullptr));
static_assert(takes<int>(k::static_cast_void_int_cast) && takes<int>(k::anonymous_namespace_q));
static_assert(takes<int>(k::odd) && takes<int>(k::kernel_0odd) && takes<int>(k::lambda_lambda_int_int));

// Overloads.
static_assert(takes<int>(k::ov) && takes<float, std::nullptr_t>(k::ov));
static_assert(takes<int>(k::twofold<float>) && takes<float>(k::twofold<float>));
static_assert(takes<int>(k::same) && takes<ns::A>(k::same) && !takes<ns::Eight>(k::same));
static_assert(takes<ns::A*>(k::other) && !takes<ns::Eight*>(k::other) && !takes<void*>(k::other));
