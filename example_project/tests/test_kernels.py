"""Compare each kernel with numpy, on shapes that fill blocks and tiles completely or partly."""

import pytest

import cuda_ext
from example_project import kernels, scan
from example_project.cases import cases
from example_project.device_array import compute_capability

SHAPES = [(1, 1), (64, 256), (65, 257), (17, 1003), (1200, 301)]
KERNELS = [case.kernel for case in cases(1, 1)]

needs_gpu = pytest.mark.skipif(not cuda_ext.gpu_available(), reason="no GPU here to launch the kernels on")


@needs_gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_computes_what_numpy_computes(kernel: str, shape: tuple[int, int]) -> None:
    case = next(case for case in cases(*shape) if case.kernel == kernel)
    if case.compute_capability not in (None, compute_capability()):
        pytest.skip("this kernel is not for this GPU")
    assert case.error() <= case.tolerance


def test_every_kernel_has_a_case() -> None:
    described = [cuda_ext.describe(module).kernels for module in (kernels, scan)]
    assert sorted(KERNELS) == sorted(kernel.expression for group in described for kernel in group)
