"""Translation units and compilers: plain frozen data, free of paths and machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.codec import sha256
from cuda_ext.facts.sources import Options, Source
from cuda_ext.text.directives import has_directives

if TYPE_CHECKING:
    from pathlib import Path

    from cuda_ext.compiler.front_ends.kernel_description import KernelDescription
    from cuda_ext.compiler.products import CompiledImage

# Kernels of CUDA Tile in a source of CUDA C++ have their own kind.
SourceKind = Literal["cu", "tile", "ptx", "cubin", "fatbin", "ltoir", "cutile", "triton"]
# Kinds that a front-end of the same name compiles, and the kinds of Python sources among them.
FRONT_ENDS = ("tile", "cutile", "triton")
PYTHON = ("cutile", "triton")
# The names of front-ends in texts.
TITLES = {"tile": "CUDA Tile", "cutile": "cuTile", "triton": "Triton"}
# The largest number of instantiations of one module: compilers take seconds for a hundred.
MOST_INSTANTIATIONS = 20_000


# The directory of headers whose names macros make. Compilers find them by the rest of their paths.
NAMED = "cuda_ext_named/"


class TranslationUnit:
    """One device source with all headers of the project that it includes.

    ``name`` is the source's path within the project, with forward slashes. ``headers`` maps canonical
    names to contents. Every include directive in the headers and in ``source`` that leads to one of them
    spells its canonical name (see :mod:`cuda_ext.compiler.headers`). ``kernels`` describes those of an image.
    ``constants`` are expressions of which it may have the values.
    Its attributes do not change.
    """

    # Not a dataclass: importing dataclasses takes longer than a cache hit of compilation on demand.
    def __init__(
        self,
        name: str,
        source: bytes,
        kind: SourceKind = "cu",
        headers: Mapping[str, bytes] | None = None,
        options: Options | None = None,
        instantiate: tuple[str, ...] = (),
        kernels: tuple[KernelDescription, ...] = (),
        constants: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.source = source
        self.kind = kind
        self.headers = {} if headers is None else headers
        self.options = options or Options()
        self.instantiate = instantiate
        self.kernels = kernels
        self.constants = constants

    def replace(self, **changes: Any) -> TranslationUnit:
        """Return the same unit with other values of these attributes."""
        names = ("name", "source", "kind", "headers", "options", "instantiate", "kernels", "constants")
        return TranslationUnit(**{name: getattr(self, name) for name in names} | changes)

    @cached_property
    def sha256(self) -> str:
        """The digest of the source and its headers, names included."""
        parts: list[bytes] = []
        for name, content in [(self.name, self.source), *sorted(self.headers.items())]:
            for part in (name.encode(), content):
                parts += len(part).to_bytes(8, "little"), part
        return sha256(b"".join(parts)).hex()

    @property
    def header_files(self) -> set[str]:
        """The names of its headers, without those whose names macros make, which are no files."""
        return {name for name in self.headers if not name.startswith(NAMED)}

    @property
    def may_include(self) -> bool:
        """True if the source may include a header, be it the project's or not."""
        return b"include" in self.source or bool(self.options.pre_include or self.options.raw)

    @property
    def needs_toolkit(self) -> bool:
        """True if it may include a header that is not the project's; those of the project are in quotes."""
        if self.options.pre_include or self.options.raw:
            return True
        texts = [text for text in (self.source, *self.headers.values()) if has_directives(text)]
        if not texts:
            return False
        from cuda_ext.text.includes import find_includes  # a slow import

        found = map(find_includes, texts)
        return any(each.by_macro or not all(name.is_quoted for name in each.named) for each in found)

    @property
    def described(self) -> Source:
        """The manifest's description of this unit."""
        return Source(self.name, self.sha256, self.options, self.instantiate)

    @cached_property
    def header_digests(self) -> Mapping[str, str]:
        """The SHA-256 of each header."""
        return {name: _sha256(content) for name, content in self.headers.items()}


@lru_cache(maxsize=10_000)
def _sha256(content: bytes) -> str:
    """Compute the digest; cached, since units share their headers."""
    return sha256(content).hex()


class CompilerInfo(Protocol):
    """The properties of a compiler that planning needs."""

    @property
    def name(self) -> str:
        """``nvrtc`` or ``nvcc``."""

    @property
    def version(self) -> str:
        """Its CUDA version, ``13.5``."""

    def capabilities(self) -> tuple[int, ...]:
        """Return the compute capabilities that it compiles for, ``(75, 80, ...)``."""

    def supports(self, architecture: Architecture) -> bool:
        """Return True if it compiles for exactly this architecture, suffix included."""


class Compiler(CompilerInfo, Protocol):
    """The pure function: the same unit and architecture give the same image on every machine.

    ``compile`` raises :class:`~cuda_ext.errors.CompilationError` with the compiler's own text.
    Creating an instance is cheap; the first call may load libraries and run programs.
    The version is a cached property: it can be set as an earlier process found it.
    """

    def files(self) -> Sequence[Path]:
        """Return the programs and libraries of the compiler; empty if they are not known."""

    def search_path(self, unit: TranslationUnit) -> Sequence[Path]:
        """Return the directories in which it looks up headers that are not the project's, in order."""

    def compile(
        self, unit: TranslationUnit, architectures: Sequence[Architecture]
    ) -> tuple[CompiledImage, ...]:
        """Compile `unit` for one architecture, or for a cubin and the PTX of the same target.

        The images come with their name map and signatures.
        """
