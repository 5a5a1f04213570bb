"""An image, and what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cuda_ext.compiler.translation_unit import CompiledImage
from cuda_ext.formats import ptx
from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.cubin import read_cubin
from cuda_ext.formats.ptx import PtxParameter, PtxVariable
from cuda_ext.formats.resources import split_usage
from cuda_ext.manifest import Parameter
from cuda_ext.toolchain.time_trace import NO_TRACE, Trace

__all__ = ["read_image"]


def read_image(
    architecture: Architecture, data: bytes, log: str = "", trace: Trace = NO_TRACE
) -> CompiledImage:
    """`data` with the kernels and variables that are in it. LTO-IR does not tell.

    Raises :class:`~cuda_ext.errors.BuildError` for damaged data.
    """
    kernels: Mapping[str, Sequence[PtxParameter | Parameter]] = {}
    variables: Mapping[str, PtxVariable] = {}
    code: Mapping[str, int] = {}
    match architecture.kind:
        case "cubin":
            cubin = read_cubin(data)
            kernels, variables, code = cubin.kernels, cubin.variables, cubin.code
        case "ptx":
            kernels, variables = ptx.kernels(data), ptx.variables(data)
    sizes = {name: tuple(p.size for p in parameters) for name, parameters in kernels.items()}
    sizes |= {name: (variable.size,) for name, variable in variables.items()}
    text, usage = split_usage(log, code)
    entries, names = tuple(sorted(kernels)), tuple(sorted(variables))
    return CompiledImage(architecture, data, entries, names, sizes, text, usage, trace)
