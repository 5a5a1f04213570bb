"""The manifest: what a build writes about a module and the runtime reads.

It is a JSON file beside the images of a module, and here plain frozen data: what was compiled, by which
compiler, from which content, with which kernels and symbols, and in which file each image lies. :func:`loads`
checks every field, so that a damaged file raises one :class:`ManifestError` that names the field.
"""

# Annotations of records are evaluated.

from cuda_ext import fields, records
from cuda_ext.errors import ManifestError
from cuda_ext.fields import (
    LARGEST_PARAMETERS,
    PREFIXES,
    FixedLaunch,
    HiddenParameter,
    ImageKind,
    split_architecture,
)
from cuda_ext.records import Annotated, Literal, Mapping, NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "FILE_NAME",
    "PREFIXES",
    "SCHEMA",
    "Candidate",
    "Compression",
    "Image",
    "ImageKind",
    "Kernel",
    "Manifest",
    "Options",
    "Parameter",
    "ParameterKind",
    "Source",
    "Symbol",
    "Unit",
    "Variants",
    "dumps",
    "loads",
    "split_architecture",
]

SCHEMA = 1
FILE_NAME = "manifest.json"

Compression = Literal["none", "speed", "balance", "size"]
ParameterKind = Literal["pointer", "integer", "unsigned", "float", "bool", "enum", "struct", "opaque"]


class Parameter(NamedTuple):
    """One kernel parameter, or the element of a symbol, as the compiler sees it.

    ``type`` is the C++ type without typedefs. ``size`` and ``offset`` are in bytes. The offset is that of the
    newest cubin; others may place parameters elsewhere that are aligned to more than 16 bytes. A launch needs
    none. ``element`` is the type that a pointer or a tensor map leads to, and ``const`` its qualifier.
    ``alignment`` is that of a structure, 0 if it is not known. ``opaque`` parameters come from images
    without type information: they accept any value of that size.
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
        """Whether conditions of variants may compare its values."""
        return self.kind in ("integer", "unsigned") and self.size <= 8

    def __str__(self) -> str:
        start = self.type.find("(*")
        end = self.type.find(")", start)
        if start < 0 or end < 0 or self.type.count("<", 0, start) > self.type.count(">", 0, start):
            return f"{self.type} {self.name}"
        # A pointer to a function or an array has its name behind the stars and qualifiers.
        space = " " if self.type[end - 1].isalpha() else ""
        return f"{self.type[:end]}{space}{self.name}{self.type[end:]}"


class Kernel(NamedTuple):
    """A kernel or one instantiation of a kernel template.

    ``expression`` is its C++ name expression (``ns::axpy<float>``), ``lowered`` its lowered name in all
    images whose ``names`` do not map it to another. ``parameters`` are the arguments of a call; ``hidden``
    are those that lie before, between and behind them. ``constants`` are values of parameters that it was
    compiled for, as Python spells them. A call may give them by name to choose the kernel, or where they are
    in ``order``, the arguments of the function. Those in ``configuration`` differ among candidates.
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
        return hash((self.expression, self.parameters))  # a mapping has none

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of all parameters in bytes, in their order."""
        sizes = [parameter.size for parameter in self.parameters]
        for parameter in self.hidden:
            sizes.insert(parameter.position, parameter.size)
        return tuple(sizes)

    @property
    def signature(self) -> str:
        """The kernel's declaration in C++, and the condition of a specialised one behind it."""
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
    """One kernel of several variants, and the condition for launching it; the default has none."""

    kernel: str
    when: fields.Lines | None = None


class Variants(NamedTuple):
    """Kernels under one name, of which a launch takes the first whose condition holds.

    The last candidate is the default. All have the same parameters. Conditions are text here;
    :mod:`~cuda_ext.formats.variant_conditions` parses them.

    The candidates of ``specialised`` variants are one kernel, compiled on conditions, which have no names of
    their own. Not all have a default.
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

    ``file`` lies beside the manifest, and ``sha256`` is its digest; images of one fatbin share both.
    ``size`` is that of the image before compression. ``names`` maps name expressions to lowered names that
    differ from those of the kernel or symbol; ``None`` means that the image does not contain it.
    ``launches`` has the kernels, by name expression, whose launch the image fixes; ``version`` is Tile IR's.
    """

    architecture: Annotated[str, split_architecture]
    kind: ImageKind
    file: fields.FileName
    size: fields.Size
    sha256: fields.Digest
    names: Mapping[fields.Text, fields.Text | None] = {}
    launches: Mapping[fields.Text, FixedLaunch] = {}
    version: fields.Version | None = None


class Options(NamedTuple):
    """How a translation unit is compiled, independent of the compiler.

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
        return hash((self.std, self.raw, self.pre_include))  # a mapping has none


class Source(NamedTuple):
    """A compiled source: its path within the project, its options, and the requested name expressions.

    ``sha256`` is the digest of its text, and of the project's headers that it can include with their names.
    """

    name: fields.InnerPath
    sha256: Annotated[str, lambda text: not text or fields.is_digest(text)] = ""
    options: Options = Options()
    instantiate: tuple[fields.Lines, ...] = ()


class Unit(NamedTuple):
    """One translation unit, or one linked module with all its sources."""

    sources: tuple[Source, ...]
    images: tuple[Image, ...]

    @property
    def title(self) -> str:
        """The names of its sources."""
        return ", ".join(source.name for source in self.sources)

    def arrived_as(self, *suffixes: str) -> bool:
        """Whether it is files of such a suffix, which were packaged without compiling a source."""
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
    units: tuple[Unit, ...]
    kernels: tuple[Kernel, ...]
    symbols: tuple[Symbol, ...]
    embedded: Mapping[fields.InnerPath, fields.Digest] | None = None
    variants: tuple[Variants, ...] = ()

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
            if variants.specialised:
                specialised = [kernels.pop(candidate.kernel) for candidate in variants.candidates]
                kernels[variants.name] = specialised[-1]._replace(expression=variants.name)
        return tuple(kernels.values())

    @property
    def fixed_kernels(self) -> frozenset[str]:
        """The names of the kernels whose launches images fix, so that a call gives the grid alone."""
        launches = (image.launches for unit in self.units for image in unit.images)
        return frozenset(name.partition(" if ")[0] for fixed in launches for name in fixed)

    def lowered_name(self, entity: Kernel | Symbol, image: Image) -> str | None:
        """The lowered name of `entity` in `image`; ``None`` if the image does not contain it."""
        name = entity.expression if isinstance(entity, Kernel) else entity.name
        return image.names.get(name, entity.lowered)


def dumps(manifest: Manifest) -> str:
    """Write `manifest` as JSON. Equal manifests give equal texts."""
    return records.write_json(manifest)


def loads(text: str | bytes, origin: str) -> Manifest:
    """Read what :func:`dumps` wrote. `origin` names the file in errors.

    Raises :class:`ManifestError` if the text is not a manifest of a schema that this version reads.
    """
    remedy = "reinstall the package that holds it"
    try:
        data = records.parse_json(text)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"not a manifest: {error}", where=origin, remedy=remedy) from None
    if not isinstance(data, dict):
        raise ManifestError("not a manifest: expected a JSON object", where=origin, remedy=remedy)
    schema = data.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise ManifestError(
            f"written in manifest schema {schema}, and this cuda-ext reads up to {SCHEMA}",
            where=origin,
            remedy="upgrade cuda-ext",
        )
    try:
        manifest: Manifest = records.reader(Manifest)(data)
        _check_references(manifest)
    except ValueError as error:
        raise ManifestError(f"damaged manifest: manifest{error}", where=origin, remedy=remedy) from None
    return manifest


_RESERVED = (FILE_NAME, "__init__.py", "__init__.pyi")
_ALIGNED = ("pointer", "integer", "unsigned", "float")
_SIZES: Mapping[ParameterKind, tuple[int, ...]] = {  # in bytes, of kinds that do not have any
    "pointer": (8,),
    "bool": (1,),
    "float": (2, 4, 8),
    **dict.fromkeys(("integer", "unsigned", "enum"), (1, 2, 4, 8, 16)),
}


def _check_references(manifest: Manifest) -> None:
    """Check what concerns several fields: references, names that occur once, and the places of parameters."""

    def check(is_valid: object, path: str, value: object) -> None:
        if not is_valid:
            raise ValueError(f"{path} is {value!r}")

    def check_distinct(names: "Sequence[object]", path: str) -> None:
        if len(set(names)) < len(names):
            from collections import Counter  # only for damaged manifests

            (name, _), *_ = Counter(names).most_common(1)
            raise ValueError(f"{path} has {name!r} twice")

    for i, symbol in enumerate(manifest.symbols):
        check(0 <= symbol.unit < len(manifest.units), f".symbols[{i}].unit", symbol.unit)
        is_sized = fields.array_size(symbol.type) in (None, symbol.size)
        check(is_sized, f".symbols[{i}].type", symbol.type)
    for i, kernel in enumerate(manifest.kernels):
        check(0 <= kernel.unit < len(manifest.units), f".kernels[{i}].unit", kernel.unit)
        end = 0
        for j, each in enumerate(kernel.parameters):
            path = f".kernels[{i}].parameters[{j}]"
            check(each.size in _SIZES.get(each.kind, (each.size,)), f"{path}.size", each.size)
            check(end <= each.offset <= LARGEST_PARAMETERS - each.size, f"{path}.offset", each.offset)
            is_aligned = each.kind not in _ALIGNED or each.offset % min(each.size, 8) == 0
            check(is_aligned, f"{path}.offset", each.offset)
            check(fields.is_kind(each.type, each.kind, each.size), f"{path}.kind", each.kind)
            check(each.kind != "pointer" or each.element, f"{path}.element", each.element)
            end = each.offset + each.size
        check_distinct([parameter.name for parameter in kernel.parameters], f".kernels[{i}].parameters")
        check(sum(kernel.sizes) <= LARGEST_PARAMETERS, f".kernels[{i}].hidden", kernel.sizes)
        arrays = {parameter.name for parameter in kernel.parameters if parameter.element}
        last = -1
        for j, hidden in enumerate(kernel.hidden):
            path = f".kernels[{i}].hidden[{j}]"
            check(last < hidden.position < len(kernel.sizes), f"{path}.position", hidden.position)
            check(hidden.is_derivable(arrays), f"{path}.source", hidden.source)
            last = hidden.position
    scratch = {k.expression for k in manifest.kernels if any(h.source == "scratch" for h in k.hidden)}
    for i, unit in enumerate(manifest.units):
        check(unit.sources, f".units[{i}].sources", [])
        check_distinct([image.architecture for image in unit.images], f".units[{i}].images")
        for j, image in enumerate(unit.images):
            prefix = image.architecture.partition("_")[0]
            check(PREFIXES[image.kind] == prefix, f".units[{i}].images[{j}].kind", image.kind)
            is_known = (image.kind == "tileir") == bool(image.version)
            check(is_known, f".units[{i}].images[{j}].version", image.version)
            check(image.file.casefold() not in _RESERVED, f".units[{i}].images[{j}].file", image.file)
            for name, launch in image.launches.items():
                path = f".units[{i}].images[{j}].launches[{name!r}]"
                check(not launch.scratch or name in scratch, f"{path}.scratch", launch.scratch)
    check_distinct([kernel.expression for kernel in manifest.kernels], ".kernels")
    lowered = {(kernel.unit, kernel.lowered): kernel.sizes for kernel in manifest.kernels}
    for i, kernel in enumerate(manifest.kernels):  # two may be one, by its name and that of a typedef
        check(kernel.sizes == lowered[kernel.unit, kernel.lowered], f".kernels[{i}].lowered", kernel.lowered)
    for i, symbol in enumerate(manifest.symbols):
        check((symbol.unit, symbol.lowered) not in lowered, f".symbols[{i}].lowered", symbol.lowered)
    check_distinct([(symbol.unit, symbol.name) for symbol in manifest.symbols], ".symbols")
    check_distinct([variants.name for variants in manifest.variants], ".variants")
    check_distinct([c.kernel for v in manifest.variants if v.specialised for c in v.candidates], ".variants")
    sizes = {kernel.expression: [p.size for p in kernel.parameters] for kernel in manifest.kernels}
    for i, variants in enumerate(manifest.variants):
        path = f".variants[{i}].candidates"
        check(variants.candidates, path, [])
        for j, candidate in enumerate(variants.candidates):
            is_alike = sizes.get(candidate.kernel) == sizes.get(variants.candidates[0].kernel)
            check(candidate.kernel in sizes and is_alike, f"{path}[{j}].kernel", candidate.kernel)
            is_last = candidate is variants.candidates[-1]
            is_valid = (candidate.when is None) == is_last or (is_last and variants.specialised)
            check(is_valid, f"{path}[{j}].when", candidate.when)
