"""The definitions in images of all kinds, by lowered name. LTO-IR shows none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cuda_ext.facts.architecture import ImageKind
from cuda_ext.facts.kernels import Parameter
from cuda_ext.facts.symbols import Symbol
from cuda_ext.formats import ptx
from cuda_ext.formats.cubin import Resources, read_cubin
from cuda_ext.formats.cubin import read_code as read_code_of_cubin
from cuda_ext.formats.tile_ir import read_tile_ir


class Definitions(NamedTuple):
    """The parameters of each kernel, the variables, and the resources of each kernel.

    PTX has plain types. A cubin and Tile IR have only sizes. Only a cubin shows resources.
    """

    kernels: Mapping[str, tuple[Parameter, ...]] = {}
    variables: Mapping[str, Symbol] = {}
    usage: Mapping[str, Resources] = {}


def read_definitions(kind: ImageKind, data: bytes) -> Definitions:
    """Read an image. Raises :class:`~cuda_ext.errors.BuildError` for damaged data."""
    match kind:
        case "cubin":
            cubin = read_cubin(data)
            return Definitions(cubin.kernels, cubin.variables, cubin.usage)
        case "ptx":
            return Definitions(ptx.kernels(data), ptx.variables(data))
        case "tileir":
            _, kernels, variables = read_tile_ir(data)
            return Definitions(kernels, variables)
        case "ltoir":
            return Definitions()


def read_code(kind: ImageKind, data: bytes) -> Mapping[str, bytes]:
    """Read the instructions of kernels. Two kernels have the same code if their bytes are equal.

    The instructions of Tile IR refer to tables of the whole image.
    """
    match kind:
        case "cubin":
            return read_code_of_cubin(data)
        case "ptx":
            return ptx.code(data)
        case "tileir":
            return dict.fromkeys(read_tile_ir(data).kernels, data)
        case "ltoir":
            return {}
