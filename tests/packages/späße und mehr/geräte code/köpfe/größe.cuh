#pragma once

__device__ inline float squared(float value) { return value * value; }
