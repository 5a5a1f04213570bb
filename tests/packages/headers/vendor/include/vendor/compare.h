#pragma once

__device__ inline float smaller(float a, float b) { return a < b ? a : b; }
__device__ inline float larger(float a, float b) { return a < b ? b : a; }
