"""What a kernel uses on a GPU."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Attributes"]


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
