// Launch configuration.

// As CUDA's headers declare them, which may be included too.
struct CUkern_st;
struct CUstream_st;

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

using Stream = ::CUstream_st*;  // CUstream and cudaStream_t

// A stream as libraries pass it: a Stream, an object that converts to one, or an object whose get() returns
// one.
class CUDA_EXT_VISIBLE StreamRef {
 public:
  CUDA_EXT_HIDDEN constexpr StreamRef(std::nullptr_t = nullptr) noexcept {}

  template <class T, std::enable_if_t<std::is_convertible_v<const T&, Stream>, int> = 0>
  CUDA_EXT_HIDDEN constexpr StreamRef(const T& stream) : stream_(stream) {}

  template <class T,
            std::enable_if_t<!std::is_convertible_v<const T&, Stream> &&
                                 std::is_convertible_v<decltype(std::declval<const T&>().get()), Stream>,
                             int> = 0>
  CUDA_EXT_HIDDEN constexpr StreamRef(const T& stream) : stream_(stream.get()) {}

  CUDA_EXT_HIDDEN constexpr operator Stream() const noexcept { return stream_; }

 private:
  Stream stream_ = nullptr;
};

template <class T>
inline constexpr bool is_extent = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <class T, class = void>
inline constexpr bool has_extents = false;
template <class T>
inline constexpr bool
    has_extents<T, std::void_t<decltype(std::declval<const T&>().x), decltype(std::declval<const T&>().y),
                               decltype(std::declval<const T&>().z)>> = true;

// Up to three integers of any type, or a dim3. The launch checks them.
struct CUDA_EXT_VISIBLE Dim {
  long long x;
  long long y;
  long long z;

  template <class X, std::enable_if_t<is_extent<X>, int> = 0>
  CUDA_EXT_HIDDEN constexpr Dim(X width) noexcept : Dim(width, 1, 1) {}

  template <class X, class Y, std::enable_if_t<is_extent<X> && is_extent<Y>, int> = 0>
  CUDA_EXT_HIDDEN constexpr Dim(X width, Y height) noexcept : Dim(width, height, 1) {}

  template <class X, class Y, class Z,
            std::enable_if_t<is_extent<X> && is_extent<Y> && is_extent<Z>, int> = 0>
  CUDA_EXT_HIDDEN constexpr Dim(X width, Y height, Z depth) noexcept
      : x(static_cast<long long>(width)),
        y(static_cast<long long>(height)),
        z(static_cast<long long>(depth)) {}

  template <class T, std::enable_if_t<has_extents<T> && !std::is_same_v<T, Dim>, int> = 0>
  CUDA_EXT_HIDDEN constexpr Dim(const T& extents) noexcept : Dim(extents.x, extents.y, extents.z) {}

  CUDA_EXT_HIDDEN constexpr long long product() const noexcept { return x * y * z; }
};

// A CUlaunchAttribute: `id` is a CUlaunchAttributeID, and `value` begins with the member that it selects.
struct CUDA_EXT_VISIBLE LaunchAttribute {
  int id = 0;
  alignas(8) unsigned char value[64] = {};

  CUDA_EXT_HIDDEN constexpr LaunchAttribute() noexcept = default;

  template <class T>
  CUDA_EXT_HIDDEN LaunchAttribute(int which, const T& content) noexcept : id(which) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(value));
    std::memcpy(value, &content, sizeof(content));
  }

  // A CUlaunchAttribute of cuda.h, or a cudaLaunchAttribute.
  template <class T, class = decltype(std::declval<const T&>().id),
            std::enable_if_t<sizeof(T) == 72, int> = 0>
  CUDA_EXT_HIDDEN LaunchAttribute(const T& attribute) noexcept {
    std::memcpy(static_cast<void*>(this), &attribute, sizeof(attribute));
  }
};

// The integers of the configuration that a launch chooses, by name; 0 for unknown names.
class Configuration {
 public:
  explicit Configuration(const Array<ConfigurationData>& values) noexcept : values_(values) {}

  long long operator[](const char* name) const noexcept {
    for (const ConfigurationData& each : values_) {
      if (!std::strcmp(each.name, name)) return each.value;
    }
    return 0;
  }

 private:
  Array<ConfigurationData> values_;
};

// A project's function that returns the grid for a configuration. Without one, `call` is nullptr.
struct GridFunction {
  const void* function = nullptr;
  Dim (*call)(const void* function, const Configuration& given) = nullptr;
};

// `shared` is the size of a block's dynamic shared memory in bytes. `cluster` is the number of blocks in a
// cluster, {0, 0, 0} without clusters. All blocks of a `cooperative` kernel run at once, so that they can
// wait for each other. A `dependent` kernel may start before its predecessor in the stream has ended
// (programmatic dependent launch). The driver gets `attributes` after those of the other members.
struct CUDA_EXT_VISIBLE LaunchConfig {
  Dim grid;
  Dim block;
  StreamRef stream = nullptr;
  std::size_t shared = 0;
  Dim cluster = {0, 0, 0};
  bool cooperative = false;
  bool dependent = false;
  Array<LaunchAttribute> attributes = {};
  bool counts_threads = false;  // in grid.x, as threads() sets it
  GridFunction grid_of = {};    // instead of the grid, as LaunchGrid sets it
};

// The launch of a kernel whose image fixes everything except the grid. The grid counts clusters, if there are
// any. A function that returns the grid for the Configuration of a launch must outlive this object.
struct CUDA_EXT_VISIBLE LaunchGrid {
  Dim grid;
  StreamRef stream = nullptr;
  GridFunction grid_of = {};

  template <class T, std::enable_if_t<std::is_convertible_v<const T&, Dim>, int> = 0>
  CUDA_EXT_HIDDEN constexpr LaunchGrid(const T& extents) noexcept : grid(extents) {}
  CUDA_EXT_HIDDEN constexpr LaunchGrid(Dim extents, StreamRef in_stream = nullptr) noexcept
      : grid(extents), stream(in_stream) {}

  template <class T, std::enable_if_t<std::is_invocable_r_v<Dim, const T&, const Configuration&>, int> = 0>
  CUDA_EXT_HIDDEN LaunchGrid(const T& function, StreamRef in_stream = nullptr) noexcept
      : grid(1), stream(in_stream), grid_of{&function, &call<T>} {}

  CUDA_EXT_HIDDEN constexpr operator LaunchConfig() const noexcept {
    return {grid, {0, 0, 0}, stream, 0, {0, 0, 0}, false, false, {}, false, grid_of};
  }

 private:
  template <class T>
  CUDA_EXT_HIDDEN static Dim call(const void* function, const Configuration& given) {
    return (*static_cast<const T*>(function))(given);
  }
};

// At least `count` threads, in blocks of the size with the highest occupancy unless `block` is set; one block
// if `count` is 0, since a grid is not empty.
template <class Count, std::enable_if_t<is_extent<Count>, int> = 0>
constexpr LaunchConfig threads(Count count, StreamRef stream = nullptr, std::size_t shared = 0) noexcept {
  return {count, {0, 0, 0}, stream, shared, {0, 0, 0}, false, false, {}, true};
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
