// Right and wrong calls of the kernels of a sample, with and without exceptions.

#include <sample/kernels.h>
#include <sample/kernels.h>

#include "takes.hpp"

namespace k = sample::kernels;

enum class Mode : unsigned char { fast };

static_assert(takes<int, float, const float*, float*>(k::axpy<float>));
static_assert(takes<short, float, float*, std::nullptr_t>(k::axpy<float>));
static_assert(takes<int, double, const double*, double*>(k::axpy<double>));
static_assert(!takes<int, float, const float*>(k::axpy<float>));
static_assert(!takes<int, float, const float*, float*, int>(k::axpy<float>));
static_assert(takes<long long, float, const float*, float*>(k::axpy<float>), "which have to fit");
static_assert(!takes<Mode, float, const float*, float*>(k::axpy<float>));
static_assert(!takes<int, double, const float*, float*>(k::axpy<float>));
static_assert(!takes<int, float, const double*, float*>(k::axpy<float>));
static_assert(!takes<int, float, const float*, const float*>(k::axpy<float>));

static_assert(takes<>(k::plain) && !takes<int>(k::plain));
static_assert(takes<float>(k::ns::inner::scale) && !takes<double>(k::ns::inner::scale));
static_assert(takes<int*, int>(k::ns::fill<int, 256>) && !takes<float*, int>(k::ns::fill<int, 256>));
static_assert(takes<int>(k::ov) && takes<float, int*>(k::ov) && !takes<float>(k::ov) && !takes<int*>(k::ov));

void launch(int grid, int block, cuda_ext::Stream stream, float* x) {
#if CUDA_EXT_EXCEPTIONS
  k::axpy<float>({grid, block, stream}, 10, 2.0f, x, x);
  k::ov({{1, 2}, {3, 4, 5}}, 3);
  k::cuda_ext_library().kernel("ov(int)").launch({grid, block}, 1);
#else
  static_assert(!std::is_invocable_v<decltype(k::axpy<float>), Launch, int, float, const float*, float*>);
  static_assert(!std::is_invocable_v<decltype(k::ov), Launch, int>);
#endif
  if (!k::axpy<float>.try_launch({grid, block, stream}, 10, 2.0f, x, x)) return;
  if (!k::ov.try_launch({grid, block}, 3)) return;
}
