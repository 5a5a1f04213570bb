"""The resources that a kernel uses on a GPU."""

from __future__ import annotations

from typing import NamedTuple

from cuda_ext.runtime.driver import cuda_h
from cuda_ext.runtime.driver.loaded_kernel import LoadedKernel


class Attributes(NamedTuple):
    """The resources that a kernel uses on one GPU.

    ``registers`` and ``local`` memory are per thread, static ``shared`` memory is per block; memory sizes,
    also of ``constant`` memory, are in bytes. ``most_threads`` is the largest number of threads in a block.
    ``ptx`` and ``binary`` are the architectures (``90``) of the PTX and of the machine code.
    """

    registers: int
    local: int
    shared: int
    constant: int
    most_threads: int
    ptx: int
    binary: int


def read_attributes(kernel: LoadedKernel) -> Attributes:
    """Ask the driver for the attributes of `kernel`."""
    return Attributes(
        kernel.attribute(cuda_h.CU_FUNC_ATTRIBUTE_NUM_REGS),
        kernel.attribute(cuda_h.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
        kernel.static_shared,
        kernel.attribute(cuda_h.CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES),
        kernel.most_threads,
        kernel.attribute(cuda_h.CU_FUNC_ATTRIBUTE_PTX_VERSION),
        kernel.attribute(cuda_h.CU_FUNC_ATTRIBUTE_BINARY_VERSION),
    )
