"""A compiled image with what can be read from it, and the trace of a compilation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cuda_ext.formats import ptx
from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.cubin import read_cubin
from cuda_ext.formats.ptx import PtxParameter, PtxVariable
from cuda_ext.formats.resources import Usage
from cuda_ext.manifest import Parameter

__all__ = ["HEADER", "NO_TRACE", "CompiledImage", "Span", "Trace", "read_image"]

# The name of the spans in which NVRTC and nvcc read a header.
HEADER = "Processing Header File"


@dataclass(frozen=True, slots=True)
class Span:
    """One phase of a compilation, in seconds since it began.

    ``detail`` is the header or function that the phase processed, if any.
    """

    name: str
    detail: str
    start: float
    duration: float


@dataclass(frozen=True, slots=True)
class Trace:
    """How a compilation went; it is not part of the product.

    ``reads`` are the headers that the compiler opened, and the names that it passed to ``__has_include``:
    canonical names of the project's headers, and search-path names of all others. ``spans`` are empty unless
    they were asked for.
    """

    reads: frozenset[str] = frozenset()
    spans: tuple[Span, ...] = ()


NO_TRACE = Trace()


@dataclass(frozen=True, slots=True)
class CompiledImage:
    """A translation unit compiled for one architecture.

    ``entries`` are the lowered names of the kernels in the image, ``variables`` those of its ``__device__``
    and ``__constant__`` variables. ``sizes`` has the bytes of each kernel's parameters, and of each variable.
    ``usage`` has the resources of the kernels of a cubin.
    """

    architecture: Architecture
    data: bytes
    entries: tuple[str, ...]
    variables: tuple[str, ...]
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    log: str = ""
    usage: Mapping[str, Usage] = field(default_factory=dict)
    trace: Trace = field(default=NO_TRACE, compare=False)


def read_image(architecture: Architecture, data: bytes) -> CompiledImage:
    """List the kernels and variables in the image `data`; LTO-IR shows none.

    Raises :class:`~cuda_ext.errors.BuildError` for damaged data.
    """
    kernels: Mapping[str, Sequence[PtxParameter | Parameter]] = {}
    variables: Mapping[str, PtxVariable] = {}
    usage: Mapping[str, Usage] = {}
    match architecture.kind:
        case "cubin":
            cubin = read_cubin(data)
            kernels, variables = cubin.kernels, cubin.variables
            usage = {name: Usage(size) for name, size in cubin.code.items()}
        case "ptx":
            kernels, variables = ptx.kernels(data), ptx.variables(data)
    sizes = {name: tuple(p.size for p in parameters) for name, parameters in kernels.items()}
    sizes |= {name: (variable.size,) for name, variable in variables.items()}
    entries, names = tuple(sorted(kernels)), tuple(sorted(variables))
    return CompiledImage(architecture, data, entries, names, sizes, usage=usage)
