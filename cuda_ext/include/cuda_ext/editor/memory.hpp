// Memory: atomics, loads and stores past caches, address spaces, allocation.

#pragma once

// For all threads of the GPU, for those of the block alone, and for other GPUs and the host too.
#define ATOMIC(type, name)                                         \
  __device__ type name(type* address, type value);                 \
  __device__ type name##_block(type* address, type value);         \
  __device__ type name##_system(type* address, type value);
#define ATOMIC_CAS(type)                                                            \
  __device__ type atomicCAS(type* address, type expected, type value);              \
  __device__ type atomicCAS_block(type* address, type expected, type value);        \
  __device__ type atomicCAS_system(type* address, type expected, type value);
#define ATOMIC_32(name) ATOMIC(int, name) ATOMIC(unsigned int, name)
#define ATOMIC_64(name) ATOMIC(long long, name) ATOMIC(unsigned long long, name)
ATOMIC_32(atomicAdd) ATOMIC(unsigned long long, atomicAdd) ATOMIC(float, atomicAdd) ATOMIC(double, atomicAdd)
ATOMIC(float2, atomicAdd) ATOMIC(float4, atomicAdd)
ATOMIC_32(atomicSub)
ATOMIC_32(atomicExch) ATOMIC(unsigned long long, atomicExch) ATOMIC(float, atomicExch)
ATOMIC_32(atomicMin) ATOMIC_64(atomicMin)
ATOMIC_32(atomicMax) ATOMIC_64(atomicMax)
ATOMIC_32(atomicAnd) ATOMIC_64(atomicAnd)
ATOMIC_32(atomicOr) ATOMIC_64(atomicOr)
ATOMIC_32(atomicXor) ATOMIC_64(atomicXor)
ATOMIC(unsigned int, atomicInc) ATOMIC(unsigned int, atomicDec)
ATOMIC_CAS(int) ATOMIC_CAS(unsigned int) ATOMIC_CAS(unsigned long long) ATOMIC_CAS(unsigned short)
#undef ATOMIC_64
#undef ATOMIC_32
#undef ATOMIC_CAS
#undef ATOMIC

// For any 128 bits that may be copied.
#define ATOMIC_128(scope)                                                                                    \
  template <class T> __device__ T atomicExch##scope(T* address, T value);                                    \
  template <class T> __device__ T atomicCAS##scope(T* address, T expected, T value);
ATOMIC_128() ATOMIC_128(_block) ATOMIC_128(_system)
#undef ATOMIC_128

#define CACHED(type)                                                                              \
  __device__ type __ldg(const type* address);                                                     \
  __device__ type __ldca(const type* address);                                                    \
  __device__ type __ldcg(const type* address);                                                    \
  __device__ type __ldcs(const type* address);                                                    \
  __device__ type __ldcv(const type* address);                                                    \
  __device__ type __ldlu(const type* address);                                                    \
  __device__ void __stcg(type* address, type value);                                              \
  __device__ void __stcs(type* address, type value);                                              \
  __device__ void __stwb(type* address, type value);                                              \
  __device__ void __stwt(type* address, type value);
CACHED(char) CACHED(signed char) CACHED(short) CACHED(int) CACHED(long) CACHED(long long)
CACHED(unsigned char) CACHED(unsigned short) CACHED(unsigned int) CACHED(unsigned long)
CACHED(unsigned long long) CACHED(float) CACHED(double)
CACHED(char2) CACHED(char4) CACHED(uchar2) CACHED(uchar4) CACHED(short2) CACHED(short4) CACHED(ushort2)
CACHED(ushort4) CACHED(int2) CACHED(int4) CACHED(uint2) CACHED(uint4) CACHED(longlong2) CACHED(ulonglong2)
CACHED(float2) CACHED(float4) CACHED(double2)
#undef CACHED

extern "C" {

#define ADDRESS_SPACE(Name, name)                                                                         \
  __device__ unsigned int __is##Name(const void* address);                                                \
  __device__ size_t __cvta_generic_to_##name(const void* address);                                        \
  __device__ void* __cvta_##name##_to_generic(size_t address);
ADDRESS_SPACE(Global, global) ADDRESS_SPACE(Shared, shared) ADDRESS_SPACE(Constant, constant)
ADDRESS_SPACE(Local, local) ADDRESS_SPACE(GridConstant, grid_constant)
#undef ADDRESS_SPACE
__device__ unsigned int __isCtaShared(const void* address);
__device__ unsigned int __isClusterShared(const void* address);
__device__ void* __nv_associate_access_property(const void* address, unsigned long long property);
__device__ void __nv_memcpy_async_shared_global_4(void* to, const void* from, unsigned int size);
__device__ void __nv_memcpy_async_shared_global_8(void* to, const void* from, unsigned int size);
__device__ void __nv_memcpy_async_shared_global_16(void* to, const void* from, unsigned int size);

__host__ __device__ void* memcpy(void* to, const void* from, size_t size);
__host__ __device__ void* memset(void* to, int value, size_t size);
__device__ void* malloc(size_t size);
__device__ void free(void* address);
__device__ void* __nv_aligned_device_malloc(size_t size, size_t align);

}  // extern "C"

__device__ void* operator new(size_t size);
__device__ void* operator new[](size_t size);
__device__ void operator delete(void* address) noexcept;
__device__ void operator delete[](void* address) noexcept;
__device__ void operator delete(void* address, size_t size) noexcept;
__device__ void operator delete[](void* address, size_t size) noexcept;
__host__ __device__ inline void* operator new(size_t, void* address) noexcept { return address; }
__host__ __device__ inline void* operator new[](size_t, void* address) noexcept { return address; }
__host__ __device__ inline void operator delete(void*, void*) noexcept {}
__host__ __device__ inline void operator delete[](void*, void*) noexcept {}
