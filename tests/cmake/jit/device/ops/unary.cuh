#pragma once
#include "../utils.cuh"

namespace ops {

struct Negate {
  template <class T>
  __device__ T operator()(T x) const {
    return -x;
  }
};

}  // namespace ops
