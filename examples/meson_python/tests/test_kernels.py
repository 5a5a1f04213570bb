"""Compare the kernels with numpy."""

import numpy as np
import pytest

import cuda_ext
from example_meson import kernels

needs_gpu = pytest.mark.skipif(not cuda_ext.gpu_available(), reason="no GPU here to launch the kernels on")


@needs_gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_axpy_computes_what_numpy_computes(dtype: type) -> None:
    x, y = np.arange(1000, dtype=dtype), np.ones(1000, dtype)
    expected = y + 2 * x
    kernels.axpy(len(x), 2.0, x, y, threads=len(x))
    np.testing.assert_allclose(y, expected)


@needs_gpu
def test_polynomial_computes_what_numpy_computes() -> None:
    coefficients, x = np.array([1, -2, 0, 3], np.float32), np.linspace(-1, 1, 1000, dtype=np.float32)
    y = np.empty_like(x)
    kernels.polynomial["float, 3"](len(x), coefficients, x, cuda_ext.out(y), threads=len(x))
    np.testing.assert_allclose(y, np.polynomial.polynomial.polyval(x, coefficients), rtol=1e-5, atol=1e-6)


def test_all_kernels_were_built() -> None:
    built = [kernel.expression for kernel in cuda_ext.describe(kernels).kernels]
    assert built == ["axpy<double>", "axpy<float>", "polynomial<float, 3>"]
