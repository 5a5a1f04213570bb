// Which arguments a kernel takes, and which names are of one type: all of it is known when this is compiled.

#include "sample.h"

#include <cstddef>
#include <type_traits>
#include <vector>

namespace ns {
struct Particle {
  float x, y, z;
};
template <class T, int n>
struct Tile {};
template <class T>
struct Outer {
  struct Inner {};
};
union Bits {
  int i;
  float f;
};
enum class Mode { fast };
enum Old { one };
enum class Byte : unsigned char {};
class Incomplete;
class NotTrivial {
 public:
  ~NotTrivial() {}
  int x = 0;
};
}  // namespace ns

namespace {

using namespace cuda_ext;

template <class From, class To>
constexpr bool becomes = std::is_convertible_v<From, To>;

// Numbers: whatever the type holds, and nothing that could lose something.
using I32 = Value<std::int32_t>;
using U32 = Value<std::uint32_t>;
using I64 = Value<std::int64_t>;
static_assert(becomes<int, I32> && becomes<short, I32> && becomes<char, I32> && becomes<unsigned short, I32>);
static_assert(!becomes<unsigned, I32> && !becomes<long long, I32> && !becomes<std::size_t, I32>);
static_assert(!becomes<float, I32> && !becomes<double, I64> && !becomes<int*, I64> &&
              !becomes<std::nullptr_t, I64>);
static_assert(!becomes<ns::Mode, I32> && !becomes<ns::Old, I32> && becomes<bool, I32>);
static_assert(becomes<int, I64> && becomes<long, I64> && becomes<long long, I64> && becomes<unsigned, I64>);
static_assert(!becomes<unsigned long long, I64> && becomes<unsigned long, Value<std::uint64_t>>);
static_assert(becomes<unsigned, U32> && becomes<unsigned char, U32> && !becomes<int, U32> &&
              !becomes<char, U32>);
static_assert(becomes<signed char, Value<std::int8_t>> && !becomes<int, Value<std::int8_t>>);
static_assert(becomes<float, Value<float>> && !becomes<double, Value<float>> && !becomes<int, Value<float>>);
static_assert(becomes<float, Value<double>> && becomes<double, Value<double>> &&
              !becomes<long double, Value<double>>);
static_assert(becomes<bool, Value<bool>> && !becomes<int, Value<bool>> && !becomes<int*, Value<bool>>);
static_assert(!becomes<std::true_type, Value<bool>> && !becomes<bool, Value<float>>);

static_assert(becomes<ns::Mode, Enumerator<4>> && becomes<ns::Old, Enumerator<4>> &&
              becomes<int, Enumerator<4>>);
static_assert(!becomes<ns::Byte, Enumerator<4>> && becomes<ns::Byte, Enumerator<1>> &&
              !becomes<bool, Enumerator<1>>);
static_assert(!becomes<float, Enumerator<4>> && !becomes<ns::Bits, Enumerator<4>>);

static_assert(becomes<ns::Particle, Structure<12>> && becomes<const ns::Particle&, Structure<12>>);
static_assert(!becomes<ns::Particle, Structure<16>> && becomes<ns::Bits, Structure<4>> &&
              !becomes<int, Structure<4>>);
static_assert(!becomes<ns::NotTrivial, Structure<4>> && !becomes<ns::NotTrivial, Opaque<4>>);
static_assert(becomes<int, Opaque<4>> && becomes<ns::Particle, Opaque<12>> && becomes<int*, Opaque<8>>);
static_assert(!becomes<const char (&)[12], Opaque<12>> && !becomes<short, Opaque<4>>);

// Pointers: const where the kernel only reads, and elements of one type.
static_assert(becomes<float*, Pointer<float>> && becomes<float*, Pointer<const float>>);
static_assert(becomes<const float*, Pointer<const float>> && !becomes<const float*, Pointer<float>>);
static_assert(becomes<volatile float*, Pointer<float>> && becomes<float (&)[4], Pointer<float>>);
static_assert(!becomes<double*, Pointer<float>> && !becomes<void*, Pointer<float>> &&
              !becomes<int*, Pointer<float>>);
static_assert(becomes<std::nullptr_t, Pointer<float>> && !becomes<int, Pointer<float>>);
static_assert(!becomes<std::vector<float>, Pointer<float>> && !becomes<std::uintptr_t, Pointer<float>>);
static_assert(becomes<long*, Pointer<std::conditional_t<sizeof(long) == 8, long long, int>>>);
static_assert(!becomes<int*, Pointer<long long>>);
static_assert(!becomes<unsigned*, Pointer<int>> && !becomes<int*, Pointer<unsigned>> &&
              !becomes<bool*, Pointer<char>>);
static_assert(becomes<char*, Pointer<unsigned char>> && becomes<std::byte*, Pointer<signed char>>);
static_assert(becomes<bool*, Pointer<bool>> && !becomes<char*, Pointer<bool>> &&
              !becomes<std::byte*, Pointer<bool>>);
static_assert(becomes<int*, Pointer<void>> && becomes<void*, Pointer<void>> &&
              !becomes<const int*, Pointer<void>>);
static_assert(becomes<const ns::Incomplete*, Pointer<const void>> && !becomes<void (*)(), Pointer<void>>);
static_assert(becomes<ns::Incomplete*, Pointer<Class>> && becomes<ns::Bits*, Pointer<Class>>);
static_assert(becomes<ns::Mode*, Pointer<Class>> && becomes<void*, Pointer<Class>> &&
              !becomes<int*, Pointer<Class>>);
static_assert(!becomes<const ns::Particle*, Pointer<Class>> &&
              becomes<const ns::Particle*, Pointer<const Class>>);
static_assert(becomes<float**, Pointer<Pointee>> && becomes<const float* const*, Pointer<const Pointee>>);
static_assert(!becomes<float*, Pointer<Pointee>> && !becomes<float* const*, Pointer<Pointee>>);

// Kernels.
using Axpy = decltype(sample::kernels::axpy<float>);
static_assert(std::is_invocable_v<Axpy, LaunchConfig, int, float, const float*, float*>);
static_assert(std::is_invocable_v<Axpy, LaunchConfig, int, float, std::nullptr_t, float*>);
static_assert(!std::is_invocable_v<Axpy, LaunchConfig, int, float, const float*>);
static_assert(!std::is_invocable_v<Axpy, LaunchConfig, int, float, const float*, float*, int>);
static_assert(!std::is_invocable_v<Axpy, LaunchConfig, int, float, const float*, const float*>);
static_assert(!std::is_invocable_v<Axpy, LaunchConfig, int, double, const float*, float*>);
static_assert(!std::is_invocable_v<Axpy, int, int, float, const float*, float*>);
static_assert(std::is_invocable_v<decltype(sample::kernels::ov), LaunchConfig, int>);
static_assert(std::is_invocable_v<decltype(sample::kernels::ov), LaunchConfig, float, int*>);
static_assert(!std::is_invocable_v<decltype(sample::kernels::ov), LaunchConfig, float>);

// How it is launched.
struct Dim3 {
  unsigned x, y, z;
};
static_assert(Dim(2).product() == 2 && Dim(2u, 3L).product() == 6 && Dim(2, short{3}, 4ULL).product() == 24);
static_assert(Dim(Dim3{2, 3, 4}).z == 4 && Dim(~0ULL).x < 1);
static_assert(!becomes<float, Dim> && !becomes<bool, Dim> && !becomes<ns::Old, Dim> &&
              !becomes<ns::Particle*, Dim>);
static_assert(std::is_aggregate_v<LaunchConfig> && !std::is_default_constructible_v<LaunchConfig>);
constexpr LaunchConfig config{{4, 2}, 256, nullptr, 1024};
static_assert(config.grid.y == 2 && config.block.z == 1 && config.shared == 1024 && !config.cooperative);
#if __cplusplus >= 202002L
constexpr LaunchConfig designated{.grid = 4, .block = {16, 16}, .cluster = 2, .dependent = true};
static_assert(designated.cluster.x == 2 && designated.dependent && !designated.stream);
#endif

// Types and their names.
static_assert(type_id<float> == named_type("float") && type_id<float> != type_id<double>);
static_assert(type_id<unsigned> == named_type("unsigned int") && type_id<unsigned> == named_type("unsigned"));
static_assert(type_id<long> == named_type("long int") && type_id<long> != type_id<int>);
static_assert(type_id<unsigned long long> == named_type("unsigned long long"));
static_assert(type_id<unsigned long long> == named_type("unsigned __int64"));
static_assert(type_id<short> == named_type("signed short int") && type_id<int> == named_type("signed"));
static_assert(type_id<char> == named_type("char") && type_id<char> != type_id<signed char>);
static_assert(type_id<signed char> == named_type("signed char") && type_id<bool> == named_type("bool"));
static_assert(type_id<long double> == named_type("long double"));
static_assert(type_id<ns::Particle> == named_type("ns::Particle") &&
              type_id<ns::Particle> == named_type("struct ns::Particle"));
static_assert(type_id<ns::Incomplete> == named_type("ns::Incomplete") &&
              type_id<ns::Mode> == named_type("enum ns::Mode"));
static_assert(type_id<const float*> == named_type("const float*") &&
              type_id<const float*> == named_type("float const *"));
static_assert(type_id<const float*> != type_id<float*> &&
              type_id<float* const> == named_type("float * const"));
static_assert(type_id<float* const> != type_id<const float*> &&
              type_id<const float&> == named_type("const float &"));
static_assert(type_id<const volatile int> == named_type("volatile const int"));
static_assert(type_id<ns::Tile<const unsigned long*, 64>> ==
              named_type("ns::Tile<const unsigned long*, 64>"));
static_assert(type_id<ns::Tile<const unsigned long*, 64>> ==
              named_type("struct ns::Tile<unsigned long const *,64U>"));
static_assert(type_id<ns::Tile<float, 64>> != type_id<ns::Tile<float, 65>>);
static_assert(type_id<const ns::Outer<ns::Tile<int, 1>>::Inner*> ==
              named_type("const ns::Outer<ns::Tile<int, 1> >::Inner *"));
static_assert(type_id<ns::Particle> != named_type("Particle") && type_id<ns::Mode> != type_id<ns::Old>);
static_assert(value_id(1) != value_id(-1) && value_id(1) == value_id(true) && value_id('a') == value_id(97));

}  // namespace
