#pragma once

namespace network {

constexpr int WIDTH = 8;

enum Activation { IDENTITY, RELU };

struct Layer {
  float weights[WIDTH][WIDTH];
  float bias[WIDTH];
  Activation activation;
};

struct Network {
  int depth;
  Layer layers[7];
};

static_assert(sizeof(Network) == 2048);

}  // namespace network
