#pragma once

__device__ inline float relu(float x) { return fmaxf(x, 0.0f); }
__device__ inline float silu(float x) { return x / (1.0f + expf(-x)); }
__device__ inline float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }
