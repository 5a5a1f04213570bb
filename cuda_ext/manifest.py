"""The manifest: what a build writes about a module and the runtime reads.

It is a JSON file beside the images of a module, and here plain frozen data: what was compiled, by which
compiler, from which content, with which kernels and symbols, and in which file each image lies. :func:`loads`
checks every field, so that a damaged file raises one :class:`ManifestError` that names the field.
"""

# Annotations are evaluated here: named tuples of texts are slower to create, and to derive readers from.

import posixpath
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from cuda_ext.errors import ManifestError
from cuda_ext.records import parse_json, reader

__all__ = [
    "FILE_NAME",
    "PREFIXES",
    "SCHEMA",
    "Candidate",
    "Compression",
    "Image",
    "ImageKind",
    "InnerPath",
    "Kernel",
    "Manifest",
    "Options",
    "Parameter",
    "ParameterKind",
    "Source",
    "Symbol",
    "Unit",
    "Variants",
    "Version",
    "dumps",
    "is_inner_path",
    "loads",
    "split_architecture",
]

SCHEMA = 4  # 1 had no variants, 2 no options of each source, 3 no alignments
FILE_NAME = "manifest.json"

Compression = Literal["none", "speed", "balance", "size"]
ImageKind = Literal["cubin", "ptx", "ltoir"]
ParameterKind = Literal["pointer", "integer", "unsigned", "float", "bool", "enum", "struct", "opaque"]

# How architectures begin, for each kind of image.
PREFIXES: Mapping[ImageKind, str] = {"cubin": "sm", "ptx": "compute", "ltoir": "lto"}
LARGEST_PARAMETERS = 32_764  # the most bytes that CUDA passes to a kernel


def split_architecture(text: str) -> tuple[str, int, str] | None:
    """Split ``sm_90a`` into prefix, number and suffix; ``None`` if it is no architecture."""
    prefix, _, target = text.partition("_")
    suffix = target[-1:] if target.endswith(("a", "f")) else ""
    digits = target.removesuffix(suffix)
    if prefix not in PREFIXES.values() or not 2 <= len(digits) <= 4 or not _is_number(digits):
        return None
    return prefix, int(digits), suffix


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _is_version(text: str) -> bool:
    numbers = text.split(".")
    return len(numbers) == 2 and all(map(_is_number, numbers))


def _is_file_name(text: str) -> bool:
    return is_inner_path(text) and "/" not in text


def is_inner_path(text: str) -> bool:
    is_inside = text.split("/")[0] not in ("", ".", "..") and "\\" not in text
    return is_inside and text == posixpath.normpath(text)


def _is_digest(text: str) -> bool:
    return len(text) == 64 and not text.strip("0123456789abcdef")


# The types of fields with bounds: a range, or a function that is true for valid values.
Text = Annotated[str, len]
Size = Annotated[int, range(1 << 40)]
Alignment = Annotated[int, (0, *(1 << exponent for exponent in range(17)))]
Digest = Annotated[str, _is_digest]
InnerPath = Annotated[str, is_inner_path]
Version = Annotated[str, _is_version]


class Parameter(NamedTuple):
    """One kernel parameter, or the element of a symbol, as the compiler sees it.

    ``type`` is the C++ type without typedefs. ``size`` and ``offset`` are in bytes. The offset is that of the
    newest cubin; others may place parameters elsewhere that are aligned to more than 16 bytes. A launch needs
    none. ``element`` is the type that a pointer points to, and ``const`` its qualifier. ``alignment`` is
    that of a structure, 0 if it is not known. ``opaque`` parameters come from images without type
    information: they accept any value of that size.
    """

    name: str
    type: Text
    kind: ParameterKind
    size: Annotated[int, range(1, LARGEST_PARAMETERS + 1)]
    offset: Annotated[int, range(LARGEST_PARAMETERS)]
    element: str | None = None
    const: bool = False
    alignment: Alignment = 0

    @property
    def is_integer(self) -> bool:
        """Whether conditions of variants may compare its values."""
        return self.kind in ("integer", "unsigned") and self.size <= 8

    def __str__(self) -> str:
        start = self.type.find("(*")
        if start < 0 or self.type.count("<", 0, start) > self.type.count(">", 0, start):
            return f"{self.type} {self.name}"
        # A pointer to a function or an array has its name behind the stars and qualifiers.
        end = self.type.index(")", start)
        space = " " if self.type[end - 1].isalpha() else ""
        return f"{self.type[:end]}{space}{self.name}{self.type[end:]}"


class Kernel(NamedTuple):
    """A kernel or one instantiation of a kernel template.

    ``expression`` is its C++ name expression (``ns::axpy<float>``), ``lowered`` its lowered name in all
    images whose ``names`` do not map it to another.
    """

    expression: Text
    lowered: Text
    unit: int
    parameters: tuple[Parameter, ...]

    @property
    def signature(self) -> str:
        """The kernel's declaration in C++."""
        return f"{self.expression}({', '.join(map(str, self.parameters))})"


class Symbol(NamedTuple):
    """A ``__constant__`` or ``__device__`` variable; ``alignment`` is 0 if it is not known."""

    name: Text
    lowered: Text
    unit: int
    space: Literal["constant", "device"]
    type: Text
    size: Size
    alignment: Alignment = 0


class Candidate(NamedTuple):
    """One kernel of several variants, and the condition for launching it; the default has none."""

    kernel: str
    when: str | None = None


class Variants(NamedTuple):
    """Kernels under one name, of which a launch takes the first whose condition holds.

    The last candidate is the default. All have the same parameters. Conditions are text here;
    :mod:`~cuda_ext.formats.variant_conditions` parses them.
    """

    name: Text
    candidates: tuple[Candidate, ...]

    def __str__(self) -> str:
        *conditional, default = self.candidates
        return ", ".join([*(f"{c.kernel} if {c.when}" for c in conditional), f"else {default.kernel}"])


class Image(NamedTuple):
    """One translation unit (or linked module) compiled for one architecture.

    ``file`` lies beside the manifest, and ``sha256`` is its digest; images of one fatbin share both.
    ``size`` is that of the image before compression. ``names`` maps name expressions to lowered names that
    differ from those of the kernel or symbol; ``None`` means that the image does not contain it.
    """

    architecture: Annotated[str, split_architecture]
    kind: ImageKind
    file: Annotated[str, _is_file_name]
    size: Size
    sha256: Digest
    names: Mapping[Text, Text | None] = {}


class Options(NamedTuple):
    """How a translation unit is compiled, independent of the compiler.

    ``raw`` options are passed on unchanged, after all others. ``pre_include`` names headers that are
    included before the first line. ``relocatable`` requests device code that is linked later.
    """

    std: str = "c++17"
    define: Mapping[str, str] = {}
    raw: tuple[str, ...] = ()
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

    name: InnerPath
    sha256: Annotated[str, lambda text: not text or _is_digest(text)] = ""
    options: Options = Options()
    instantiate: tuple[str, ...] = ()


class Unit(NamedTuple):
    """One translation unit, or one linked module with all its sources."""

    sources: tuple[Source, ...]
    images: tuple[Image, ...]

    @property
    def title(self) -> str:
        """The names of its sources."""
        return ", ".join(source.name for source in self.sources)

    def arrived_as(self, *suffixes: str) -> bool:
        """Whether it is a single file of such a suffix, which was packaged without compiling a source."""
        return len(self.sources) == 1 and self.sources[0].name.endswith(suffixes)


class Manifest(NamedTuple):
    """All that is known about a module without a driver.

    ``compiler`` is ``nvrtc`` or ``nvcc``; ``compress`` is the compression of the fatbins. ``embedded`` maps
    embedded device sources and headers to their SHA-256; it is ``None`` for a module with ``jit = false``.
    """

    schema: Annotated[int, range(1, SCHEMA + 1)]
    module: Text
    compiler: Annotated[str, ("nvrtc", "nvcc")]
    version: Version
    compress: Compression
    units: tuple[Unit, ...]
    kernels: tuple[Kernel, ...]
    symbols: tuple[Symbol, ...]
    embedded: Mapping[InnerPath, Digest] | None = None
    variants: tuple[Variants, ...] = ()

    @property
    def files(self) -> dict[str, str]:
        """The SHA-256 of each file beside the manifest: images, and embedded sources."""
        images = {image.file: image.sha256 for unit in self.units for image in unit.images}
        return images | {f"sources/{name}": digest for name, digest in (self.embedded or {}).items()}

    def lowered_name(self, entity: Kernel | Symbol, image: Image) -> str | None:
        """The lowered name of `entity` in `image`; ``None`` if the image does not contain it."""
        name = entity.expression if isinstance(entity, Kernel) else entity.name
        return image.names.get(name, entity.lowered)


def dumps(manifest: Manifest) -> str:
    """Write `manifest` as JSON. Equal manifests give equal texts."""
    import json  # slow to import, and not needed to read

    # A line for each unit, kernel and symbol, of which there may be tens of thousands.
    texts = []
    for name, value in manifest._asdict().items():
        if isinstance(value, tuple):
            lines = (json.dumps(_plain(item), ensure_ascii=False) for item in value)
            text = "[" + ",".join(f"\n  {line}" for line in lines) + "]"
        else:
            text = json.dumps(value, ensure_ascii=False)
        texts.append(f'"{name}": {text}')
    return "{\n " + ",\n ".join(texts) + "\n}\n"


def _plain(value: Any) -> Any:
    """Convert a record above to JSON's types, without fields that have their default."""
    if not isinstance(value, tuple):
        return value
    kind: Any = type(value)
    if kind is tuple:
        return [_plain(item) for item in value]
    fields, defaults = zip(kind._fields, value, strict=True), kind._field_defaults
    return {name: _plain(each) for name, each in fields if name not in defaults or each != defaults[name]}


def loads(text: str | bytes, origin: str) -> Manifest:
    """Read what :func:`dumps` wrote. `origin` names the file in errors.

    Raises :class:`ManifestError` if the text is not a manifest of a schema that this version reads.
    """
    remedy = "reinstall the package that holds it"
    try:
        data = parse_json(text)
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
    if schema in (1, 2):
        _convert_sources(data)
    try:
        manifest: Manifest = reader(Manifest)(data, "manifest")
        _check_references(manifest)
    except ValueError as error:
        raise ManifestError(f"damaged manifest: {error}", where=origin, remedy=remedy) from None
    return manifest


def _convert_sources(data: dict[str, Any]) -> None:
    """Convert `data` of schema 1 or 2, whose sources are names, to the present schema."""
    for unit in data["units"] if isinstance(data.get("units"), list) else ():
        if isinstance(unit, dict) and isinstance(unit.get("sources"), list):
            unit["sources"] = [{"name": name} for name in unit["sources"]]
            unit.pop("sha256", None)
            unit.pop("options", None)


# The sizes in bytes of the kinds of parameters that do not have any.
_INTEGERS = (1, 2, 4, 8, 16)
_SIZES: Mapping[ParameterKind, tuple[int, ...]] = {
    "pointer": (8,),
    "bool": (1,),
    "float": (2, 4, 8),
    **dict.fromkeys(("integer", "unsigned", "enum"), _INTEGERS),
}


def _check_references(manifest: Manifest) -> None:
    """Check what concerns several fields: references, names that occur once, and the places of parameters."""

    def check(is_valid: object, path: str, value: object) -> None:
        if not is_valid:
            raise ValueError(f"manifest{path} is {value!r}")

    def check_distinct(names: Sequence[object], path: str) -> None:
        if len(set(names)) < len(names):
            (name, _), *_ = Counter(names).most_common(1)
            raise ValueError(f"manifest{path} has {name!r} twice")

    for i, symbol in enumerate(manifest.symbols):
        check(0 <= symbol.unit < len(manifest.units), f".symbols[{i}].unit", symbol.unit)
    for i, kernel in enumerate(manifest.kernels):
        check(0 <= kernel.unit < len(manifest.units), f".kernels[{i}].unit", kernel.unit)
        end = 0
        for j, each in enumerate(kernel.parameters):
            path = f".kernels[{i}].parameters[{j}]"
            check(each.size in _SIZES.get(each.kind, (each.size,)), f"{path}.size", each.size)
            check(end <= each.offset <= LARGEST_PARAMETERS - each.size, f"{path}.offset", each.offset)
            end = each.offset + each.size
    for i, unit in enumerate(manifest.units):
        check(unit.sources, f".units[{i}].sources", [])
        check_distinct([image.architecture for image in unit.images], f".units[{i}].images")
        for j, image in enumerate(unit.images):
            prefix = image.architecture.partition("_")[0]
            check(PREFIXES[image.kind] == prefix, f".units[{i}].images[{j}].kind", image.kind)
    check_distinct([kernel.expression for kernel in manifest.kernels], ".kernels")
    check_distinct([(symbol.unit, symbol.name) for symbol in manifest.symbols], ".symbols")
    check_distinct([variants.name for variants in manifest.variants], ".variants")
    expressions = {kernel.expression for kernel in manifest.kernels}
    for i, variants in enumerate(manifest.variants):
        path = f".variants[{i}].candidates"
        check(variants.candidates, path, [])
        for j, candidate in enumerate(variants.candidates):
            check(candidate.kernel in expressions, f"{path}[{j}].kernel", candidate.kernel)
            is_default = candidate is variants.candidates[-1]
            check((candidate.when is None) == is_default, f"{path}[{j}].when", candidate.when)
