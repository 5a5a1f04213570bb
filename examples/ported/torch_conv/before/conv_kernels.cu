#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "conv_params.h"

constexpr int kThreads = 128;
constexpr int kSteps = 8;

// The channel and the first time step of a thread. Neighbouring threads read neighbouring addresses.
template <bool kChannelLast>
__device__ int2 place_of_thread() {
  if constexpr (kChannelLast) return {int(blockIdx.x * kThreads + threadIdx.x), int(blockIdx.y * kSteps)};
  return {int(blockIdx.x), int((blockIdx.y * kThreads + threadIdx.x) * kSteps)};
}

__device__ inline float sigmoid(float v) { return 1.0f / (1.0f + __expf(-v)); }

// The input of one channel of one batch entry, zero before its beginning and after its end.
template <class T>
struct Row {
  const T* start;
  int64_t stride;
  int length;

  __device__ float operator[](int t) const { return t >= 0 && t < length ? float(start[t * stride]) : 0.0f; }
};

template <class T, int kWidth, bool kHasBias, bool kSilu, bool kChannelLast>
__global__ __launch_bounds__(kThreads) void conv_forward(const ConvParams p) {
  const int2 place = place_of_thread<kChannelLast>();
  const int channel = place.x, first = place.y, entry = blockIdx.z;
  if (channel >= p.channels || first >= p.length) return;
  const Row<T> x{static_cast<const T*>(p.x) + entry * p.x_batch + channel * p.x_channel, p.x_time, p.length};
  T* y = static_cast<T*>(p.y) + entry * p.y_batch + channel * p.y_channel;
  float taps[kWidth], seen[kWidth - 1 + kSteps];
#pragma unroll
  for (int j = 0; j < kWidth; ++j)
    taps[j] = float(static_cast<const T*>(p.weight)[channel * p.weight_channel + j * p.weight_tap]);
#pragma unroll
  for (int i = 0; i < kWidth - 1 + kSteps; ++i) seen[i] = x[first + i - (kWidth - 1)];
  const float bias = kHasBias ? float(static_cast<const T*>(p.bias)[channel]) : 0.0f;
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    if (first + i >= p.length) return;
    float sum = bias;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += taps[j] * seen[i + j];
    y[(first + i) * p.y_time] = T(kSilu ? sum * sigmoid(sum) : sum);
  }
}

template <class T, int kWidth, bool kHasBias, bool kSilu, bool kChannelLast>
__global__ __launch_bounds__(kThreads) void conv_backward(const ConvGradients g) {
  const ConvParams& p = g.forward;
  const int2 place = place_of_thread<kChannelLast>();
  const int channel = place.x, first = place.y, entry = blockIdx.z;
  float dtaps[kWidth] = {}, dbias = 0.0f;
  if (channel < p.channels && first < p.length) {
    const Row<T> x{static_cast<const T*>(p.x) + entry * p.x_batch + channel * p.x_channel, p.x_time, p.length};
    const Row<T> dy{static_cast<const T*>(g.dy) + entry * g.dy_batch + channel * g.dy_channel, g.dy_time, p.length};
    T* dx = static_cast<T*>(g.dx) + entry * g.dx_batch + channel * g.dx_channel;
    float taps[kWidth], slopes[kSteps + kWidth - 1];
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      taps[j] = float(static_cast<const T*>(p.weight)[channel * p.weight_channel + j * p.weight_tap]);
    const float bias = kHasBias ? float(static_cast<const T*>(p.bias)[channel]) : 0.0f;
#pragma unroll
    for (int i = 0; i < kSteps + kWidth - 1; ++i) {
      const int t = first + i;
      float slope = dy[t];
      if (kSilu) {
        float sum = bias;
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sum += taps[j] * x[t - (kWidth - 1) + j];
        const float s = sigmoid(sum);
        slope *= s * (1.0f + sum * (1.0f - s));
      }
      slopes[i] = slope;
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int t = first + i;
      if (t >= p.length) break;
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        sum += taps[j] * slopes[i + kWidth - 1 - j];
        dtaps[j] += slopes[i] * x[t - (kWidth - 1) + j];
      }
      dbias += slopes[i];
      dx[t * g.dx_time] = T(sum);
    }
  }
  float* dweight = g.dweight + channel * g.dweight_channel;
  if constexpr (kChannelLast) {  // each thread has a channel of its own
    if (channel >= p.channels) return;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) atomicAdd(dweight + j * g.dweight_tap, dtaps[j]);
    if (kHasBias) atomicAdd(g.dbias + channel, dbias);
  } else {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) dtaps[j] += __shfl_down_sync(0xffffffff, dtaps[j], offset);
      dbias += __shfl_down_sync(0xffffffff, dbias, offset);
    }
    if (threadIdx.x % 32) return;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) atomicAdd(dweight + j * g.dweight_tap, dtaps[j]);
    if (kHasBias) atomicAdd(g.dbias + channel, dbias);
  }
}

#define BOOL_SWITCH(condition, name, ...)  \
  [&] {                                    \
    if (condition) {                       \
      constexpr bool name = true;          \
      return __VA_ARGS__();                \
    } else {                               \
      constexpr bool name = false;         \
      return __VA_ARGS__();                \
    }                                      \
  }()

#define WIDTH_SWITCH(width, name, ...)                 \
  [&] {                                                \
    if (width == 2) {                                  \
      constexpr int name = 2;                          \
      return __VA_ARGS__();                            \
    } else if (width == 3) {                           \
      constexpr int name = 3;                          \
      return __VA_ARGS__();                            \
    } else {                                           \
      constexpr int name = 4;                          \
      return __VA_ARGS__();                            \
    }                                                  \
  }()

static dim3 grid_of(const ConvParams& p, bool channel_last) {
  if (channel_last) return dim3((p.channels + kThreads - 1) / kThreads, (p.length + kSteps - 1) / kSteps, p.batch);
  const int steps = kThreads * kSteps;
  return dim3(p.channels, (p.length + steps - 1) / steps, p.batch);
}

template <class T>
void run_forward(const ConvParams& p, cudaStream_t stream) {
  const bool channel_last = p.x_channel == 1 && p.x_time > 1;
  WIDTH_SWITCH(p.width, kWidth, [&] {
    BOOL_SWITCH(p.bias != nullptr, kHasBias, [&] {
      BOOL_SWITCH(p.silu, kSilu, [&] {
        BOOL_SWITCH(channel_last, kChannelLast, [&] {
          conv_forward<T, kWidth, kHasBias, kSilu, kChannelLast>
              <<<grid_of(p, channel_last), kThreads, 0, stream>>>(p);
          C10_CUDA_KERNEL_LAUNCH_CHECK();
        });
      });
    });
  });
}

template <class T>
void run_backward(const ConvGradients& g, cudaStream_t stream) {
  const ConvParams& p = g.forward;
  const bool channel_last = p.x_channel == 1 && p.x_time > 1;
  WIDTH_SWITCH(p.width, kWidth, [&] {
    BOOL_SWITCH(p.bias != nullptr, kHasBias, [&] {
      BOOL_SWITCH(p.silu, kSilu, [&] {
        BOOL_SWITCH(channel_last, kChannelLast, [&] {
          conv_backward<T, kWidth, kHasBias, kSilu, kChannelLast>
              <<<grid_of(p, channel_last), kThreads, 0, stream>>>(g);
          C10_CUDA_KERNEL_LAUNCH_CHECK();
        });
      });
    });
  });
}

template void run_forward<float>(const ConvParams&, cudaStream_t);
template void run_forward<__half>(const ConvParams&, cudaStream_t);
template void run_forward<__nv_bfloat16>(const ConvParams&, cudaStream_t);
template void run_backward<float>(const ConvGradients&, cudaStream_t);
template void run_backward<__half>(const ConvGradients&, cudaStream_t);
template void run_backward<__nv_bfloat16>(const ConvGradients&, cudaStream_t);
