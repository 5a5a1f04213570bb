__constant__ float weights[9];  // 3 x 3, row by row; set before the launch

// out = in, weighted over 3 x 3 neighbourhoods, with a repeated border. A block reads its tile and a
// halo of one pixel into shared memory, whose size the launch sets, so any block shape is valid.
__global__ void stencil(int width, int height, const float* in, float* out) {
  extern __shared__ float tile[];  // (blockDim.y + 2) rows of (blockDim.x + 2) floats
  const int tile_width = blockDim.x + 2;
  const int tile_height = blockDim.y + 2;
  const int first_column = blockIdx.x * blockDim.x;
  const int first_row = blockIdx.y * blockDim.y;

  for (int row = threadIdx.y; row < tile_height; row += blockDim.y) {
    for (int column = threadIdx.x; column < tile_width; column += blockDim.x) {
      const int from_row = min(max(first_row + row - 1, 0), height - 1);
      const int from_column = min(max(first_column + column - 1, 0), width - 1);
      tile[row * tile_width + column] = in[static_cast<long long>(from_row) * width + from_column];
    }
  }
  __syncthreads();

  const int column = first_column + threadIdx.x;
  const int row = first_row + threadIdx.y;
  if (column >= width || row >= height) return;
  float sum = 0;
  for (int dy = 0; dy < 3; ++dy) {
    for (int dx = 0; dx < 3; ++dx) {
      sum += weights[dy * 3 + dx] * tile[(threadIdx.y + dy) * tile_width + threadIdx.x + dx];
    }
  }
  out[static_cast<long long>(row) * width + column] = sum;
}
