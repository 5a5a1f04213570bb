"""An image, and what it says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cuda_ext.compiler import ptx
from cuda_ext.compiler.architectures import Architecture
from cuda_ext.compiler.cubin import read_cubin
from cuda_ext.compiler.translation_unit import CompiledImage

__all__ = ["read_image"]


def read_image(
    architecture: Architecture, data: bytes, names: Mapping[str, str] | None = None, log: str = ""
) -> CompiledImage:
    """`data` with the kernels and variables that are in it. LTO-IR does not tell.

    Raises :class:`~cuda_ext.errors.BuildError` for damaged data.
    """
    entries: Iterable[str]
    variables: Iterable[str]
    match architecture.kind:
        case "cubin":
            cubin = read_cubin(data)
            entries, variables = cubin.kernels, cubin.variables
        case "ptx":
            entries, variables = ptx.kernels(data), ptx.variables(data)
        case "ltoir":
            entries, variables = (), ()
    return CompiledImage(
        architecture, data, names or {}, tuple(sorted(entries)), tuple(sorted(variables)), log
    )
