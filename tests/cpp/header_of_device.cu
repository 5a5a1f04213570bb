// Kernels as NVRTC compiles them, for header_of_device.cpp.

#include <cuda_fp16.h>

namespace ns {
enum class Mode : unsigned char { slow, fast };
struct Particle {
  float x, y;
};
template <Mode M>
struct Tile {
  enum class Order { rows, columns };
};
template <class T, int N>
struct vec {
  T values[N];
};
namespace inner {
template <class T>
__global__ void fill(T* x) {}
}  // namespace inner
}  // namespace ns

using real_t = float;
constexpr int BLOCK = 256;

template <class T>
__global__ void axpy(int n, T a, const T* x, T* y) {}
template <class T, int N = 128>
__global__ void reduce(const T* x, T* y) {}
template <ns::Mode M>
__global__ void mode(int* x) {}
template <class... T>
__global__ void pack(T*... x) {}
__global__ void ov(int n) {}
__global__ void ov(float a, int* x) {}
__global__ void numbers(bool flag, ns::Mode mode, double d, char c, __half h, ns::Particle p, int) {}
__global__ void pointers(const ns::Particle* p, const unsigned char* bytes, float** rows, int (*matrix)[3], void* any) {}
__global__ void nested(ns::Tile<ns::Mode::fast>::Order order) {}
namespace {
__global__ void hidden(int n) {}
}  // namespace
static __global__ void internal(int n) {}

__constant__ ns::Particle origin;
__device__ ns::vec<float, 4> rows[2];
__device__ float* buffer;
__constant__ long counts[3];
__device__ ns::Mode chosen;
