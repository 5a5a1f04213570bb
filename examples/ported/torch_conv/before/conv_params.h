#pragma once

#include <cstdint>

// Strides count elements. x, y, dx and dy have the shape (batch, channels, length), weight (channels, width).
struct ConvParams {
  int batch, channels, length, width;
  bool silu;
  int64_t x_batch, x_channel, x_time;
  int64_t y_batch, y_channel, y_time;
  int64_t weight_channel, weight_tap;
  const void* __restrict__ x;
  const void* __restrict__ weight;
  const void* __restrict__ bias;
  void* __restrict__ y;
};

struct ConvGradients {
  ConvParams forward;
  int64_t dy_batch, dy_channel, dy_time;
  int64_t dx_batch, dx_channel, dx_time;
  int64_t dweight_channel, dweight_tap;
  const void* __restrict__ dy;
  void* __restrict__ dx;
  float* __restrict__ dweight;
  float* __restrict__ dbias;
};
