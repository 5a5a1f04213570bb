#pragma once

#include <cstdint>

// Strides count elements. x, delta and y have the shape (batch, channels, length), A (channels, states), B and C
// (batch, states, length), D (channels), last (batch, channels, states). Time is contiguous.
struct ScanParams {
  int batch, channels, length, states;
  bool softplus;
  int64_t x_batch, x_channel;
  int64_t delta_batch, delta_channel;
  int64_t A_channel, A_state;
  int64_t B_batch, B_state;
  int64_t C_batch, C_state;
  int64_t y_batch, y_channel;
  int64_t last_batch, last_channel;
  const void* __restrict__ x;
  const void* __restrict__ delta;
  const void* __restrict__ A;
  const void* __restrict__ B;
  const void* __restrict__ C;
  const float* __restrict__ D;
  void* __restrict__ y;
  void* __restrict__ last;
};
