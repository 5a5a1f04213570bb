"""What a module's sources are to be compiled for after it was built.

A demand is told by digests and names alone, so that its record is found without reading a source or loading a
compiler. The C++ loader comes to the same keys.
"""

from __future__ import annotations

from typing import NamedTuple

from cuda_ext.compiler.name_expressions import normalise
from cuda_ext.compiler.nvrtc_options import nvrtc_options
from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.netstring import Field, key_of
from cuda_ext.manifest import Source

__all__ = ["Demand"]

# Counted up whenever the same demand would come to another record, in Python and in C++.
_KEY = "on demand 1"


class Demand(NamedTuple):
    """`sources`, with what each is to be instantiated for, as one image for a GPU.

    ``architecture`` is the GPU's own, ``sm_90``; with ``a`` where the sources may use what only that GPU has.
    ``link`` is the module's name where its units are linked, and ``None`` where there is one source.
    """

    sources: tuple[Source, ...]
    architecture: Architecture
    link: str | None = None

    @property
    def expressions(self) -> list[str]:
        """The name expressions, each once."""
        return sorted({normalise(each) for source in self.sources for each in source.instantiate})

    def key(self, identity: str) -> str:
        """The key of its record, made by the compiler of that `identity`."""
        fields: list[Field] = [_KEY, identity, str(self.architecture), self.link]
        fields.append(str(len(self.sources)))
        for source in self.sources:
            options = nvrtc_options(source.name, source.options)
            fields += source.name, source.sha256, str(len(options)), *options
            expressions = sorted(set(map(normalise, source.instantiate)))
            fields += str(len(expressions)), *expressions
        return key_of(*fields)

    def __str__(self) -> str:
        what = ", ".join(self.expressions) or ", ".join(source.name for source in self.sources)
        return f"{what} for {self.architecture}"
