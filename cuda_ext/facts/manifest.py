"""The manifest: what a build writes about a module and the runtime reads.

It is a JSON file beside the images of a module, and here plain frozen data: the compiler, the sources, the
kernels and symbols, and the file of each image.

A module may have thousands of kernels, of which a program launches few. So the record of each unit, kernel,
symbol and variants is made when it is first used. Kernels share parameters: the file has one array of all
parameters, and each kernel has indices into it. A damaged record raises a :class:`ManifestError`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from cuda_ext.errors import ManifestError
from cuda_ext.facts.architecture import Architecture, ImageKind
from cuda_ext.facts.codec import Reader, plain, reader
from cuda_ext.facts.kernels import FixedLaunch, Kernel, Parameter, Symbol

SCHEMA = 1
FILE_NAME = "manifest.json"

Compression: TypeAlias = Literal["none", "speed", "balance", "size"]
Operator: TypeAlias = Literal["", "<", "<=", "==", "!=", ">=", ">"]

_T = TypeVar("_T")
_LARGEST = (1 << 63) - 1  # the largest number in a condition


class Term(NamedTuple):
    """A comparison that a condition requires: ``n % 16 == 0``, ``x.shape[0] >= 64``, ``sm >= 80``.

    Without a modulus, it compares the value itself. A target such as ``sm_90a`` has no operator: it requires
    that the GPU loads an image for this target.
    """

    name: str
    operator: Operator = ""
    number: int = 0
    modulus: int = 0

    @property
    def left(self) -> str:
        return f"{self.name} % {self.modulus}" if self.modulus else self.name

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.number}" if self.operator else self.name


class Candidate(NamedTuple):
    """One kernel of several variants, and the terms that must all hold; the default has none."""

    kernel: str
    when: tuple[Term, ...] = ()

    @property
    def condition(self) -> str:
        return " and ".join(map(str, self.when))

    def __str__(self) -> str:
        return f"{self.kernel} if {self.condition}" if self.when else self.kernel


class Variants(NamedTuple):
    """Several kernels under one name. A launch takes the first whose condition holds.

    The last candidate is the default. All have the same parameters. The candidates of ``specialised``
    variants are one kernel, compiled under several conditions. They have no names of their own, and not all
    have a default. A kernel compiled for several conditions is a candidate for each.
    """

    name: str
    candidates: tuple[Candidate, ...]
    specialised: bool = False

    def __str__(self) -> str:
        if self.specialised:
            conditions = [f"if {c.condition}" if c.when else "and for all arguments" for c in self.candidates]
            return f"compiled {', '.join(conditions)}"
        *conditional, default = self.candidates
        return ", ".join([*map(str, conditional), f"else {default}"])


class Image(NamedTuple):
    """One translation unit (or linked module) compiled for one architecture.

    ``file`` lies beside the manifest, and ``sha256`` is its digest; images of one fatbin share both. ``size``
    is the size of the image before compression. ``names`` maps name expressions to lowered names that differ
    from those of the kernel or symbol; ``None`` means that the image does not contain it. ``launches`` has
    the kernels, by name expression, whose launch the image fixes. ``version`` is the version of Tile IR.
    """

    architecture: str
    file: str
    size: int
    sha256: str
    names: Mapping[str, str | None] = {}
    launches: Mapping[str, FixedLaunch] = {}
    version: str | None = None

    @property
    def target(self) -> Architecture:
        """The architecture, with its parts."""
        return Architecture.parse(self.architecture)

    @property
    def kind(self) -> ImageKind:
        return self.target.kind


class Options(NamedTuple):
    """The compile options of a translation unit, independent of the compiler.

    ``raw`` options are passed on unchanged, after all others. ``pre_include`` names headers that are
    included before the first line. ``relocatable`` requests device code that is linked later. With
    ``std_headers``, NVRTC finds the headers of the C++ standard library that libcu++ has.
    """

    std: str = "c++17"
    define: Mapping[str, str] = {}
    raw: tuple[str, ...] = ()
    pre_include: tuple[str, ...] = ()
    fast_math: bool = False
    relaxed_constexpr: bool = False
    relocatable: bool = False
    std_headers: bool = True

    def __hash__(self) -> int:
        return hash((self.std, self.raw, self.pre_include))  # a mapping has no hash


class Source(NamedTuple):
    """A compiled source: its path within the project, its options, and the requested name expressions.

    ``sha256`` is the digest of its text, and of the project's headers that it can include, with their names.
    """

    name: str
    sha256: str = ""
    options: Options = Options()
    instantiate: tuple[str, ...] = ()


class Unit(NamedTuple):
    """One translation unit, or one linked module. ``meanings`` maps names in template arguments."""

    sources: tuple[Source, ...]
    images: tuple[Image, ...]
    meanings: Mapping[str, str] = {}

    @property
    def title(self) -> str:
        """The names of its sources."""
        return ", ".join(source.name for source in self.sources)

    def arrived_as(self, *suffixes: str) -> bool:
        """Return True if it consists of files with such a suffix, packaged without compiling a source."""
        return all(source.name.endswith(suffixes) for source in self.sources)


class Manifest(NamedTuple):
    """All that is known about a module without a driver.

    ``compiler`` is ``nvrtc`` or ``nvcc``; ``compress`` is the compression of the fatbins. ``embedded`` maps
    embedded device sources and headers to their SHA-256; it is ``None`` for a module with ``jit = false``.
    """

    schema: int
    module: str
    compiler: str
    version: str
    compress: Compression
    units: Sequence[Unit]
    kernels: Sequence[Kernel]
    symbols: Sequence[Symbol]
    embedded: Mapping[str, str] | None = None
    variants: Sequence[Variants] = ()

    @property
    def files(self) -> dict[str, str]:
        """The SHA-256 of each file beside the manifest: images, and embedded sources."""
        images = {image.file: image.sha256 for unit in self.units for image in unit.images}
        return images | {f"sources/{name}": digest for name, digest in (self.embedded or {}).items()}

    @property
    def named_kernels(self) -> tuple[Kernel, ...]:
        """The kernels that have names of their own, with specialised variants as one kernel."""
        kernels = {kernel.expression: kernel for kernel in self.kernels}
        for variants in filter(lambda each: each.specialised, self.variants):
            own = [kernels.pop(name, None) for name in {c.kernel: None for c in variants.candidates}]
            if own and own[-1]:  # damaged manifests may lack it
                kernels[variants.name] = own[-1]._replace(expression=variants.name)
        return tuple(kernels.values())

    def fixes(self, kernel: Kernel) -> bool:
        """Return True if images fix the launches of `kernel`, so that a call gives only the grid."""
        name = kernel.expression.partition(" if ")[0]
        images = self.units[kernel.unit].images
        return any(name == each.partition(" if ")[0] for image in images for each in image.launches)

    def lowered_name(self, entity: Kernel | Symbol, image: Image) -> str | None:
        """Return the lowered name of `entity` in `image`; ``None`` if the image does not contain it."""
        name = entity.expression if isinstance(entity, Kernel) else entity.name
        return image.names.get(name, entity.lowered)


class Records(Sequence[_T]):
    """The records of an array of JSON. `read` makes each record when it is first used.

    The first field of a record is its name. `refuse` gets what is wrong.
    """

    def __init__(
        self, items: list[Any], kind: type[_T], read: Reader, refuse: Callable[[str], Exception]
    ) -> None:
        self._items = items
        self._kind: Any = kind
        self._read = read
        self._refuse = refuse

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        item = self._items[index]
        if not isinstance(item, tuple):
            try:
                item = self._items[index] = self._read(item, iter(()))
            except (ValueError, TypeError, LookupError, RecursionError) as error:
                raise self._refuse(f"{self._kind.__name__} {index}: {error}") from None
        return item

    def __iter__(self) -> Iterator[_T]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return [*self] == [*other] if isinstance(other, (tuple, Records)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))

    def names(self) -> list[str]:
        """Return the names of all records; other fields are not read."""
        field = self._kind._fields[0]
        try:
            names = [item[0] if isinstance(item, tuple) else item[field] for item in self._items]
        except (TypeError, LookupError):
            names = [None]
        if {*map(type, names)} - {str}:
            raise self._refuse(f"a {self._kind.__name__} has no name")
        return names


def dumps(manifest: Manifest) -> str:
    """Write `manifest` as JSON, with each item of its arrays on its own line.

    Equal manifests give equal texts.
    """
    parameters: dict[Parameter, int] = {}
    kernels = [
        plain(kernel, [])
        | {"parameters": [parameters.setdefault(p, len(parameters)) for p in kernel.parameters]}
        for kernel in manifest.kernels
    ]
    document = manifest._asdict() | {"kernels": kernels, "parameters": [*parameters]}
    texts = []
    for name, value in document.items():
        if isinstance(value, Sequence) and not isinstance(value, str):
            lines = (json.dumps(plain(item, []), ensure_ascii=False) for item in value)
            text = "[" + ",".join(f"\n  {line}" for line in lines) + "]"
        else:
            text = json.dumps(value, ensure_ascii=False)
        texts.append(f'"{name}": {text}')
    return "{\n " + ",\n ".join(texts) + "\n}\n"


def loads(text: str | bytes, origin: str) -> Manifest:
    """Read what :func:`dumps` wrote. `origin` names the file in errors.

    Raises :class:`ManifestError` if the text is not a manifest of a schema that this version reads, and later
    when a damaged record is first used.
    """

    def refuse(problem: str) -> ManifestError:
        return ManifestError(problem, where=origin, remedy="reinstall the package that holds it")

    def refuse_record(flaw: str) -> ManifestError:
        return refuse(f"damaged manifest: {flaw}")

    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refuse(f"not a manifest: {error}") from None
    if not isinstance(data, dict):
        raise refuse("not a manifest: expected a JSON object")
    schema = data.get("schema")
    if type(schema) is int and schema > SCHEMA:
        problem = f"written in manifest schema {schema}, and this cuda-ext reads up to {SCHEMA}"
        raise ManifestError(problem, where=origin, remedy="upgrade cuda-ext")
    try:
        return _read_manifest(data, refuse_record)
    except (ValueError, RecursionError) as error:
        raise refuse_record(str(error)) from None


def _read_manifest(data: dict[str, Any], refuse: Callable[[str], ManifestError]) -> Manifest:
    def array(name: str, kind: type[_T], read: Reader) -> Records[_T]:
        items = data.pop(name, [] if name == "variants" else None)
        if not isinstance(items, list):
            raise ValueError(f"{name} is {items!r:.40}")
        return Records(items, kind, read, refuse)

    def read_kernel(item: Any, contents: Iterator[bytes | None]) -> Kernel:
        kernel: Kernel = reader(Kernel)({**item, "parameters": []}, contents)
        kernel = kernel._replace(parameters=tuple(parameters[index] for index in item["parameters"]))
        _check_unit(kernel)
        if not kernel.is_launchable:
            raise ValueError(f"{kernel.expression} has parameters that no launch can pass")
        return kernel

    def read_symbol(item: Any, contents: Iterator[bytes | None]) -> Symbol:
        symbol: Symbol = reader(Symbol)(item, contents)
        _check_unit(symbol)
        if not 0 <= symbol.size < 1 << 40:
            raise ValueError(f"{symbol.name} has {symbol.size} bytes")
        return symbol

    def _check_unit(entity: Kernel | Symbol) -> None:
        if not 0 <= entity.unit < len(units):
            raise ValueError(f"there is no unit {entity.unit}")

    units = array("units", Unit, _read_unit)
    parameters = array("parameters", Parameter, reader(Parameter))
    kernels, symbols = array("kernels", Kernel, read_kernel), array("symbols", Symbol, read_symbol)
    variants = array("variants", Variants, _read_variants)
    empty: dict[str, Any] = {name: [] for name in ("units", "kernels", "symbols", "variants")}
    manifest: Manifest = reader(Manifest)(data | empty, iter(()))
    _check_version(manifest.version)
    return manifest._replace(units=units, kernels=kernels, symbols=symbols, variants=variants)


def _check_version(version: str) -> None:
    if not all(number.isdecimal() and len(number) < 9 for number in version.split(".")):
        raise ValueError(f"the version is {version}")


def _read_variants(item: Any, contents: Iterator[bytes | None]) -> Variants:
    variants: Variants = reader(Variants)(item, contents)
    if not variants.candidates:
        raise ValueError(f"{variants.name} has no candidate")
    for term in (term for candidate in variants.candidates for term in candidate.when):
        if not (-_LARGEST <= term.number <= _LARGEST and 0 <= term.modulus <= _LARGEST):
            raise ValueError(f"{term} has a number beyond 64 bits")
    return variants


_NOT_IN_NAMES = frozenset("/\\:\0")


def _read_unit(item: Any, contents: Iterator[bytes | None]) -> Unit:
    unit: Unit = reader(Unit)(item, contents)
    if not unit.sources:
        raise ValueError("it has no source")
    for image in unit.images:
        if not image.file.strip(".") or _NOT_IN_NAMES.intersection(image.file):
            raise ValueError(f"{image.file!r} is not a file of the package")
        if image.kind == "tileir":  # or it raises that the architecture is none
            _check_version(image.version or "")
        for name, launch in image.launches.items():
            if not launch.is_possible:
                raise ValueError(f"{name} has a launch that no GPU supports")
    return unit
