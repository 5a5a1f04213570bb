// Intrinsics that compute: roundings, conversions, bits, and integers that share a register.

#pragma once

extern "C" {

// Each in the four roundings.
#define ROUNDED_(result, name, suffix, ...)                                              \
  __device__ result __##name##_rn##suffix(__VA_ARGS__);                                  \
  __device__ result __##name##_rz##suffix(__VA_ARGS__);                                  \
  __device__ result __##name##_ru##suffix(__VA_ARGS__);                                  \
  __device__ result __##name##_rd##suffix(__VA_ARGS__);
#define ROUNDED(result, name, ...) ROUNDED_(result, name, , __VA_ARGS__)
ROUNDED(float, fadd, float x, float y)
ROUNDED(float, fsub, float x, float y)
ROUNDED(float, fmul, float x, float y)
ROUNDED(float, fdiv, float x, float y)
ROUNDED(float, fmaf, float x, float y, float z)
ROUNDED(float, fmaf_ieee, float x, float y, float z)
ROUNDED(float, frcp, float x)
ROUNDED(float, fsqrt, float x)
ROUNDED(double, dadd, double x, double y)
ROUNDED(double, dsub, double x, double y)
ROUNDED(double, dmul, double x, double y)
ROUNDED(double, ddiv, double x, double y)
ROUNDED(double, fma, double x, double y, double z)
ROUNDED(double, drcp, double x)
ROUNDED(double, dsqrt, double x)
ROUNDED(float2, fadd2, float2 x, float2 y)
ROUNDED(float2, fmul2, float2 x, float2 y)
ROUNDED(float2, ffma2, float2 x, float2 y, float2 z)
ROUNDED(int, float2int, float x)
ROUNDED(unsigned int, float2uint, float x)
ROUNDED(long long, float2ll, float x)
ROUNDED(unsigned long long, float2ull, float x)
ROUNDED(int, double2int, double x)
ROUNDED(unsigned int, double2uint, double x)
ROUNDED(long long, double2ll, double x)
ROUNDED(unsigned long long, double2ull, double x)
ROUNDED(float, double2float, double x)
ROUNDED(float, int2float, int x)
ROUNDED(float, uint2float, unsigned int x)
ROUNDED(float, ll2float, long long x)
ROUNDED(float, ull2float, unsigned long long x)
ROUNDED(double, ll2double, long long x)
ROUNDED(double, ull2double, unsigned long long x)
#undef ROUNDED
#undef ROUNDED_

__device__ double __int2double_rn(int x);
__device__ double __uint2double_rn(unsigned int x);
__device__ float __frsqrt_rn(float x);
__device__ float __saturatef(float x);

// Fast and less exact.
__device__ float __fdividef(float x, float y);
__device__ float fdividef(float x, float y);
__device__ double fdivide(double x, double y);
__device__ float __sinf(float x);
__device__ float __cosf(float x);
__device__ float __tanf(float x);
__device__ float __tanhf(float x);
__device__ void __sincosf(float x, float* sine, float* cosine);
__device__ float __expf(float x);
__device__ float __exp10f(float x);
__device__ float __logf(float x);
__device__ float __log2f(float x);
__device__ float __log10f(float x);
__device__ float __powf(float x, float y);

// The same bits as another type.
__device__ float __int_as_float(int x);
__device__ int __float_as_int(float x);
__device__ float __uint_as_float(unsigned int x);
__device__ unsigned int __float_as_uint(float x);
__device__ double __longlong_as_double(long long x);
__device__ long long __double_as_longlong(double x);
__device__ int __double2hiint(double x);
__device__ int __double2loint(double x);
__device__ double __hiloint2double(int high, int low);

__device__ int __clz(int x);
__device__ int __clzll(long long x);
__device__ int __ffs(int x);
__device__ int __ffsll(long long x);
__device__ int __popc(unsigned int x);
__device__ int __popcll(unsigned long long x);
__device__ unsigned int __brev(unsigned int x);
__device__ unsigned long long __brevll(unsigned long long x);
__device__ unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int selector);
__device__ unsigned int __fns(unsigned int mask, unsigned int base, int offset);
__device__ unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int shift);
__device__ unsigned int __funnelshift_lc(unsigned int low, unsigned int high, unsigned int shift);
__device__ unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift);
__device__ unsigned int __funnelshift_rc(unsigned int low, unsigned int high, unsigned int shift);
__device__ unsigned short __nv_bswap16(unsigned short x);
__device__ unsigned int __nv_bswap32(unsigned int x);
__device__ unsigned long long __nv_bswap64(unsigned long long x);

__device__ int __mulhi(int x, int y);
__device__ unsigned int __umulhi(unsigned int x, unsigned int y);
__device__ long long __mul64hi(long long x, long long y);
__device__ unsigned long long __umul64hi(unsigned long long x, unsigned long long y);
__device__ int __mul24(int x, int y);
__device__ unsigned int __umul24(unsigned int x, unsigned int y);
__device__ unsigned int __sad(int x, int y, unsigned int z);
__device__ unsigned int __usad(unsigned int x, unsigned int y, unsigned int z);
__device__ int __hadd(int x, int y);
__device__ int __rhadd(int x, int y);
__device__ unsigned int __uhadd(unsigned int x, unsigned int y);
__device__ unsigned int __urhadd(unsigned int x, unsigned int y);

// Two halfwords or four bytes in a register.
#define PACKED1(name)                                         \
  __device__ unsigned int __v##name##2(unsigned int a);       \
  __device__ unsigned int __v##name##4(unsigned int a);
#define PACKED2(name)                                                      \
  __device__ unsigned int __v##name##2(unsigned int a, unsigned int b);    \
  __device__ unsigned int __v##name##4(unsigned int a, unsigned int b);
PACKED1(abs) PACKED1(absss) PACKED1(neg) PACKED1(negss)
PACKED2(add) PACKED2(addss) PACKED2(addus) PACKED2(sub) PACKED2(subss) PACKED2(subus)
PACKED2(avgs) PACKED2(avgu) PACKED2(haddu) PACKED2(absdiffs) PACKED2(absdiffu) PACKED2(sads) PACKED2(sadu)
PACKED2(maxs) PACKED2(maxu) PACKED2(mins) PACKED2(minu)
#define COMPARED(name)                                                                 \
  PACKED2(name##eq) PACKED2(name##ne)                                                  \
  PACKED2(name##ges) PACKED2(name##geu) PACKED2(name##gts) PACKED2(name##gtu)          \
  PACKED2(name##les) PACKED2(name##leu) PACKED2(name##lts) PACKED2(name##ltu)
COMPARED(cmp) COMPARED(set)
#undef COMPARED
#undef PACKED2
#undef PACKED1

}  // extern "C"

// Minima and maxima of several integers, of sums, and with zero.
#define EXTREMA(type, suffix)                                           \
  __device__ type __vimax3_##suffix(type a, type b, type c);            \
  __device__ type __vimin3_##suffix(type a, type b, type c);            \
  __device__ type __viaddmax_##suffix(type a, type b, type c);          \
  __device__ type __viaddmin_##suffix(type a, type b, type c);
#define EXTREMA_RELU(type, suffix)                                      \
  EXTREMA(type, suffix)                                                 \
  EXTREMA(type, suffix##_relu)                                          \
  __device__ type __vimax_##suffix##_relu(type a, type b);              \
  __device__ type __vimin_##suffix##_relu(type a, type b);
#define EXTREMA_CHOICE(type, suffix)                                    \
  __device__ type __vibmax_##suffix(type a, type b, bool* first);       \
  __device__ type __vibmin_##suffix(type a, type b, bool* first);
#define EXTREMA_CHOICES(suffix)                                                                          \
  __device__ unsigned int __vibmax_##suffix(unsigned int a, unsigned int b, bool* high, bool* low);      \
  __device__ unsigned int __vibmin_##suffix(unsigned int a, unsigned int b, bool* high, bool* low);
EXTREMA_RELU(int, s32) EXTREMA_RELU(unsigned int, s16x2)
EXTREMA(unsigned int, u32) EXTREMA(unsigned int, u16x2)
EXTREMA_CHOICE(int, s32) EXTREMA_CHOICE(unsigned int, u32)
EXTREMA_CHOICES(s16x2) EXTREMA_CHOICES(u16x2)
#undef EXTREMA_CHOICES
#undef EXTREMA_CHOICE
#undef EXTREMA_RELU
#undef EXTREMA

#define DOT_PRODUCT(name, pairs)                                                                \
  __device__ int name(int a, int b, int c);                                                     \
  __device__ unsigned int name(unsigned int a, unsigned int b, unsigned int c);                 \
  __device__ int name(pairs a, char4 b, int c);                                                 \
  __device__ unsigned int name(u##pairs a, uchar4 b, unsigned int c);
DOT_PRODUCT(__dp4a, char4)
DOT_PRODUCT(__dp2a_lo, short2)
DOT_PRODUCT(__dp2a_hi, short2)
#undef DOT_PRODUCT
