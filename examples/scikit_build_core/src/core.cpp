// The extension module: kernels launched from C++ on device memory of any DLPack library.

#include <example_extension/kernels.h>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>

namespace nb = nanobind;
using namespace nb::literals;
namespace kernels = example_extension::kernels;

namespace {

template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cuda>;

constexpr long long block = 256;

cuda_ext::Stream stream_of(std::uintptr_t handle) { return reinterpret_cast<cuda_ext::Stream>(handle); }

// Errors of cuda_ext are std::exception, which nanobind converts to RuntimeError.
template <class T>
void axpy(T a, const Vector<const T>& x, const Vector<T>& y, std::uintptr_t stream) {
  if (x.size() != y.size()) throw nb::value_error("x and y must have the same number of elements");
  const auto n = static_cast<long long>(x.size());
  if (n == 0) return;
  kernels::axpy<T>({(n + block - 1) / block, block, stream_of(stream)}, n, a, x.data(), y.data());
}

template <class T>
void reduce(const Vector<const T>& x, const Vector<T>& partial, std::uintptr_t stream) {
  const auto n = static_cast<long long>(x.size());
  kernels::blockwise::reduce<T, block>({partial.size(), block, stream_of(stream)}, n, x.data(), partial.data());
}

template <class T>
void define_for(nb::module_& m) {
  m.def("axpy", &axpy<T>, "a"_a, nb::arg("x").noconvert(), nb::arg("y").noconvert(), "stream"_a = 0,
        "y += a x, in the stream with this handle");
  m.def("reduce", &reduce<T>, nb::arg("x").noconvert(), nb::arg("partial").noconvert(), "stream"_a = 0,
        "Partial sums of x, one for each element of partial, in the stream with this handle");
}

// Without a framework, nanobind returns a capsule.
nb::ndarray<> dlpack(std::uintptr_t address, std::size_t size, std::uint8_t bits, nb::handle owner) {
  const nb::dlpack::dtype floating{static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), bits, 1};
  return {reinterpret_cast<void*>(address), {size}, owner, {}, floating, nb::device::cuda::value};
}

nb::list expressions() {
  nb::list found;
  for (const auto& kernel : kernels::cuda_ext_module.kernels) found.append(kernel.expression);
  return found;
}

}  // namespace

NB_MODULE(_core, m) {
  define_for<float>(m);
  define_for<double>(m);
  m.def("dlpack", &dlpack, "address"_a, "size"_a, "bits"_a, "owner"_a,
        "A DLPack capsule for floating-point numbers on the first GPU; it keeps the owner alive");
  m.def("kernels", &expressions, "The kernels in this module");
}
