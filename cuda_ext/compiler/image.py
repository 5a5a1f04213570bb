"""An image with what can be read from it: its kernels, its variables, and their sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cuda_ext.compiler.translation_unit import CompiledImage
from cuda_ext.formats import ptx
from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.cubin import read_cubin
from cuda_ext.formats.ptx import PtxParameter, PtxVariable
from cuda_ext.formats.resources import Usage
from cuda_ext.manifest import Parameter

__all__ = ["read_image"]


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
