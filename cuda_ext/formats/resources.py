"""The resources that a kernel takes of a multiprocessor. :mod:`~cuda_ext.formats.cubin` reads them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Resources"]


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of a kernel: registers per thread, and bytes of everything else; ``None`` is unknown.

    ``code`` is its machine code. The counts are those of ``ptxas -v``, which excludes functions that are
    called and not inlined. Only its cubin shows ``deepest_stack``, which includes these and is ``None`` for
    unbounded recursion, and ``max_threads``, the launch bound. ``constant`` is the bank with the parameters.
    """

    code: int
    registers: int | None = None
    stack: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    shared: int | None = None
    constant: int | None = None
    deepest_stack: int | None = None
    max_threads: int | None = None

    @property
    def spilled(self) -> int | None:
        """The bytes that a thread spills: stores and loads together."""
        if self.spill_stores is None or self.spill_loads is None:
            return None
        return self.spill_stores + self.spill_loads
