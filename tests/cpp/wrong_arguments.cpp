// No line that ends in a comment compiles, and the comment is part of what the compiler says of it.

#include "sample.h"

#if defined(CONSTANT)
void constant(const float* x, float* y) { sample::kernels::axpy<float>({1, 1}, 5000000000, 2.0f, x, y); }
#else

namespace ns {
struct Particle {
  float x, y, z;
};
enum class Mode { slow };
}  // namespace ns
enum class Mode { slow };
struct Point {
  float x, y, z;
};
struct Larger {
  double x, y;
};
struct Owner {
  ~Owner() {}
  float x, y, z;
};
template <>
inline constexpr const char* cuda_ext::device_name<Larger> = "ns::Particle";
template <>
inline constexpr const char* cuda_ext::device_name<Owner> = "ns::Particle";

void wrong(ns::Particle* p, Point* q, Larger* r, const Owner& o) {
  namespace kernels = sample::kernels;
  constexpr auto move = kernels::ns::move<ns::Particle, 4>;
  move({1, 1}, q, *p, 0, true, nullptr);  // to another class; if it mirrors that of device code
  move({1, 1}, p, *q, 0, true, nullptr);  // another class; if it mirrors that of device code
  move({1, 1}, p, *p, Mode::slow, true, 0);  // another enumeration; if it mirrors
  (void)cuda_ext::Structure<kernels::cuda_ext_kernels::type_ns_Particle>(*r);  // are_sizes_equal<16, 12>
  (void)cuda_ext::Structure<kernels::cuda_ext_kernels::type_ns_Particle>(o);  // must be trivially copyable
  (void)r->x;
}

void wrong(float* x, const float* y, double* z) {
  namespace kernels = sample::kernels;
  kernels::axpy<float>({1, 1}, 1, 2.0, x, x);     // from 'double' to 'Value<float>'
  kernels::axpy<float>({1, 1}, 1, 2.0f, x, y);    // from 'const float*' to 'Pointer<float>'
  kernels::axpy<float>({1, 1}, 1, 2.0f, z, x);    // from 'double*' to 'Pointer<const float>'
  kernels::axpy<float>({1, 1}, 1, 2.0f, x);       // candidate expects 5 arguments, 4 provided
  kernels::axpy<float>({1.5, 1}, 1, 2.0f, x, x);  // initializer list>' to 'const LaunchConfig&'
  kernels::axpy<int>({1, 1}, 1, 2, x, x);  // axpy: not built for these template arguments; built: axpy<float>
  kernels::plain({1});  // from '<brace-enclosed initializer list>' to 'const LaunchConfig&'
  kernels::plain.kernel().launch({1, 1}, "text");  // the GPU gets an argument as its bytes
  kernels::plain.try_launch({1, 1});               // ignoring return value of
  kernels::ov({1, 1}, 1.0f);                       // is not a member of 'NoKernelTakesTheseArguments'
  kernels::weights.copy_from(z);                   // no matching function for call to
  const float constant[9] = {};
  kernels::weights.copy_to(constant);  // the target of a copy must not be const
}
#endif
