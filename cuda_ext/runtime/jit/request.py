"""A request to compile sources of a module after it was built, and the entry of the cache that answers it.

A request names its sources by digests, so its cache entry is found without reading a source or loading a
compiler. C++ programs use other keys, since their entries have larger images and no types.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cuda_ext.compiler.compile_options import nvrtc_options
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.codec import Field, key_of
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.sources import Source
from cuda_ext.facts.structures import Structure
from cuda_ext.facts.symbols import Symbol
from cuda_ext.formats.spelling import normalise

if TYPE_CHECKING:
    import cuda_ext.facts.candidates
    import cuda_ext.facts.launches

# Increase it whenever the same request must have a different result, as after a change of our headers.
_KEY = "on demand 4"


class Entry(NamedTuple):
    """An image for ``architecture``, ``sm_90a`` or ``compute_90``, with its kernels, symbols and structures.

    Names of kernels are normalised name expressions. The image of a Python function has one kernel, whose
    launch it fixes in ``launches``; one of the ``conditions`` must hold if there are any.
    """

    architecture: str
    image: bytes
    kernels: tuple[Kernel, ...]
    symbols: tuple[Symbol, ...]
    structures: tuple[Structure, ...] = ()
    launches: Mapping[str, "cuda_ext.facts.launches.FixedLaunch"] = {}
    conditions: tuple[tuple["cuda_ext.facts.candidates.Term", ...], ...] = ()

    def __hash__(self) -> int:
        return hash(self.image)  # a mapping has no hash

    def kernel(self, expression: str) -> Kernel | None:
        """Return the kernel with this normalised name expression, or ``None``; that of a Python function."""
        if self.launches:
            return self.kernels[0]
        return next((kernel for kernel in self.kernels if kernel.expression == expression), None)

    def lowered_name(self, entity: Kernel | Symbol) -> str | None:
        """Return the lowered name of a kernel or symbol in this image, or ``None`` if the image lacks it."""
        if isinstance(entity, Kernel):
            # Candidates of a tuned kernel have names of their own.
            same = (each for each in self.kernels if each.lowered == entity.lowered)
            kernel = self.kernel(entity.expression) or next(same, None)
            return kernel.lowered if kernel else None
        return next((s.lowered for s in self.symbols if s.name == entity.name), None)


class Request(NamedTuple):
    """`sources`, each with its name expressions, to be compiled to one image.

    ``architecture`` is the GPU's, ``sm_90``, with the suffix ``a`` if the sources may use features of exactly
    this GPU. ``link`` is the module's name if units are linked, and ``None`` for a single source.
    """

    sources: tuple[Source, ...]
    architecture: Architecture
    link: str | None = None

    @property
    def expressions(self) -> list[str]:
        """The normalised name expressions, sorted and without duplicates."""
        return sorted({each for source in self.sources for each in _expressions(source)})

    @property
    def is_python(self) -> bool:
        """True if its source is a Python file."""
        return any(source.name.endswith(".py") for source in self.sources)

    def key(self, identity: str) -> str:
        """Return the key of the cache entry that a compiler with this `identity` produces."""
        fields: list[Field] = [_KEY, identity, str(self.architecture), self.link]
        fields.append(str(len(self.sources)))
        for source in self.sources:
            options = nvrtc_options(source.name, source.options)
            if not source.options.std_headers:
                options.append("std-headers=false")
            if source.options.skip_host_code:
                options.append("host-code=skip")
            fields += source.name, source.sha256, str(len(options)), *options
            expressions = sorted({*_expressions(source)})
            fields += str(len(expressions)), *expressions
        return key_of(*fields)

    def __str__(self) -> str:
        names = ", ".join(self.expressions) or ", ".join(source.name for source in self.sources)
        return f"{names} for {self.architecture}"


def _expressions(source: Source) -> Sequence[str]:
    """Return the name expressions of `source`, normalised; those of Python are in canonical spelling."""
    is_python = source.name.endswith(".py")
    return source.instantiate if is_python else [normalise(each) for each in source.instantiate]


def join_requests(requests: Sequence[Request]) -> Request:
    """Join the expressions of all `requests`, which differ in nothing else, in one request."""
    versions = zip(*(request.sources for request in requests), strict=True)
    sources = (
        same[0]._replace(instantiate=tuple(e for source in same for e in source.instantiate))
        for same in versions
    )
    return requests[0]._replace(sources=tuple(sources))
