"""The manifest: what a build writes about a module and the runtime reads.

It is a JSON file beside the images of a module, and here plain frozen data: what was compiled, by which
compiler, from which content, with which kernels and symbols, and in which file each image lies. :func:`loads`
checks every field, so that a damaged file raises one :class:`ManifestError` that names the field.
"""

from __future__ import annotations

import dataclasses
import json
import posixpath
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Literal

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
]

SCHEMA = 3  # 1 had no variants, 2 had no options of each source
FILE_NAME = "manifest.json"

Compression = Literal["none", "speed", "balance", "size"]
ImageKind = Literal["cubin", "ptx", "ltoir"]
ParameterKind = Literal["pointer", "integer", "unsigned", "float", "bool", "enum", "struct", "opaque"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter, or the element of a symbol, as the compiler sees it.

    ``type`` is the C++ type without typedefs. ``size`` and ``offset`` are in bytes; the offset is PTX's, and
    cubins shift parameters that are aligned to more than 16 bytes. ``element`` is the type that a pointer
    points to, and ``const`` its qualifier. ``opaque`` parameters come from images without type information:
    they accept any value of that size.
    """

    name: str
    type: str
    kind: ParameterKind
    size: int
    offset: int
    element: str | None = None
    const: bool = False

    @property
    def is_integer(self) -> bool:
        """Whether conditions of variants may compare its values."""
        return self.kind in ("integer", "unsigned") and self.size <= 8

    def __str__(self) -> str:
        if "(*)" in self.type:
            return self.type.replace("(*)", f"(*{self.name})", 1)
        return f"{self.type} {self.name}"


@dataclass(frozen=True, slots=True)
class Kernel:
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


@dataclass(frozen=True, slots=True)
class Symbol:
    """A ``__constant__`` or ``__device__`` variable; ``size`` is in bytes."""

    name: str
    lowered: str
    unit: int
    space: Literal["constant", "device"]
    type: str
    size: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One kernel of several variants, and the condition for launching it; the default has none."""

    kernel: str
    when: str | None = None


@dataclass(frozen=True, slots=True)
class Variants:
    """Kernels under one name, of which a launch takes the first whose condition holds.

    The last candidate is the default. All have the same parameters. Conditions are text here;
    :mod:`~cuda_ext.formats.variant_conditions` parses them.
    """

    name: str
    candidates: tuple[Candidate, ...]

    def __str__(self) -> str:
        *conditional, default = self.candidates
        return ", ".join([*(f"{c.kernel} if {c.when}" for c in conditional), f"else {default.kernel}"])


@dataclass(frozen=True, slots=True)
class Image:
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
    names: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """How a translation unit is compiled, independent of the compiler.

    ``raw`` options are passed on unchanged, after all others. ``pre_include`` names headers that are
    included before the first line. ``relocatable`` requests device code that is linked later.
    """

    std: str = "c++17"
    define: dict[str, str] = field(default_factory=dict, hash=False)
    raw: tuple[str, ...] = ()
    pre_include: tuple[str, ...] = ()
    fast_math: bool = False
    relaxed_constexpr: bool = False
    relocatable: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """A compiled source: its path within the project, its options, and the requested name expressions.

    ``sha256`` is the digest of its text and of all headers of the project that it can include, with their
    names.
    """

    name: str
    sha256: str = ""
    options: Options = field(default_factory=Options)
    instantiate: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unit:
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


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that is known about a module without a driver.

    ``compiler`` and ``version`` are those of the compiler (``nvrtc``, ``13.5``); ``compress`` is the
    compression of the fatbins. ``embedded`` maps the embedded device sources and headers to their
    SHA-256, and is ``None`` for a module that was built with ``jit = false``.
    """

    schema: int
    module: str
    compiler: str
    version: str
    compress: str
    units: tuple[Unit, ...]
    kernels: tuple[Kernel, ...]
    symbols: tuple[Symbol, ...]
    embedded: dict[str, str] | None = None
    variants: tuple[Variants, ...] = ()

    def lowered_name(self, entity: Kernel | Symbol, image: Image) -> str | None:
        """The lowered name of `entity` in `image`; ``None`` if the image does not contain it."""
        name = entity.expression if isinstance(entity, Kernel) else entity.name
        return image.names.get(name, entity.lowered)


def dumps(manifest: Manifest) -> str:
    """Write `manifest` as JSON. Equal manifests give equal texts."""
    # A line for each unit, kernel and symbol, of which there may be tens of thousands.
    texts = []
    for each in dataclasses.fields(manifest):
        value = getattr(manifest, each.name)
        if isinstance(value, tuple):
            lines = (json.dumps(_plain(item), ensure_ascii=False) for item in value)
            text = "[" + ",".join(f"\n  {line}" for line in lines) + "]"
        else:
            text = json.dumps(value, ensure_ascii=False)
        texts.append(f'"{each.name}": {text}')
    return "{\n " + ",\n ".join(texts) + "\n}\n"


def _plain(value: Any) -> Any:
    """Convert a dataclass above to JSON's types; fields that have their default are left out."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    kind: Any = type(value)
    defaults = _defaults(kind).items()
    return {name: _plain(v) for name, default in defaults if (v := getattr(value, name)) != default}


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    """The fields of the dataclass `kind` with their defaults; ``MISSING`` where there is none."""
    fields = dataclasses.fields(kind)
    return {
        f.name: f.default if f.default_factory is dataclasses.MISSING else f.default_factory() for f in fields
    }


def loads(text: str | bytes, origin: str) -> Manifest:
    """Read what :func:`dumps` wrote. `origin` names the file in errors.

    Raises :class:`ManifestError` if the text is not a manifest of a schema that this version reads.
    """
    remedy = "reinstall the package that holds it"
    try:
        data = json.loads(text)
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
        manifest: Manifest = _reader(Manifest)(data)
        _check_references(manifest)
    except _InvalidError as error:
        raise ManifestError(f"damaged manifest: manifest{error}", where=origin, remedy=remedy) from None
    return manifest


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
            raise _InvalidError(f" is {value!r}", path)

    check(1 <= manifest.schema <= SCHEMA, ".schema", manifest.schema)
    check(re.fullmatch(r"[0-9]+\.[0-9]+", manifest.version), ".version", manifest.version)
    for i, kernel in enumerate(manifest.kernels):
        check(0 <= kernel.unit < len(manifest.units), f".kernels[{i}].unit", kernel.unit)
    for i, symbol in enumerate(manifest.symbols):
        check(0 <= symbol.unit < len(manifest.units), f".symbols[{i}].unit", symbol.unit)
    for i, unit in enumerate(manifest.units):
        for j, image in enumerate(unit.images):
            path, file = f".units[{i}].images[{j}]", image.file
            check(file == posixpath.basename(file) and file not in ("", ".", ".."), f"{path}.file", file)
            is_architecture = re.fullmatch(r"(sm|compute|lto)_[0-9]{2,4}[af]?", image.architecture)
            check(is_architecture, f"{path}.architecture", image.architecture)
    expressions = {kernel.expression for kernel in manifest.kernels}
    for i, variants in enumerate(manifest.variants):
        path = f".variants[{i}].candidates"
        check(variants.candidates, path, [])
        for j, candidate in enumerate(variants.candidates):
            check(candidate.kernel in expressions, f"{path}[{j}].kernel", candidate.kernel)
            is_default = candidate is variants.candidates[-1]
            check((candidate.when is None) == is_default, f"{path}[{j}].when", candidate.when)


class _InvalidError(Exception):
    """A JSON value that its field does not allow; the path to it grows while the error propagates."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.path = path

    def __str__(self) -> str:
        return self.path + super().__str__()


_Reader = Callable[[Any], Any]


@cache
def _reader(kind: Any) -> _Reader:
    """Make the function that checks a JSON value against the annotation `kind` and converts it."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        fields = {name: _reader(of) for name, of in typing.get_type_hints(kind).items()}
        return partial(_read_record, kind, fields)
    if origin is types.UnionType:  # X | None
        inner = _reader(arguments[0])
        return lambda data: None if data is None else inner(data)
    if origin is tuple:
        return partial(_read_array, _reader(arguments[0]))
    if origin is dict:
        return partial(_read_mapping, _reader(arguments[1]))
    if origin is Literal:
        return partial(_check, arguments.__contains__)
    return partial(_check, lambda data: type(data) is kind)


def _check(is_valid: Callable[[Any], bool], data: Any) -> Any:
    if is_valid(data):
        return data
    raise _InvalidError(f" is {data!r}")


def _read_record(kind: Any, fields: dict[str, _Reader], data: Any) -> Any:
    if not isinstance(data, dict):
        raise _InvalidError(" is not an object")
    if unknown := data.keys() - fields.keys():
        raise _InvalidError(f" has unknown fields {sorted(unknown)}")
    for name, default in _defaults(kind).items():
        if default is dataclasses.MISSING and name not in data:
            raise _InvalidError(" is missing", f".{name}")
    return kind(**{name: _read_part(f".{name}", fields[name], value) for name, value in data.items()})


def _read_array(read: _Reader, data: Any) -> tuple[Any, ...]:
    _check(lambda data: isinstance(data, list), data)
    return tuple(_read_part(i, read, item) for i, item in enumerate(data))


def _read_mapping(read: _Reader, data: Any) -> dict[str, Any]:
    _check(lambda data: isinstance(data, dict), data)
    return {key: _read_part([key], read, value) for key, value in data.items()}


def _read_part(place: str | int | list[str], read: _Reader, data: Any) -> Any:
    """Read the field, item or value at `place`."""
    try:
        return read(data)
    except _InvalidError as error:
        error.path = (f"[{place}]" if isinstance(place, int) else str(place)) + error.path
        raise
