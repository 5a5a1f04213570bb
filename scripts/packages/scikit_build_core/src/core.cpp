#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <stdexcept>

#include "launchers.h"

namespace nb = nanobind;

// nanobind checks dtype, device, dimensions and order of what is declared here; sizes we check ourselves.
template <class T, class Shape>
using Array = nb::ndarray<T, Shape, nb::device::cuda, nb::c_contig>;
template <class T>
using Vector = Array<T, nb::ndim<1>>;
template <class T>
using Matrix = Array<T, nb::ndim<2>>;

static void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

static void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

static cudaStream_t as_stream(std::uintptr_t stream) { return reinterpret_cast<cudaStream_t>(stream); }

template <class T>
void axpy(T a, Vector<const T> x, Vector<T> y, std::uintptr_t stream) {
  require(x.shape(0) == y.shape(0), "x and y must be of one length");
  check(launch_axpy<T>(x.shape(0), a, x.data(), y.data(), as_stream(stream)));
}

template <class T>
void reduce(Vector<const T> x, Vector<T> partial, std::uintptr_t stream) {
  check(launch_reduce<T>(partial.shape(0), x.shape(0), x.data(), partial.data(), as_stream(stream)));
}

template <class T>
void softmax(Matrix<const T> x, Matrix<T> y, std::uintptr_t stream) {
  require(x.shape(0) == y.shape(0) && x.shape(1) == y.shape(1), "x and y must be of one shape");
  check(launch_softmax<T>(x.shape(0), x.shape(1), x.data(), y.data(), as_stream(stream)));
}

template <class T>
void define(nb::module_& m) {
  m.def("axpy", axpy<T>, nb::arg("a"), nb::arg("x"), nb::arg("y"), nb::arg("stream") = 0);
  m.def("reduce", reduce<T>, nb::arg("x"), nb::arg("partial"), nb::arg("stream") = 0);
  m.def("softmax", softmax<T>, nb::arg("x"), nb::arg("y"), nb::arg("stream") = 0);
}

NB_MODULE(_core, m) {
  define<float>(m);
  define<double>(m);
}
