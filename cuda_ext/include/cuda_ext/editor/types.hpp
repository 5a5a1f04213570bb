// Vector types, and the types of the CUDA runtime that device code uses.

#pragma once

typedef decltype(sizeof(0)) size_t;
typedef decltype((char*)0 - (char*)0) ptrdiff_t;
typedef long clock_t;

namespace std {

enum class align_val_t : size_t {};

template <class T>
class initializer_list {
 public:
  typedef T value_type;
  typedef const T& reference;
  typedef const T& const_reference;
  typedef size_t size_type;
  typedef const T* iterator;
  typedef const T* const_iterator;

  __host__ __device__ constexpr initializer_list() noexcept : first(nullptr), count(0) {}
  __host__ __device__ constexpr size_t size() const noexcept { return count; }
  __host__ __device__ constexpr const T* begin() const noexcept { return first; }
  __host__ __device__ constexpr const T* end() const noexcept { return first + count; }

 private:
  const T* first;
  size_t count;
};

template <class T>
__host__ __device__ constexpr __remove_reference_t(T) && move(T&& value) noexcept {
  return static_cast<__remove_reference_t(T)&&>(value);
}
template <class T>
__host__ __device__ constexpr T&& forward(__remove_reference_t(T) & value) noexcept {
  return static_cast<T&&>(value);
}
template <class T>
__host__ __device__ constexpr T&& forward(__remove_reference_t(T) && value) noexcept {
  return static_cast<T&&>(value);
}

}  // namespace std

// float3, make_float3 and the like; vectors of two and four lie as one access needs them.
#define VECTOR(type, element, align2, align4)                                                       \
  struct type##1 { element x; };                                                                    \
  struct __align__(align2) type##2 { element x, y; };                                               \
  struct type##3 { element x, y, z; };                                                              \
  struct __align__(align4) type##4 { element x, y, z, w; };                                         \
  __host__ __device__ type##1 make_##type##1(element x);                                            \
  __host__ __device__ type##2 make_##type##2(element x, element y);                                 \
  __host__ __device__ type##3 make_##type##3(element x, element y, element z);                      \
  __host__ __device__ type##4 make_##type##4(element x, element y, element z, element w);
VECTOR(char, signed char, 2, 4)
VECTOR(uchar, unsigned char, 2, 4)
VECTOR(short, short, 4, 8)
VECTOR(ushort, unsigned short, 4, 8)
VECTOR(int, int, 8, 16)
VECTOR(uint, unsigned int, 8, 16)
VECTOR(long, long, 2 * sizeof(long), 16)
VECTOR(ulong, unsigned long, 2 * sizeof(long), 16)
VECTOR(longlong, long long, 16, 16)
VECTOR(ulonglong, unsigned long long, 16, 16)
VECTOR(float, float, 8, 16)
VECTOR(double, double, 16, 16)
#undef VECTOR

// Vectors of four that are larger than an access once was, by their alignment.
#define ALIGNED_VECTOR(type, element, align)                                                        \
  struct __align__(align) type##4_##align##a { element x, y, z, w; };                               \
  __host__ __device__ type##4_##align##a make_##type##4_##align##a(element x, element y, element z, \
                                                                   element w);
#define ALIGNED_VECTORS(type, element) ALIGNED_VECTOR(type, element, 16) ALIGNED_VECTOR(type, element, 32)
ALIGNED_VECTORS(long, long)
ALIGNED_VECTORS(ulong, unsigned long)
ALIGNED_VECTORS(longlong, long long)
ALIGNED_VECTORS(ulonglong, unsigned long long)
ALIGNED_VECTORS(double, double)
#undef ALIGNED_VECTORS
#undef ALIGNED_VECTOR

struct dim3 {
  unsigned int x, y, z;
  __host__ __device__ constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1)
      : x(x), y(y), z(z) {}
  __host__ __device__ constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  __host__ __device__ constexpr operator uint3() const { return uint3{x, y, z}; }
};

enum cudaRoundMode { cudaRoundNearest, cudaRoundZero, cudaRoundPosInf, cudaRoundMinInf };

enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorNotSupported = 801,
  cudaErrorUnknown = 999,
};
typedef enum cudaError cudaError_t;
enum cudaDeviceAttr : int;
typedef struct CUstream_st* cudaStream_t;
#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;
typedef unsigned long long cudaGraphConditionalHandle;
typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaSurfaceObject_t;
enum cudaSharedMemConfig {
  cudaSharedMemBankSizeDefault,
  cudaSharedMemBankSizeFourByte,
  cudaSharedMemBankSizeEightByte,
};
enum cudaSurfaceBoundaryMode { cudaBoundaryModeZero, cudaBoundaryModeClamp, cudaBoundaryModeTrap };
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault,
};
