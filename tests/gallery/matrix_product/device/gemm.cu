constexpr int THREADS = 16;  // a block has 16 x 16 threads
constexpr int DEPTH = 16;    // columns of a that are in shared memory at a time

// c = a * b, all in C order. A block computes a tile of TILE x TILE values.
template <class T, int TILE>
__global__ void gemm(int m, int n, int k, const T* __restrict__ a, const T* __restrict__ b,
                     T* __restrict__ c) {
  constexpr int OWN = TILE / THREADS;  // a thread has OWN x OWN values of c
  __shared__ T a_tile[TILE][DEPTH];
  __shared__ T b_tile[DEPTH][TILE];
  const int first_row = blockIdx.y * TILE;
  const int first_column = blockIdx.x * TILE;
  const int thread = threadIdx.y * THREADS + threadIdx.x;

  T sums[OWN][OWN] = {};
  for (int start = 0; start < k; start += DEPTH) {
    for (int i = thread; i < TILE * DEPTH; i += THREADS * THREADS) {
      const int a_row = first_row + i / DEPTH;
      const int a_column = start + i % DEPTH;
      a_tile[i / DEPTH][i % DEPTH] = a_row < m && a_column < k ? a[1ll * a_row * k + a_column] : T(0);
      const int b_row = start + i / TILE;
      const int b_column = first_column + i % TILE;
      b_tile[i / TILE][i % TILE] = b_row < k && b_column < n ? b[1ll * b_row * n + b_column] : T(0);
    }
    __syncthreads();
    for (int depth = 0; depth < DEPTH; ++depth) {
      for (int i = 0; i < OWN; ++i) {
        const T own = a_tile[threadIdx.y + i * THREADS][depth];
        for (int j = 0; j < OWN; ++j) sums[i][j] += own * b_tile[depth][threadIdx.x + j * THREADS];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < OWN; ++i) {
    const int row = first_row + threadIdx.y + i * THREADS;
    for (int j = 0; j < OWN; ++j) {
      const int column = first_column + threadIdx.x + j * THREADS;
      if (row < m && column < n) c[1ll * row * n + column] = sums[i][j];
    }
  }
}
