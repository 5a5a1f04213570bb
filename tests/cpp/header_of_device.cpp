// What the kernels of header_of_device.cu take.

#include <pkg/kernels.h>

#include "takes.hpp"

namespace k = pkg::kernels;

struct __half {
  unsigned short bits;
};
struct Other {
  unsigned short bits;
};
namespace ns {
enum class Mode : unsigned char { slow, fast };
struct Particle {
  float x, y;
};
template <class T, int N>
struct vec;
}  // namespace ns

static_assert(takes<int, float, float*, float*>(k::axpy<float>) && !takes<int, double, float*, float*>(k::axpy<float>));
static_assert(takes<int, __half, __half*, __half*>(k::axpy<__half>));
static_assert(!takes<int, Other, __half*, __half*>(k::axpy<__half>));
static_assert(!takes<int, __half, Other*, __half*>(k::axpy<__half>));
static_assert(takes<int, long, long*, long*>(k::axpy<long>) && takes<int, long, long*, long*>(k::axpy<long long>));
static_assert(takes<float*, float*>(k::reduce<float>) && takes<double*, double*>(k::reduce<double, 256>));
static_assert(takes<float*, float*>(k::reduce<float, 16>) && !takes<double*, double*>(k::reduce<float, 16>));
static_assert(takes<int*>(k::mode<ns::Mode::fast>) && takes<int*>(k::mode<ns::Mode::slow>));
static_assert(takes<>(k::pack<>) && takes<int*, float*>(k::pack<int, float>) && !takes<int*>(k::pack<int, float>));
static_assert(takes<ns::vec<unsigned, 4>*>(k::pack<ns::vec<unsigned, 4>>));
static_assert(takes<ns::Particle*>(k::ns::inner::fill<ns::Particle>));
static_assert(takes<int>(k::ov) && takes<float, int*>(k::ov) && !takes<double>(k::ov));
static_assert(takes<int>(k::hidden) && takes<int>(k::internal));

static_assert(takes<bool, ns::Mode, float, char, __half, ns::Particle, int>(k::numbers));
static_assert(takes<bool, unsigned char, double, char, unsigned short, ns::Particle, int>(k::numbers) == false);
static_assert(!takes<int, ns::Mode, double, char, __half, ns::Particle, int>(k::numbers));
static_assert(!takes<bool, int, double, char, __half, ns::Particle, int>(k::numbers));
static_assert(takes<bool, ns::Mode, double, int, __half, ns::Particle, int>(k::numbers));
static_assert(!takes<bool, ns::Mode, double, char, ns::Particle, ns::Particle, int>(k::numbers));

static_assert(takes<ns::Particle*, const char*, float**, void*, int*>(k::pointers));
static_assert(!takes<float*, const char*, float**, void*, int*>(k::pointers));
static_assert(!takes<ns::Particle*, const int*, float**, void*, int*>(k::pointers));
static_assert(!takes<ns::Particle*, const char*, float*, void*, int*>(k::pointers));
static_assert(!takes<ns::Particle*, const char*, float**, const void*, int*>(k::pointers));
static_assert(!takes<ns::Particle*, const char*, float**, void*, int>(k::pointers));
