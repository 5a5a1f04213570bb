// Softmax of each row of x, one warp per row: warps share nothing, so blocks are of any whole number of them.
template <class T>
__global__ void softmax(int rows, int columns, const T* x, T* y) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  x += static_cast<long long>(row) * columns;
  y += static_cast<long long>(row) * columns;

  T largest = x[0];
  for (int i = lane; i < columns; i += 32) largest = x[i] > largest ? x[i] : largest;
  for (int distance = 16; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(0xffffffff, largest, distance);
    largest = other > largest ? other : largest;
  }
  T sum = 0;
  for (int i = lane; i < columns; i += 32) sum += exp(x[i] - largest);
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
  for (int i = lane; i < columns; i += 32) y[i] = exp(x[i] - largest) / sum;
}
