// Mathematical functions. As in C++, each name takes float and double; with an f it is float's alone.

#pragma once

#define REAL1(name)                              \
  extern "C" __device__ double name(double x);   \
  extern "C" __device__ float name##f(float x);  \
  __device__ float name(float x);
REAL1(acos) REAL1(acosh) REAL1(asin) REAL1(asinh) REAL1(atan) REAL1(atanh) REAL1(cbrt) REAL1(ceil)
REAL1(cos) REAL1(cosh) REAL1(cospi) REAL1(cyl_bessel_i0) REAL1(cyl_bessel_i1) REAL1(erf) REAL1(erfc)
REAL1(erfcinv) REAL1(erfcx) REAL1(erfinv) REAL1(exp) REAL1(exp10) REAL1(exp2) REAL1(expm1) REAL1(fabs)
REAL1(floor) REAL1(j0) REAL1(j1) REAL1(lgamma) REAL1(log) REAL1(log10) REAL1(log1p) REAL1(log2) REAL1(logb)
REAL1(nearbyint) REAL1(normcdf) REAL1(normcdfinv) REAL1(rcbrt) REAL1(rint) REAL1(round) REAL1(rsqrt)
REAL1(sin) REAL1(sinh) REAL1(sinpi) REAL1(sqrt) REAL1(tan) REAL1(tanh) REAL1(tgamma) REAL1(trunc) REAL1(y0)
REAL1(y1)
#undef REAL1

#define REAL2(name)                                        \
  extern "C" __device__ double name(double x, double y);   \
  extern "C" __device__ float name##f(float x, float y);   \
  __device__ float name(float x, float y);
REAL2(atan2) REAL2(copysign) REAL2(fdim) REAL2(fmax) REAL2(fmin) REAL2(fmod) REAL2(hypot) REAL2(nextafter)
REAL2(pow) REAL2(remainder) REAL2(rhypot)
#undef REAL2

#define OTHER(parameters_of_double, parameters_of_float, double_result, float_result, name)     \
  extern "C" __device__ double_result name parameters_of_double;                                \
  extern "C" __device__ float_result name##f parameters_of_float;                               \
  __device__ float_result name parameters_of_float;
OTHER((double x, double y, double z), (float x, float y, float z), double, float, fma)
OTHER((double a, double b, double c), (float a, float b, float c), double, float, norm3d)
OTHER((double a, double b, double c), (float a, float b, float c), double, float, rnorm3d)
OTHER((double a, double b, double c, double d), (float a, float b, float c, float d), double, float, norm4d)
OTHER((double a, double b, double c, double d), (float a, float b, float c, float d), double, float, rnorm4d)
OTHER((int count, const double* p), (int count, const float* p), double, float, norm)
OTHER((int count, const double* p), (int count, const float* p), double, float, rnorm)
OTHER((double x, double* sine, double* cosine), (float x, float* sine, float* cosine), void, void, sincos)
OTHER((double x, double* sine, double* cosine), (float x, float* sine, float* cosine), void, void, sincospi)
OTHER((double x, double* integral), (float x, float* integral), double, float, modf)
OTHER((double x, int* exponent), (float x, int* exponent), double, float, frexp)
OTHER((double x, int exponent), (float x, int exponent), double, float, ldexp)
OTHER((double x, int n), (float x, int n), double, float, scalbn)
OTHER((double x, long n), (float x, long n), double, float, scalbln)
OTHER((double x, double y, int* quotient), (float x, float y, int* quotient), double, float, remquo)
OTHER((int n, double x), (int n, float x), double, float, jn)
OTHER((int n, double x), (int n, float x), double, float, yn)
OTHER((double x), (float x), int, int, ilogb)
OTHER((double x), (float x), long, long, lrint)
OTHER((double x), (float x), long, long, lround)
OTHER((double x), (float x), long long, long long, llrint)
OTHER((double x), (float x), long long, long long, llround)
#undef OTHER
extern "C" __device__ double nan(const char* tag);
extern "C" __device__ float nanf(const char* tag);

#define CLASSIFIED(name)                 \
  __device__ bool name(float x);         \
  __device__ bool name(double x);        \
  __device__ bool name(long double x);
CLASSIFIED(isfinite) CLASSIFIED(isinf) CLASSIFIED(isnan) CLASSIFIED(signbit)
#undef CLASSIFIED

extern "C" __device__ int abs(int x);
extern "C" __device__ long labs(long x);
extern "C" __device__ long long llabs(long long x);
__device__ long abs(long x);
__device__ long long abs(long long x);
__device__ float abs(float x);
__device__ double abs(double x);

// Of a signed and an unsigned integer the result is unsigned.
#define EXTREMUM_OF_INTEGERS(name, type)                           \
  __device__ type name(type a, type b);                            \
  __device__ unsigned type name(unsigned type a, unsigned type b); \
  __device__ unsigned type name(type a, unsigned type b);          \
  __device__ unsigned type name(unsigned type a, type b);
#define EXTREMUM(name)                                             \
  EXTREMUM_OF_INTEGERS(name, int)                                  \
  EXTREMUM_OF_INTEGERS(name, long)                                 \
  EXTREMUM_OF_INTEGERS(name, long long)                            \
  __device__ float name(float a, float b);                         \
  __device__ double name(double a, double b);                      \
  __device__ double name(float a, double b);                       \
  __device__ double name(double a, float b);                       \
  extern "C" __device__ unsigned int u##name(unsigned int a, unsigned int b); \
  extern "C" __device__ long long ll##name(long long a, long long b);         \
  extern "C" __device__ unsigned long long ull##name(unsigned long long a, unsigned long long b);
EXTREMUM(min) EXTREMUM(max)
#undef EXTREMUM
#undef EXTREMUM_OF_INTEGERS
