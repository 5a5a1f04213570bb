#include "network.cuh"

namespace network {

// y = the network applied to n vectors x. A __grid_constant__ parameter is not copied to each thread's stack.
__global__ void forward(int n, const __grid_constant__ Network network, const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float values[WIDTH];
  for (int j = 0; j < WIDTH; ++j) values[j] = x[i * WIDTH + j];
  for (int depth = 0; depth < network.depth; ++depth) {
    const Layer& layer = network.layers[depth];
    float next[WIDTH];
    for (int row = 0; row < WIDTH; ++row) {
      float sum = layer.bias[row];
      for (int column = 0; column < WIDTH; ++column) sum += layer.weights[row][column] * values[column];
      next[row] = layer.activation == RELU && sum < 0 ? 0 : sum;
    }
    for (int j = 0; j < WIDTH; ++j) values[j] = next[j];
  }
  for (int j = 0; j < WIDTH; ++j) y[i * WIDTH + j] = values[j];
}

// sums[d] = sum of the biases of layer d
extern "C" __global__ void sum_biases(Network network, double scale, double* sums) {
  if (threadIdx.x >= network.depth) return;
  double sum = 0;
  for (float bias : network.layers[threadIdx.x].bias) sum += bias;
  sums[threadIdx.x] = scale * sum;
}

}  // namespace network
