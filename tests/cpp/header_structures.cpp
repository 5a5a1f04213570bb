// Structures whose members are compared with those of device code. A line that ends in a comment does not compile with
// WRONG, and the comment is part of the message.

#include <pkg/kernels.h>

struct Base {
  int n;
};
struct Params : Base {
  float scale;
  const float* x;
  short w[2];
};
struct Swapped {
  float scale;
  int n;
  const float* x;
  short w[2];
};
struct Renamed {
  int count;
  float factor;
  const float* data;
  short w[2];
};
template <>
inline constexpr const char* cuda_ext::device_name<Swapped> = "Params";
template <>
inline constexpr const char* cuda_ext::device_name<Renamed> = "Params";

void right(const Params& p, const Renamed& r) {
  pkg::kernels::conv({1, 1}, p);
  pkg::kernels::conv({1, 1}, r);
}

static_assert(pkg::kernels::constants::Traits_128_4_kSmemSize == 40960);
static_assert(pkg::kernels::constants::half == 0.5f);
static_assert(pkg::kernels::constants::flag);
static_assert(pkg::kernels::constants::sizeof_Params == 24u);
static_assert(pkg::kernels::constants::least < 0);

#if defined(WRONG)
void wrong(const Swapped& s) { pkg::kernels::conv({1, 1}, s); }  // the member n has another place or size in device code
#endif
