// Which arguments a kernel takes, and which names are of one type: all of it is known when this is compiled.

#include "sample.h"

#include <cstddef>
#include <type_traits>
#include <vector>

namespace ns {
struct Particle {
  float x, y, z;
};
inline namespace v2 {
template <class T, int n>
struct Tile {};
}  // namespace v2
template <class T>
struct Outer {
  struct Inner {};
};
template <class T, int n = 64>
struct Padded {};
namespace {
struct Hidden {};
}  // namespace
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

struct Particle {};
struct Mirror {
  float x, y, z;
};
template <>
inline constexpr const char* cuda_ext::device_name<Mirror> = "ns::Particle";

namespace cuda::std {
inline namespace __4 {
template <class T>
struct complex {};
}  // namespace __4
}  // namespace cuda::std

namespace {

using namespace cuda_ext;

template <class From, class To>
constexpr bool becomes = std::is_convertible_v<From, To>;

// Numbers: integers of any type, which have to fit, and floating-point numbers that lose nothing.
using I32 = Value<std::int32_t>;
using U32 = Value<std::uint32_t>;
using I64 = Value<std::int64_t>;
static_assert(becomes<int, I32> && becomes<short, I32> && becomes<char, I32> && becomes<unsigned short, I32>);
static_assert(becomes<unsigned, I32> && becomes<long long, I32> && becomes<std::size_t, I32>);
static_assert(!becomes<float, I32> && !becomes<double, I64> && !becomes<int*, I64> &&
              !becomes<std::nullptr_t, I64>);
static_assert(!becomes<ns::Mode, I32> && !becomes<ns::Old, I32> && becomes<bool, I32>);
static_assert(becomes<int, I64> && becomes<long, I64> && becomes<long long, I64> && becomes<unsigned, I64>);
static_assert(becomes<unsigned long long, I64> && becomes<unsigned long, Value<std::uint64_t>>);
static_assert(becomes<unsigned, U32> && becomes<unsigned char, U32> && becomes<int, U32> &&
              becomes<char, U32>);
static_assert(becomes<signed char, Value<std::int8_t>> && becomes<int, Value<std::int8_t>>);
static_assert(becomes<float, Value<float>> && !becomes<double, Value<float>> && !becomes<int, Value<float>>);
static_assert(becomes<float, Value<double>> && becomes<double, Value<double>> &&
              !becomes<long double, Value<double>>);
static_assert(becomes<bool, Value<bool>> && !becomes<int, Value<bool>> && !becomes<int*, Value<bool>>);
static_assert(!I32(5).misfit() && !I32(std::size_t{5}).misfit() && !I32(0x7fffffffLL).misfit());
static_assert(holds<std::int32_t>(-1LL) && !holds<std::int32_t>(1LL << 31) && !holds<std::int32_t>(~0ULL));
static_assert(!holds<std::uint32_t>(-1) && !holds<std::uint64_t>(-1) && holds<std::int8_t>(-128));
static_assert(!becomes<std::true_type, Value<bool>> && !becomes<bool, Value<float>>);

// Types of device code: those of the same name, or with that device_name.
struct Mode_ : Class {
  static constexpr char name[] = "ns::Mode";
  static constexpr std::size_t size = 4;
};
using Mode = Enumerator<Mode_>;
static_assert(becomes<ns::Mode, Mode> && !becomes<ns::Old, Mode> && becomes<int, Mode> && becomes<unsigned, Mode>);
static_assert(!becomes<ns::Byte, Mode> && !becomes<bool, Mode> && !becomes<short, Mode> &&
              !becomes<float, Mode> && !becomes<ns::Bits, Mode>);
struct Particle_ : Class {
  static constexpr char name[] = "ns::Particle";
  static constexpr std::size_t size = 12;
  static constexpr std::size_t alignment = 4;
};
static_assert(becomes<ns::Particle, Structure<Particle_>> && becomes<const ns::Particle&, Structure<Particle_>>);
static_assert(!becomes<Particle, Structure<Particle_>> && !becomes<ns::Bits, Structure<Particle_>> &&
              !becomes<int, Structure<Particle_>>);
static_assert(becomes<Mirror, Structure<Particle_>> && becomes<Mirror*, Pointer<const Particle_>> &&
              is_named<Mirror>("ns::Particle") && !is_named<Mirror>("Mirror"));
[[maybe_unused]] void have_one_layout(const ns::Particle& particle, const Mirror& mirror) {
  Structure<Particle_>{particle}.get();
  Structure<Particle_>{mirror}.get();
}
[[maybe_unused]] void take_volatile(const volatile ns::Particle& particle, const volatile int& number, Kernel& kernel) {
  Structure<Particle_>{particle}.get();
  Opaque<4>{number}.get();
  static_cast<void>(kernel.try_launch({1, 1}, particle, number));
}
struct Flags {  // trivially copyable, with its volatile members
  volatile int first;
  volatile float rest[3];
};
static_assert(becomes<Flags, Opaque<16>> && becomes<volatile ns::Particle&, Structure<Particle_>>);
struct Unnamed_ : Class {  // as of a lambda
  static constexpr std::size_t size = 4;
};
static_assert(becomes<ns::Bits, Structure<Unnamed_>> && !becomes<int, Structure<Unnamed_>>);
static_assert(!becomes<ns::NotTrivial, Opaque<4>> && becomes<int, Opaque<4>> && becomes<ns::Particle, Opaque<12>> &&
              becomes<int*, Opaque<8>>);
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
struct Versioned_ : Class {
  static constexpr char name[] = "ns::v2::Tile<const cuda::std::__4::complex<float>*, 64>";
};
static_assert(becomes<ns::Particle*, Pointer<const Particle_>> && becomes<void*, Pointer<Particle_>>);
static_assert(!becomes<ns::Bits*, Pointer<Particle_>> && !becomes<ns::Incomplete*, Pointer<Particle_>> &&
              !becomes<float*, Pointer<Particle_>> && !becomes<ns::Mode*, Pointer<Particle_>>);
static_assert(becomes<ns::Tile<const cuda::std::complex<float>*, 64>*, Pointer<Versioned_>> &&
              !becomes<ns::Tile<const cuda::std::complex<float>*, 65>*, Pointer<Versioned_>>);
static_assert(becomes<unsigned long long, Pointer<float>>, "CUdeviceptr");
static_assert(!becomes<ns::Mode*, Pointer<Class>> && becomes<void*, Pointer<Class>> &&
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

// Streams of other libraries.
struct Convertible {
  operator Stream() const { return nullptr; }
};
struct Reference {
  Stream get() const { return nullptr; }
};
static_assert(becomes<Stream, StreamRef> && becomes<Convertible, StreamRef> && becomes<Reference, StreamRef>);
static_assert(becomes<StreamRef, Stream> && !becomes<int, StreamRef> && !becomes<int*, StreamRef>);

// Types and their names.
static_assert(is_named<float>("float") && !is_named<float>("double"));
static_assert(is_named<unsigned>("unsigned int") && is_named<unsigned>("unsigned"));
static_assert(is_named<long>("long int") && !is_named<long>("int"));
static_assert(is_named<unsigned long long>("unsigned long long"));
static_assert(is_named<unsigned long long>("unsigned __int64"));
static_assert(is_named<short>("signed short int") && is_named<int>("signed"));
static_assert(is_named<char>("char") && !is_named<char>("signed char"));
static_assert(is_named<signed char>("signed char") && is_named<bool>("bool"));
static_assert(is_named<long double>("long double"));
static_assert(is_named<ns::Particle>("ns::Particle") && is_named<ns::Particle>("struct ns::Particle"));
static_assert(is_named<ns::Incomplete>("ns::Incomplete") && is_named<ns::Mode>("enum ns::Mode"));
static_assert(is_named<const float*>("const float*") && is_named<const float*>("float const *"));
static_assert(!is_named<const float*>("float*") && is_named<float* const>("float * const"));
static_assert(!is_named<float* const>("const float*") && is_named<const float&>("const float &"));
static_assert(is_named<const volatile int>("volatile const int"));
static_assert(is_named<ns::Tile<const unsigned long*, 64>>("ns::v2::Tile<const unsigned long*, 64>"));
static_assert(is_named<ns::Tile<const unsigned long*, 64>>("struct ns::v2::Tile<unsigned long const *,64U>"));
static_assert(!is_named<ns::Tile<float, 64>>("ns::v2::Tile<float, 65>"));
static_assert(
    is_named<const ns::Outer<ns::Tile<int, 1>>::Inner*>("const ns::Outer<ns::v2::Tile<int, 1> >::Inner *"));
static_assert(!is_named<Particle>("ns::Particle") && !is_named<ns::Particle>("Particle") &&
              !is_named<ns::Mode>("ns::Old"));
static_assert(is_named<cuda::std::complex<float>>("cuda::std::__4::complex<float>"));
static_assert(is_named<cuda::std::complex<float>>("cuda::std::complex<float>"));
static_assert(is_named<cuda::std::complex<float>>("cuda::std::__5::complex<float>"));
static_assert(is_named<ns::Hidden>("ns::Hidden") && is_named<ns::Tile<ns::Hidden, 1>>("ns::v2::Tile<ns::Hidden, 1>"));
static_assert(is_named<ns::Padded<int, 32>>("ns::Padded<int, 32>") && !is_named<ns::Padded<int>>("ns::Padded<int, 32>"));
#if !defined(__clang__)
static_assert(is_named<ns::Padded<int>>("ns::Padded<int, 64>"));
#endif
static_assert(number<-1>() == -1 && number<true>() == 1 && number<'a'>() == 97 &&
              number<ns::Mode::fast>() == 0);

}  // namespace
