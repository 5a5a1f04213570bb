// What the kernels of header_of_device.cu take.

#include <pkg/kernels.h>

#include "takes.hpp"

#include <array>

namespace k = pkg::kernels;

struct __half {
  unsigned short bits;
};
struct Other {
  unsigned short bits;
};
struct Mirror {
  float x, y;
};
template <>
inline constexpr const char* cuda_ext::device_name<Mirror> = "ns::Particle";
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
  T values[static_cast<unsigned>(N)];
};
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

static_assert(takes<bool, ns::Mode, double, char, __half, Mirror, int>(k::numbers));

static_assert(takes<ns::Particle*, const char*, float**, void*, int*>(k::pointers));
static_assert(!takes<float*, const char*, float**, void*, int*>(k::pointers));
static_assert(!takes<ns::Particle*, const int*, float**, void*, int*>(k::pointers));
static_assert(!takes<ns::Particle*, const char*, float*, void*, int*>(k::pointers));
static_assert(!takes<ns::Particle*, const char*, float**, const void*, int*>(k::pointers));
static_assert(!takes<ns::Particle*, const char*, float**, void*, int>(k::pointers));

// Compilers print the enumerator of a template argument differently: any enumeration of that size is taken.
static_assert(takes<ns::Tile<ns::Mode::fast>::Order>(k::nested) && takes<int>(k::nested) && !takes<float>(k::nested));

// Variables.
template <class Variable, class Host, class = void>
constexpr bool is_copied = false;
template <class Variable, class Host>
constexpr bool is_copied<Variable, Host,
                         std::void_t<decltype(std::declval<const Variable&>().try_copy_from(std::declval<Host>()))>> = true;
template <class Host, class Variable>
constexpr bool copies(const Variable&) {
  return is_copied<Variable, Host>;
}
// As std::span, and with the size of counts.
template <class T>
struct View {
  T* elements;
  std::size_t count, stride;
  T* data() const;
};
using Row = ns::vec<float, 4>;
static_assert(copies<ns::Particle>(k::origin) && copies<Mirror>(k::origin) && copies<const ns::Particle*>(k::origin));
static_assert(!copies<double>(k::origin) && !copies<float (&)[2]>(k::origin) && !copies<Other*>(k::origin));
static_assert(copies<Row (&)[2]>(k::rows) && copies<std::array<Row, 2>>(k::rows) && copies<const Row*>(k::rows));
static_assert(!copies<Row>(k::rows) && !copies<Row (&)[3]>(k::rows) && !copies<float (&)[8]>(k::rows));
static_assert(copies<float**>(k::buffer) && !copies<float*>(k::buffer));
static_assert(copies<long (&)[3]>(k::counts) && copies<std::array<long long, 3>>(k::counts));
static_assert(!copies<double (&)[3]>(k::counts) && !copies<long>(k::counts) && !copies<int*>(k::counts));
static_assert(!copies<View<long>>(k::counts) && !copies<View<const long>>(k::counts));
static_assert(copies<ns::Mode>(k::chosen) && !copies<unsigned char>(k::chosen));

void copy(ns::Particle& particle, Row* rows, Mirror& mirror, std::array<Row, 2>& both) {
  (void)k::origin.try_copy_from(particle).ok();
  (void)k::origin.try_copy_to(mirror).ok();
  (void)k::rows.try_copy_to(rows).ok();
  (void)k::rows.try_copy_to(both).ok();
}
