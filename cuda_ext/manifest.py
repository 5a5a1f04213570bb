"""The manifest: what a build writes about a module and the runtime reads.

It is a JSON file beside the images of a module, and here plain frozen data: the compiler, the sources, the
kernels and symbols, and the file of each image.

A module may have thousands of kernels, of which a program launches few. So each unit, kernel, symbol and
variants have a line of their own, which is read and checked when it is first used. Kernels share parameters:
the file has one array of all parameters, and each kernel has indices into it. Damaged records raise a
:class:`ManifestError` that names the field.
"""

# Python evaluates the annotations of records.

from cuda_ext import fields, records
from cuda_ext.errors import ManifestError
from cuda_ext.fields import LARGEST_PARAMETERS, PREFIXES, FixedLaunch, HiddenParameter, ImageKind
from cuda_ext.records import Annotated, Literal, Mapping, NamedTuple, Records, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SCHEMA = 1
FILE_NAME = "manifest.json"

Compression = Literal["none", "speed", "balance", "size"]
ParameterKind = Literal["pointer", "integer", "unsigned", "float", "bool", "enum", "struct", "opaque"]


class Parameter(NamedTuple):
    """One kernel parameter, or the element of a symbol, as the compiler sees it.

    ``type`` is the C++ type without typedefs. ``size`` and ``offset`` are in bytes. The offset is that of the
    newest cubin; other images may place parameters with an alignment above 16 bytes elsewhere. A launch needs
    no offset. ``element`` is the target type of a pointer or a tensor map, and ``const`` its qualifier.
    ``alignment`` is that of a structure, 0 if it is not known. ``opaque`` parameters come from images without
    type information: they accept any value of this size.
    """

    name: str
    type: fields.Text
    kind: ParameterKind
    size: Annotated[int, range(1, LARGEST_PARAMETERS + 1)]
    offset: Annotated[int, range(LARGEST_PARAMETERS)]
    element: str | None = None
    const: bool = False
    alignment: fields.Alignment = 0

    @property
    def is_integer(self) -> bool:
        """True if conditions of variants may compare its values."""
        return self.kind in ("integer", "unsigned") and self.size <= 8

    def __str__(self) -> str:
        start = self.type.find("(*")
        end = self.type.find(")", start)
        if start < 0 or end < 0 or self.type.count("<", 0, start) > self.type.count(">", 0, start):
            return f"{self.type} {self.name}"
        # In a pointer to a function or an array, the name follows the stars and qualifiers.
        space = " " if self.type[end - 1].isalpha() else ""
        return f"{self.type[:end]}{space}{self.name}{self.type[end:]}"


class Kernel(NamedTuple):
    """A kernel or one instantiation of a kernel template.

    ``expression`` is its C++ name expression (``ns::axpy<float>``), ``lowered`` its lowered name in all
    images whose ``names`` do not map it to another. ``parameters`` are the arguments of a call; ``hidden``
    parameters lie before, between and after them. ``constants`` are values of parameters that it was compiled
    for, as Python spells them. A call may give them by name to choose the kernel, or at their positions in
    ``order``, the arguments of the function. The constants in ``configuration`` differ among candidates.
    """

    expression: fields.Text
    lowered: fields.Text
    unit: int
    parameters: tuple[Parameter, ...]
    hidden: tuple[HiddenParameter, ...] = ()
    constants: Mapping[str, str] = {}
    configuration: Mapping[str, str] = {}
    order: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash((self.expression, self.parameters))  # a mapping has no hash

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of all parameters in bytes, in their order."""
        sizes = [parameter.size for parameter in self.parameters]
        for parameter in self.hidden:
            sizes.insert(parameter.position, parameter.size)
        return tuple(sizes)

    @property
    def signature(self) -> str:
        """The kernel's declaration in C++, followed by the condition of a specialised kernel."""
        name, space, condition = self.expression.partition(" if ")
        return f"{name}({', '.join(map(str, self.parameters))}){space}{condition}"


class Symbol(NamedTuple):
    """A ``__constant__`` or ``__device__`` variable; ``alignment`` is 0 if it is not known."""

    name: fields.Text
    lowered: fields.Text
    unit: int
    space: Literal["constant", "device"]
    type: fields.Text
    size: fields.Size
    alignment: fields.Alignment = 0


class Candidate(NamedTuple):
    """One kernel of several variants, and the condition of its launch; the default has none."""

    kernel: str
    when: fields.Lines | None = None


class Variants(NamedTuple):
    """Several kernels under one name. A launch takes the first whose condition holds.

    The last candidate is the default. All have the same parameters. Conditions are text here;
    :mod:`~cuda_ext.formats.variant_conditions` parses them.

    The candidates of ``specialised`` variants are one kernel, compiled under several conditions. They have no
    names of their own, and not all have a default.
    """

    name: fields.Text
    candidates: tuple[Candidate, ...]
    specialised: bool = False

    def __str__(self) -> str:
        if self.specialised:
            conditions = [f"if {c.when}" if c.when else "and for all arguments" for c in self.candidates]
            return f"compiled {', '.join(conditions)}"
        *conditional, default = self.candidates
        return ", ".join([*(f"{c.kernel} if {c.when}" for c in conditional), f"else {default.kernel}"])


class Image(NamedTuple):
    """One translation unit (or linked module) compiled for one architecture.

    ``file`` lies beside the manifest, and ``sha256`` is its digest; images of one fatbin share both. ``size``
    is the size of the image before compression. ``names`` maps name expressions to lowered names that differ
    from those of the kernel or symbol; ``None`` means that the image does not contain it. ``launches`` has
    the kernels, by name expression, whose launch the image fixes. ``version`` is the version of Tile IR.
    """

    architecture: Annotated[str, fields.split_architecture]
    kind: ImageKind
    file: fields.FileName
    size: fields.Size
    sha256: fields.Digest
    names: Mapping[fields.Text, fields.Text | None] = {}
    launches: Mapping[fields.Text, FixedLaunch] = {}
    version: fields.Version | None = None


class Options(NamedTuple):
    """The compile options of a translation unit, independent of the compiler.

    ``raw`` options are passed on unchanged, after all others. ``pre_include`` names headers that are
    included before the first line. ``relocatable`` requests device code that is linked later.
    """

    std: str = "c++17"
    define: Mapping[str, fields.Lines] = {}
    raw: tuple[fields.Lines, ...] = ()
    pre_include: tuple[str, ...] = ()
    fast_math: bool = False
    relaxed_constexpr: bool = False
    relocatable: bool = False

    def __hash__(self) -> int:
        return hash((self.std, self.raw, self.pre_include))  # a mapping has no hash


class Source(NamedTuple):
    """A compiled source: its path within the project, its options, and the requested name expressions.

    ``sha256`` is the digest of its text, and of the project's headers that it can include, with their names.
    """

    name: fields.InnerPath
    sha256: Annotated[str, lambda text: not text or fields.is_digest(text)] = ""
    options: Options = Options()
    instantiate: tuple[fields.Lines, ...] = ()


class Unit(NamedTuple):
    """One translation unit, or one linked module. ``meanings`` maps names in template arguments."""

    sources: tuple[Source, ...]
    images: tuple[Image, ...]
    meanings: Mapping[fields.Text, fields.Text] = {}

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

    schema: Annotated[int, range(1, SCHEMA + 1)]
    module: fields.Text
    compiler: Annotated[str, ("nvrtc", "nvcc")]
    version: fields.Version
    compress: Compression
    units: Sequence[Unit]
    kernels: Sequence[Kernel]
    symbols: Sequence[Symbol]
    embedded: Mapping[fields.InnerPath, fields.Digest] | None = None
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
        for variants in self.variants:
            taken = [kernels.pop(c.kernel, None) for c in variants.candidates if variants.specialised]
            if taken and taken[-1]:
                kernels[variants.name] = taken[-1]._replace(expression=variants.name)
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


def dumps(manifest: Manifest) -> str:
    """Write `manifest` as JSON. Equal manifests give equal texts."""
    parameters: dict[Parameter, int] = {}
    kernels = [
        records.plain(kernel)
        | {"parameters": [parameters.setdefault(p, len(parameters)) for p in kernel.parameters]}
        for kernel in manifest.kernels
    ]
    document = manifest._asdict() | {"kernels": kernels}
    return records.write_json({**document, "parameters": tuple(parameters)})


def loads(text: str | bytes, origin: str) -> Manifest:
    """Read what :func:`dumps` wrote. `origin` names the file in errors.

    Raises :class:`ManifestError` if the text is not a manifest of a schema that this version reads, and later
    when a damaged record is first used.
    """

    def refuse(problem: str) -> ManifestError:
        return ManifestError(problem, where=origin, remedy="reinstall the package that holds it")

    def refuse_field(flaw: str) -> ManifestError:
        return refuse(f"damaged manifest: manifest{flaw}")

    try:
        data = records.parse_document(text)
    except (ValueError, RecursionError) as error:
        raise refuse(f"not a manifest: {error}") from None
    if not isinstance(data, dict):
        raise refuse("not a manifest: expected a JSON object")
    schema = data.get("schema")
    if type(schema) is int and schema > SCHEMA:
        problem = f"written in manifest schema {schema}, and this cuda-ext reads up to {SCHEMA}"
        raise ManifestError(problem, where=origin, remedy="upgrade cuda-ext")
    try:
        return _read_manifest(data, refuse_field)
    except ValueError as error:
        raise refuse_field(str(error)) from None


def _read_manifest(data: "dict[str, Any]", refuse: "Callable[[str], ManifestError]") -> Manifest:
    def array(name: str, read: "Callable[[Any], Any]") -> Records:
        items = data.pop(name, [] if name == "variants" else None)  # few modules have variants
        if not isinstance(items, list):
            raise ValueError(f".{name} is missing" if items is None else f".{name} is {items!r}")
        return Records(items, read, f".{name}", refuse)

    def read_kernel(item: "Any") -> Kernel:
        indices = item.get("parameters") if isinstance(item, dict) else None
        if not isinstance(indices, list):
            return records.reader(Kernel)(item)  # type: ignore[no-any-return] # raises what is wrong
        for index in indices:
            _check(type(index) is int and 0 <= index < len(parameters), ".parameters", indices)
        kernel: Kernel = records.reader(Kernel)({**item, "parameters": []})
        kernel = kernel._replace(parameters=tuple(parameters[index] for index in indices))
        _check(0 <= kernel.unit < len(units), ".unit", kernel.unit)
        _check_kernel(kernel)
        return kernel

    def read_symbol(item: "Any") -> Symbol:
        symbol: Symbol = records.reader(Symbol)(item)
        _check(0 <= symbol.unit < len(units), ".unit", symbol.unit)
        _check(fields.array_size(symbol.type) in (None, symbol.size), ".type", symbol.type)
        return symbol

    units = array("units", _read_unit)
    parameters = array("parameters", _read_parameter)
    kernels, symbols = array("kernels", read_kernel), array("symbols", read_symbol)
    variants = array("variants", _read_variants)
    arrays: dict[str, Any] = {name: [] for name in ("units", "kernels", "symbols", "variants")}
    manifest: Manifest = records.reader(Manifest)(data | arrays)
    return manifest._replace(units=units, kernels=kernels, symbols=symbols, variants=variants)


_RESERVED = (FILE_NAME, "__init__.py", "__init__.pyi")
_ALIGNED = ("pointer", "integer", "unsigned", "float")
_SIZES: Mapping[ParameterKind, tuple[int, ...]] = {  # in bytes, for kinds with fixed sizes
    "pointer": (8,),
    "bool": (1,),
    "float": (2, 4, 8),
    **dict.fromkeys(("integer", "unsigned", "enum"), (1, 2, 4, 8, 16)),
}


def _check(is_valid: object, path: str, value: object) -> None:
    if not is_valid:
        raise ValueError(f"{path} is {value!r}")


def _read_parameter(item: "Any") -> Parameter:
    parameter: Parameter = records.reader(Parameter)(item)
    kind, size, offset = parameter.kind, parameter.size, parameter.offset
    _check(size in _SIZES.get(kind, (size,)), ".size", size)
    _check(offset <= LARGEST_PARAMETERS - size, ".offset", offset)
    _check(kind not in _ALIGNED or offset % min(size, 8) == 0, ".offset", offset)
    _check(fields.is_kind(parameter.type, kind, size), ".kind", kind)
    _check(kind != "pointer" or parameter.element, ".element", parameter.element)
    return parameter


def _check_kernel(kernel: Kernel) -> None:
    """Check the positions of all parameters, and the sources of hidden parameters."""
    end = 0
    for number, each in enumerate(kernel.parameters):
        _check(end <= each.offset, f".parameters[{number}].offset", each.offset)
        end = each.offset + each.size
    names = [parameter.name for parameter in kernel.parameters]
    _check(len(set(names)) == len(names), ".parameters", names)
    if not kernel.hidden:
        return
    _check(sum(kernel.sizes) <= LARGEST_PARAMETERS, ".hidden", kernel.sizes)
    arrays = {parameter.name for parameter in kernel.parameters if parameter.element}
    last = -1
    for number, hidden in enumerate(kernel.hidden):
        path = f".hidden[{number}]"
        _check(last < hidden.position < len(kernel.sizes), f"{path}.position", hidden.position)
        _check(hidden.is_derivable(arrays), f"{path}.source", hidden.source)
        last = hidden.position


def _read_unit(item: "Any") -> Unit:
    unit: Unit = records.reader(Unit)(item)
    _check(unit.sources, ".sources", [])
    architectures = [image.architecture for image in unit.images]
    _check(len(set(architectures)) == len(architectures), ".images", architectures)
    for number, image in enumerate(unit.images):
        path = f".images[{number}]"
        prefix = image.architecture.partition("_")[0]
        _check(PREFIXES[image.kind] == prefix, f"{path}.kind", image.kind)
        _check((image.kind == "tileir") == bool(image.version), f"{path}.version", image.version)
        _check(image.file.casefold() not in _RESERVED, f"{path}.file", image.file)
    return unit


def _read_variants(item: "Any") -> Variants:
    variants: Variants = records.reader(Variants)(item)
    _check(variants.candidates, ".candidates", [])
    for number, candidate in enumerate(variants.candidates):
        is_last = candidate is variants.candidates[-1]
        is_valid = (candidate.when is None) == is_last or (is_last and variants.specialised)
        _check(is_valid, f".candidates[{number}].when", candidate.when)
    return variants
