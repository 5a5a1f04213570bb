// No line that ends in a comment compiles, and the comment is part of what the compiler says of it.

#include "sample.h"

#if defined(CONSTANT)
void constant(const float* x, float* y) { sample::kernels::axpy<float>({1, 1}, 5000000000, 2.0f, x, y); }
#else

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
}
#endif
