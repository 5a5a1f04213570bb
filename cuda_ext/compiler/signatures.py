"""The kernels and variables of a translation unit, as the compiler describes them.

:mod:`cuda_ext.compiler.reflection` reads them from images.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cuda_ext.compiler.compiled_image import NO_TRACE, CompiledImage, Trace
from cuda_ext.manifest import Parameter

__all__ = ["KernelSignature", "Signatures", "SymbolSignature", "merge"]


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """A kernel: its C++ name with namespaces, its lowered name, its parameters."""

    name: str
    lowered: str
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class SymbolSignature:
    """A variable in device memory; ``size`` is in bytes."""

    name: str
    lowered: str
    space: Literal["constant", "device"]
    type: str
    size: int


@dataclass(frozen=True, slots=True)
class Signatures:
    """The kernels and variables of a translation unit, by lowered name.

    ``variables`` are the lowered names of all variables of the unit: ``symbols``, and those of the tool
    chain's headers. ``names`` is the name map: each requested name expression with its lowered name.
    """

    kernels: Mapping[str, KernelSignature]
    symbols: Mapping[str, SymbolSignature]
    variables: frozenset[str] = frozenset()
    names: Mapping[str, str] = field(default_factory=dict)
    trace: Trace = field(default=NO_TRACE, compare=False)

    def cover(self, image: CompiledImage) -> bool:
        """Whether they describe all that is in `image`, under the names that it has there.

        LTO-IR shows no names, and is taken as covered.
        """
        if image.architecture.kind == "ltoir":
            return True
        symbols = self.symbols.keys()
        others = {_without_architecture(name) for name in self.variables - symbols}
        return (
            self.kernels.keys() >= set(image.entries)
            and all(_without_architecture(name) in others for name in set(image.variables) - symbols)
            and {*image.entries, *image.variables}.issuperset(self.names.values())
        )


def _without_architecture(lowered: str) -> str:
    """Remove the architecture that CUB and Thrust put into names, in each of their versions.

    As in ``16_V_300500_SM_900``, ``17CUB_300001_SM_900`` and ``17CUB_200200_900_NS``.
    """
    return re.sub(r"\d+((?:CUB|THRUST|_V)_\d+_)(?:SM_)?\d+(?:_\d+)*", r"\1", lowered)


def merge(several: Iterable[Signatures]) -> Signatures:
    """Unite signatures; the later one counts where two describe the same name. Name maps are left out."""
    kernels: dict[str, KernelSignature] = {}
    symbols: dict[str, SymbolSignature] = {}
    variables: set[str] = set()
    for signatures in several:
        kernels |= signatures.kernels
        symbols |= signatures.symbols
        variables |= signatures.variables
    return Signatures(kernels, symbols, frozenset(variables))
