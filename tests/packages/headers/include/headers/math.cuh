#pragma once

#include "detail/compare.cuh"

__device__ inline float clamped(float value, float low, float high) {
  return smaller(larger(value, low), high);
}
