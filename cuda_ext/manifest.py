"""The manifest: what a build writes about a module and the runtime reads.

It is a JSON file beside the images of a module, and here plain frozen data: what was compiled, by which
compiler, from which content, with which kernels and symbols, and in which file each image lies. :func:`loads`
checks every field, so that a damaged file raises one :class:`ManifestError` that names the field.
"""

# Annotations are evaluated here: named tuples of texts are slower to create, and to derive readers from.

import posixpath
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Literal, NamedTuple

from cuda_ext.errors import ManifestError

__all__ = [
    "FILE_NAME",
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

SCHEMA = 4  # 1 had no variants, 2 no options of each source, 3 no alignments
FILE_NAME = "manifest.json"

Compression = Literal["none", "speed", "balance", "size"]
ImageKind = Literal["cubin", "ptx", "ltoir"]
ParameterKind = Literal["pointer", "integer", "unsigned", "float", "bool", "enum", "struct", "opaque"]


class Parameter(NamedTuple):
    """One kernel parameter, or the element of a symbol, as the compiler sees it.

    ``type`` is the C++ type without typedefs. ``size`` and ``offset`` are in bytes. The offset is that of the
    newest cubin; others may place parameters elsewhere that are aligned to more than 16 bytes. A launch needs
    none. ``element`` is the type that a pointer points to, and ``const`` its qualifier. ``alignment`` is
    that of a structure, 0 if it is not known. ``opaque`` parameters come from images without type
    information: they accept any value of that size.
    """

    name: str
    type: str
    kind: ParameterKind
    size: int
    offset: int
    element: str | None = None
    const: bool = False
    alignment: int = 0

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

    expression: str
    lowered: str
    unit: int
    parameters: tuple[Parameter, ...]

    @property
    def signature(self) -> str:
        """The kernel's declaration in C++."""
        return f"{self.expression}({', '.join(map(str, self.parameters))})"


class Symbol(NamedTuple):
    """A ``__constant__`` or ``__device__`` variable; ``alignment`` is 0 if it is not known."""

    name: str
    lowered: str
    unit: int
    space: Literal["constant", "device"]
    type: str
    size: int
    alignment: int = 0


class Candidate(NamedTuple):
    """One kernel of several variants, and the condition for launching it; the default has none."""

    kernel: str
    when: str | None = None


class Variants(NamedTuple):
    """Kernels under one name, of which a launch takes the first whose condition holds.

    The last candidate is the default. All have the same parameters. Conditions are text here;
    :mod:`~cuda_ext.formats.variant_conditions` parses them.
    """

    name: str
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

    architecture: str
    kind: ImageKind
    file: str
    size: int
    sha256: str
    names: Mapping[str, str | None] = {}


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

    name: str
    sha256: str = ""
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

    schema: int
    module: str
    compiler: str
    version: str
    compress: str
    units: tuple[Unit, ...]
    kernels: tuple[Kernel, ...]
    symbols: tuple[Symbol, ...]
    embedded: Mapping[str, str] | None = None
    variants: tuple[Variants, ...] = ()

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
        data = _parse(text)
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
        manifest: Manifest = _reader(Manifest)(data, "manifest")
        _check_references(manifest)
    except ValueError as error:
        raise ManifestError(f"damaged manifest: {error}", where=origin, remedy=remedy) from None
    return manifest


class _Parsing:
    """The settings of ``json.loads``, for its scanner in C."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float


def _parse(text: str | bytes) -> Any:
    """``json.loads(text)``, without the import of :mod:`json`, which takes longer than all else here."""
    try:
        from _json import make_scanner

        decoded = text if isinstance(text, str) else text.decode()
        data, end = make_scanner(_Parsing)(decoded, 0)  # type: ignore[arg-type]
        if not decoded[end:].strip(" \t\r\n"):
            return data
    except (ImportError, AttributeError, TypeError, ValueError, RecursionError, StopIteration):
        pass  # another Python, white space in front, or no JSON
    import json

    return json.loads(text)


def split_architecture(text: str) -> tuple[str, int, str] | None:
    """Split ``sm_90a`` into prefix, number and suffix; ``None`` if it is no architecture."""
    prefix, _, target = text.partition("_")
    suffix = target[-1:] if target.endswith(("a", "f")) else ""
    digits = target.removesuffix(suffix)
    if prefix not in ("sm", "compute", "lto") or not 2 <= len(digits) <= 4 or not _is_number(digits):
        return None
    return prefix, int(digits), suffix


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _convert_sources(data: dict[str, Any]) -> None:
    """Convert `data` of schema 1 or 2, whose sources are names, to the present schema."""
    for unit in data["units"] if isinstance(data.get("units"), list) else ():
        if isinstance(unit, dict) and isinstance(unit.get("sources"), list):
            unit["sources"] = [{"name": name} for name in unit["sources"]]
            unit.pop("sha256", None)
            unit.pop("options", None)


def _check_references(manifest: Manifest) -> None:
    """Check what the types do not express: references within the manifest, and the form of names."""

    def check(is_valid: object, path: str, value: object) -> None:
        if not is_valid:
            raise ValueError(f"manifest{path} is {value!r}")

    check(1 <= manifest.schema <= SCHEMA, ".schema", manifest.schema)
    numbers = manifest.version.split(".")
    check(len(numbers) == 2 and all(map(_is_number, numbers)), ".version", manifest.version)
    for i, kernel in enumerate(manifest.kernels):
        check(0 <= kernel.unit < len(manifest.units), f".kernels[{i}].unit", kernel.unit)
    for i, symbol in enumerate(manifest.symbols):
        check(0 <= symbol.unit < len(manifest.units), f".symbols[{i}].unit", symbol.unit)
    for i, unit in enumerate(manifest.units):
        for j, image in enumerate(unit.images):
            path, file = f".units[{i}].images[{j}]", image.file
            check(file == posixpath.basename(file) and file not in ("", ".", ".."), f"{path}.file", file)
            check(split_architecture(image.architecture), f"{path}.architecture", image.architecture)
    expressions = {kernel.expression for kernel in manifest.kernels}
    for i, variants in enumerate(manifest.variants):
        path = f".variants[{i}].candidates"
        check(variants.candidates, path, [])
        for j, candidate in enumerate(variants.candidates):
            check(candidate.kernel in expressions, f"{path}[{j}].kernel", candidate.kernel)
            is_default = candidate is variants.candidates[-1]
            check((candidate.when is None) == is_default, f"{path}[{j}].when", candidate.when)


# Checks and converts a JSON value. Its path is for the :class:`ValueError` that refuses it.
_Reader = Callable[[Any, str], Any]


@cache
def _reader(kind: Any) -> _Reader:
    """Make the reader of values of the annotation `kind`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if hasattr(kind, "_fields"):
        fields = {name: _reader(of) for name, of in kind.__annotations__.items()}
        return partial(_read_record, kind, fields)
    if origin is types.UnionType:  # X | None
        inner = _reader(arguments[0])
        return lambda data, path: None if data is None else inner(data, path)
    if origin is tuple:
        return partial(_read_array, _reader(arguments[0]))
    if origin is Mapping:
        return partial(_read_mapping, _reader(arguments[1]))
    if origin is Literal:
        return partial(_read_valid, arguments.__contains__)
    return partial(_read_valid, lambda data: type(data) is kind)


def _read_valid(is_valid: Callable[[Any], bool], data: Any, path: str) -> Any:
    if is_valid(data):
        return data
    raise ValueError(f"{path} is {data!r}")


def _read_record(kind: Any, fields: Mapping[str, _Reader], data: Any, path: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{path} is not an object")
    if unknown := data.keys() - fields.keys():
        raise ValueError(f"{path} has unknown fields {sorted(unknown)}")
    for name in fields:
        if name not in data and name not in kind._field_defaults:
            raise ValueError(f"{path}.{name} is missing")
    return kind(**{name: fields[name](value, f"{path}.{name}") for name, value in data.items()})


def _read_array(read: _Reader, data: Any, path: str) -> tuple[Any, ...]:
    items = _read_valid(lambda data: isinstance(data, list), data, path)
    return tuple(read(item, f"{path}[{i}]") for i, item in enumerate(items))


def _read_mapping(read: _Reader, data: Any, path: str) -> dict[str, Any]:
    items = _read_valid(lambda data: isinstance(data, dict), data, path)
    return {key: read(value, f"{path}[{key!r}]") for key, value in items.items()}
