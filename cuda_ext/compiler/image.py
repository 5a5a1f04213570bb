"""An image, and what it says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cuda_ext.compiler import ptx
from cuda_ext.compiler.architectures import Architecture
from cuda_ext.compiler.cubin import read_cubin
from cuda_ext.compiler.trace import NO_TRACE, Trace
from cuda_ext.compiler.translation_unit import CompiledImage
from cuda_ext.compiler.usage import split_usage

__all__ = ["read_image"]


def read_image(
    architecture: Architecture, data: bytes, log: str = "", trace: Trace = NO_TRACE
) -> CompiledImage:
    """`data` with the kernels and variables that are in it. LTO-IR does not tell.

    Raises :class:`~cuda_ext.errors.BuildError` for damaged data.
    """
    entries: Iterable[str]
    variables: Iterable[str]
    code: Mapping[str, int] = {}
    match architecture.kind:
        case "cubin":
            cubin = read_cubin(data)
            entries, variables, code = cubin.kernels, cubin.variables, cubin.code
        case "ptx":
            entries, variables = ptx.kernels(data), ptx.variables(data)
        case "ltoir":
            entries, variables = (), ()
    text, usage = split_usage(log, code)
    return CompiledImage(
        architecture, data, tuple(sorted(entries)), tuple(sorted(variables)), text, usage, trace
    )
