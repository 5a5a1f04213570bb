// The types that device code takes from PyTorch's headers.
#pragma once

#include "cstdint"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace c10 {
using Half = ::__half;
using BFloat16 = ::__nv_bfloat16;
}  // namespace c10
namespace at {
using c10::BFloat16;
using c10::Half;

template <class T>
struct OpMathType {
  using type = T;
};
template <>
struct OpMathType<Half> {
  using type = float;
};
template <>
struct OpMathType<BFloat16> {
  using type = float;
};
template <class T>
using opmath_type = typename OpMathType<T>::type;
template <class T, bool is_cuda>
using acc_type = opmath_type<T>;

template <class T>
struct DefaultPtrTraits {
  using PtrType = T*;
};
template <class T>
struct RestrictPtrTraits {
  using PtrType = T* __restrict__;
};

// A view of strided elements; the packed one, which kernels take by value, has the layout of PyTorch's.
template <class T, size_t n, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
struct TensorAccessor {
  typename Traits<T>::PtrType data_;
  const Index* sizes_;
  const Index* strides_;
  __device__ Index size(Index i) const { return sizes_[i]; }
  __device__ Index stride(Index i) const { return strides_[i]; }
  __device__ typename Traits<T>::PtrType data() const { return data_; }
  __device__ decltype(auto) operator[](Index i) const {
    if constexpr (n == 1) {
      return static_cast<T&>(data_[i * strides_[0]]);
    } else {
      return TensorAccessor<T, n - 1, Traits, Index>{data_ + i * strides_[0], sizes_ + 1, strides_ + 1};
    }
  }
};
template <class T, size_t n, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
struct GenericPackedTensorAccessor {
  typename Traits<T>::PtrType data_;
  Index sizes_[n];
  Index strides_[n];
  __device__ Index size(Index i) const { return sizes_[i]; }
  __device__ Index stride(Index i) const { return strides_[i]; }
  __device__ typename Traits<T>::PtrType data() const { return data_; }
  __device__ decltype(auto) operator[](Index i) const {
    return TensorAccessor<T, n, Traits, Index>{data_, sizes_, strides_}[i];
  }
};
template <class T, size_t n, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, n, Traits, int32_t>;
template <class T, size_t n, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, n, Traits, int64_t>;
template <class T, size_t n, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor = PackedTensorAccessor64<T, n, Traits>;
}  // namespace at
namespace torch {
using namespace at;
}  // namespace torch

template <class T>
__device__ T gpuAtomicAdd(T* address, T value) {
  return atomicAdd(address, value);
}
template <class T>
__device__ void gpuAtomicAddNoReturn(T* address, T value) {
  atomicAdd(address, value);
}

#define C10_WARP_SIZE 32

inline __device__ unsigned WARP_BALLOT(int predicate, unsigned mask = 0xffffffff) {
  return __ballot_sync(mask, predicate);
}
template <class T>
__device__ T WARP_SHFL(T value, int lane, int width = 32, unsigned mask = 0xffffffff) {
  return __shfl_sync(mask, value, lane, width);
}
template <class T>
__device__ T WARP_SHFL_XOR(T value, int lanes, int width = 32, unsigned mask = 0xffffffff) {
  return __shfl_xor_sync(mask, value, lanes, width);
}
template <class T>
__device__ T WARP_SHFL_UP(T value, unsigned by, int width = 32, unsigned mask = 0xffffffff) {
  return __shfl_up_sync(mask, value, by, width);
}
template <class T>
__device__ T WARP_SHFL_DOWN(T value, unsigned by, int width = 32, unsigned mask = 0xffffffff) {
  return __shfl_down_sync(mask, value, by, width);
}
