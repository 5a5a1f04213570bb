#pragma once
#include "../fp16_math.cuh"
#include "unary.cuh"

namespace ops {

struct Subtract {
  template <class T>
  __device__ T operator()(T x, T y) const {
    return plus(x, Negate{}(y));
  }
};

}  // namespace ops
