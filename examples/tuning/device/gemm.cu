/* A matrix product of floats: each thread computes TM x TN elements of a block's tile of BM x BN. */
template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
  constexpr int threads = (BM / TM) * (BN / TN);
  extern __shared__ float memory[];
  float* tile_a = memory;                  // BK x BM, two of them
  float* tile_b = memory + 2 * BK * BM;    // BK x BN, two of them
  const int thread = threadIdx.x, row = thread / (BN / TN), column = thread % (BN / TN);
  const long long first_row = (long long)blockIdx.y * BM, first_column = (long long)blockIdx.x * BN;
  float sums[TM][TN] = {};

  const auto load = [&](int stage, int at) {
    for (int i = thread; i < BM * BK; i += threads) {
      const int r = i / BK, x = i % BK;
      const bool is_inside = first_row + r < m && at + x < k;
      tile_a[(stage * BK + x) * BM + r] = is_inside ? a[(first_row + r) * k + at + x] : 0.f;
    }
    for (int i = thread; i < BN * BK; i += threads) {
      const int x = i / BN, r = i % BN;
      const bool is_inside = first_column + r < n && at + x < k;
      tile_b[(stage * BK + x) * BN + r] = is_inside ? b[(long long)(at + x) * n + first_column + r] : 0.f;
    }
  };

  load(0, 0);
  __syncthreads();
  int stage = 0;
  for (int at = 0; at < k; at += BK, stage ^= 1) {
    if (at + BK < k) load(stage ^ 1, at + BK);
#pragma unroll
    for (int x = 0; x < BK; x++) {
      float left[TM], right[TN];
#pragma unroll
      for (int i = 0; i < TM; i++) left[i] = tile_a[(stage * BK + x) * BM + row * TM + i];
#pragma unroll
      for (int j = 0; j < TN; j++) right[j] = tile_b[(stage * BK + x) * BN + column + j * (BN / TN)];
#pragma unroll
      for (int i = 0; i < TM; i++) {
#pragma unroll
        for (int j = 0; j < TN; j++) sums[i][j] += left[i] * right[j];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < TM; i++) {
#pragma unroll
    for (int j = 0; j < TN; j++) {
      const long long r = first_row + row * TM + i, x = first_column + column + j * (BN / TN);
      if (r < m && x < n) c[r * n + x] = sums[i][j];
    }
  }
}
