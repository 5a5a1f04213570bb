"""Compare the kernels, launched from C++ and from Python, with numpy."""

import numpy as np
import pytest

import cuda_ext
from example_extension import _core, kernels
from example_extension.comparison import compare
from example_extension.device_array import DeviceArray

needs_gpu = pytest.mark.skipif(not cuda_ext.gpu_available(), reason="no GPU here to launch the kernels on")


@needs_gpu
@pytest.mark.parametrize("n", [1, 256, 1000, 1_000_003])
def test_both_languages_compute_what_numpy_computes(n: int) -> None:
    assert [c for c in compare(n) if not c.is_right] == []


@needs_gpu
def test_arrays_of_another_type_are_refused() -> None:
    x, y = DeviceArray(np.ones(4, np.float32)), DeviceArray(np.ones(4))
    with pytest.raises(TypeError, match="incompatible function arguments"):
        _core.axpy(2.0, x, y)


def test_both_languages_have_the_same_kernels() -> None:
    assert sorted(_core.kernels()) == sorted(k.expression for k in cuda_ext.describe(kernels).kernels)


def test_arrays_in_host_memory_are_refused() -> None:
    x = np.ones(4)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        _core.axpy(2.0, x, x)
