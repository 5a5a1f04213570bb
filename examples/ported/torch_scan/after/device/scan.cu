#include <cuda_fp16.h>

#include <cub/block/block_scan.cuh>

#include "scan_params.h"

// What c10::complex<float> compiles to: cuda::std::complex recovers infinities, and takes more registers.
struct alignas(8) complex_t {
  float re = 0.0f, im = 0.0f;
  complex_t() = default;
  __device__ explicit complex_t(float r, float i = 0.0f) : re(r), im(i) {}
  __device__ float real() const { return re; }
  __device__ float imag() const { return im; }
};
__device__ inline complex_t operator+(complex_t a, complex_t b) { return complex_t(a.re + b.re, a.im + b.im); }
__device__ inline complex_t operator*(complex_t a, float b) { return complex_t(a.re * b, a.im * b); }
__device__ inline complex_t operator*(complex_t a, complex_t b) {
  return complex_t(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}

constexpr int kMostStates = 64;

__device__ inline float exponential(float v) { return __expf(v); }
__device__ inline complex_t exponential(complex_t v) {
  float sine, cosine;
  __sincosf(v.imag(), &sine, &cosine);
  const float size = __expf(v.real());
  return complex_t(size * cosine, size * sine);
}
__device__ inline float real_part(float v) { return v; }
__device__ inline float real_part(complex_t v) { return 2.0f * v.real(); }

// One step of h = a * h + b.
template <class W>
struct Step {
  W a, b;
};

template <class W>
struct Compose {
  __device__ Step<W> operator()(const Step<W>& first, const Step<W>& second) const {
    return {second.a * first.a, second.a * first.b + second.b};
  }
};

// The composition of all chunks before.
template <class W>
struct Before {
  Step<W> steps;
  __device__ Step<W> operator()(Step<W> chunk) {
    const Step<W> old = steps;
    steps = Compose<W>()(old, chunk);
    return old;
  }
};

template <class T_, class W_, int kThreads_, int kItems_>
struct ScanTraits {
  using T = T_;
  using W = W_;
  static constexpr int kThreads = kThreads_;
  static constexpr int kItems = kItems_;
  static constexpr int kChunk = kThreads * kItems;
  using Scan = cub::BlockScan<Step<W>, kThreads, cub::BLOCK_SCAN_WARP_SCANS>;

  // Shared memory: delta, delta * x and y of the chunk, one row of B, the steps before the chunk, and CUB's.
  static constexpr int kRows = 3 * kChunk * sizeof(float) + kChunk * sizeof(W);
  static constexpr int kSmemSize = kRows + kMostStates * sizeof(Step<W>) + sizeof(typename Scan::TempStorage);
};

template <class Traits>
__global__ __launch_bounds__(Traits::kThreads) void scan_forward(const ScanParams p) {
  using T = typename Traits::T;
  using W = typename Traits::W;
  using Scan = typename Traits::Scan;
  constexpr int kItems = Traits::kItems, kChunk = Traits::kChunk;
  extern __shared__ __align__(16) char memory[];
  float* delta = reinterpret_cast<float*>(memory);
  float* scaled = delta + kChunk;
  float* sums = scaled + kChunk;
  W* row = reinterpret_cast<W*>(sums + kChunk);
  Step<W>* before = reinterpret_cast<Step<W>*>(memory + Traits::kRows);
  auto& storage = *reinterpret_cast<typename Scan::TempStorage*>(before + kMostStates);

  const int channel = blockIdx.x, entry = blockIdx.y;
  const T* x = static_cast<const T*>(p.x) + entry * p.x_batch + channel * p.x_channel;
  const T* deltas = static_cast<const T*>(p.delta) + entry * p.delta_batch + channel * p.delta_channel;
  const W* A = static_cast<const W*>(p.A) + channel * p.A_channel;
  T* y = static_cast<T*>(p.y) + entry * p.y_batch + channel * p.y_channel;
  const float skip = p.D ? p.D[channel] : 0.0f;
  for (int n = threadIdx.x; n < p.states; n += Traits::kThreads) before[n] = {W(1.0f), W(0.0f)};

  for (int start = 0; start < p.length; start += kChunk) {
    const int count = min(kChunk, p.length - start);
    for (int i = threadIdx.x; i < kChunk; i += Traits::kThreads) {
      float d = i < count ? float(deltas[start + i]) : 0.0f;
      const float v = i < count ? float(x[start + i]) : 0.0f;
      if (p.softplus && i < count) d = d > 20.0f ? d : log1pf(__expf(d));
      delta[i] = d;
      scaled[i] = d * v;
      sums[i] = skip * v;
    }
    for (int n = 0; n < p.states; ++n) {
      const W* B = static_cast<const W*>(p.B) + entry * p.B_batch + n * p.B_state + start;
      const W* C = static_cast<const W*>(p.C) + entry * p.C_batch + n * p.C_state + start;
      for (int i = threadIdx.x; i < kChunk; i += Traits::kThreads) row[i] = i < count ? B[i] : W(0.0f);
      __syncthreads();
      const W decay = A[n * p.A_state];
      Step<W> steps[kItems];
      const int mine = threadIdx.x * kItems;
#pragma unroll
      for (int i = 0; i < kItems; ++i)
        steps[i] = {exponential(decay * delta[mine + i]), row[mine + i] * scaled[mine + i]};
      Before<W> all{before[n]};
      Scan(storage).InclusiveScan(steps, steps, Compose<W>(), all);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kItems; ++i) row[mine + i] = steps[i].b;
      __syncthreads();
      for (int i = threadIdx.x; i < count; i += Traits::kThreads) sums[i] += real_part(C[i] * row[i]);
      __syncthreads();
      if (threadIdx.x == 0) before[n] = all.steps;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += Traits::kThreads) y[start + i] = T(sums[i]);
    __syncthreads();
  }
  W* last = static_cast<W*>(p.last) + entry * p.last_batch + channel * p.last_channel;
  for (int n = threadIdx.x; n < p.states; n += Traits::kThreads) last[n] = before[n].b;
}
