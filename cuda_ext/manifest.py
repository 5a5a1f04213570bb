"""The data model that a build writes and the runtime reads.

A manifest is the JSON file beside a module's images. It is plain frozen data: what was compiled, by
which compiler, from which content, with which kernels and symbols, and where each image lies.
:func:`loads` checks every field, so that a damaged file is one :class:`ManifestError` and never a
``KeyError`` three calls later.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import posixpath
import re
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

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
    "plain",
    "unit_from",
]

SCHEMA = 3  # 1 had no variants, and 2 could not tell how each source was compiled
FILE_NAME = "manifest.json"

Compression = Literal["none", "speed", "balance", "size"]
ImageKind = Literal["cubin", "ptx", "ltoir"]
ParameterKind = Literal["pointer", "integer", "unsigned", "float", "bool", "enum", "struct", "opaque"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter, or the element of a symbol, as the compiler sees it.

    ``type`` is the C++ type without typedefs. ``size`` and ``offset`` count bytes; the offset is PTX's, and
    cubins shift what is aligned to more than 16 bytes. ``element`` is a pointer's target type and ``const``
    says whether the target is. ``opaque`` parameters come from
    images without type information: any value of that size is taken.
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
        """Whether its values are integers that conditions may compare."""
        return self.kind in ("integer", "unsigned") and self.size <= 8

    def __str__(self) -> str:
        if "(*)" in self.type:
            return self.type.replace("(*)", f"(*{self.name})", 1)
        return f"{self.type} {self.name}"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel or one instantiation of a kernel template.

    ``expression`` is its C++ name expression (``ns::axpy<float>``), ``lowered`` the mangled symbol in
    the images that do not name another one.
    """

    expression: str
    lowered: str
    unit: int
    parameters: tuple[Parameter, ...]

    @property
    def signature(self) -> str:
        """The kernel's declaration, as a C++ programmer would write it."""
        return f"{self.expression}({', '.join(map(str, self.parameters))})"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A ``__constant__`` or ``__device__`` variable. ``size`` counts bytes."""

    name: str
    lowered: str
    unit: int
    space: Literal["constant", "device"]
    type: str
    size: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of several kernels, and the condition on which it is taken; the default has none."""

    kernel: str
    when: str | None = None


@dataclass(frozen=True, slots=True)
class Variants:
    """A name that stands for the first of its candidates that can be taken. The last one is the default.

    All candidates have the same parameters. Conditions are text here;
    :mod:`~cuda_ext.formats.variant_conditions` reads them.
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
    ``size`` counts the image's own bytes before compression. ``names`` maps name expressions of kernels and
    symbols to lowered names where these differ from theirs; what is mapped to ``None`` is not in this image.
    """

    architecture: str
    kind: ImageKind
    file: str
    size: int
    sha256: str
    names: dict[str, str | None] = field(default_factory=dict)


_OF_FILES = re.compile(
    "-I|-isystem|-include|-optf|--(system-)?include|--options-file|--(pre|use|create)-|-pch"
)


@dataclass(frozen=True)
class Options:
    """How a translation unit is compiled, in words that mean the same to every compiler.

    ``raw`` options are passed on as they are, after all others. ``pre_include`` names headers that are
    included before the first line. ``relocatable`` asks for device code that is linked later.
    """

    std: str = "c++17"
    define: dict[str, str] = field(default_factory=dict, hash=False)
    raw: tuple[str, ...] = ()
    pre_include: tuple[str, ...] = ()
    fast_math: bool = False
    relaxed_constexpr: bool = False
    relocatable: bool = False

    def definitions(self) -> tuple[str, ...]:
        """``define`` as every compiler spells it."""
        return tuple(
            f"-D{name}={value}" if value else f"-D{name}" for name, value in sorted(self.define.items())
        )

    def include_directories(self) -> tuple[Path, ...]:
        """The directories, outside the project, that raw options tell the compiler to search."""
        named = []
        for option, following in itertools.pairwise((*self.raw, "")):
            if match := re.fullmatch(r"(?:-I|--include-path|-isystem|--system-include)=?(.*)", option, re.S):
                named.append(Path(match[1] or following))
        return tuple(named)

    @property
    def outside(self) -> str:
        """The first option that names a file or a directory, which other machines may have otherwise."""
        return next(filter(_OF_FILES.match, self.raw), "")

    def spelled(self) -> tuple[str, ...]:
        """The options as both compilers spell them, sorted where order has no meaning."""
        return (
            f"--std={self.std}",
            *self.definitions(),
            *(["--use_fast_math"] if self.fast_math else []),
            *(f"--pre-include={name}" for name in self.pre_include),
            *self.raw,
        )


@dataclass(frozen=True, slots=True)
class Source:
    """What was compiled: a source by its path within the project, how, and for which name expressions.

    ``sha256`` is the digest of its text and of all headers of the project that it can reach, names included.
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
        """Whether it was no source that anybody compiled here, but a file of such a kind."""
        return len(self.sources) == 1 and self.sources[0].name.endswith(suffixes)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that is known about one module without a driver.

    ``compiler`` and ``version`` name what made the images (``nvrtc``, ``13.5``); ``compress`` is the
    compression of the fatbins. ``embedded`` maps the embedded device sources and headers to their
    SHA-256, and is ``None`` where the module was built with ``jit = false``.
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
        """What `entity` is called in `image`, or ``None`` where the image lacks it."""
        name = entity.expression if isinstance(entity, Kernel) else entity.name
        return image.names.get(name, entity.lowered)


def dumps(manifest: Manifest) -> str:
    """Write `manifest` as JSON. The same manifest gives the same text."""
    # A line for each unit, kernel and symbol: there may be tens of thousands.
    texts = []
    for each in dataclasses.fields(manifest):
        value = getattr(manifest, each.name)
        if isinstance(value, tuple):
            lines = (json.dumps(plain(item), ensure_ascii=False) for item in value)
            text = "[" + ",".join(f"\n  {line}" for line in lines) + "]"
        else:
            text = json.dumps(value, ensure_ascii=False)
        texts.append(f'"{each.name}": {text}')
    return "{\n " + ",\n ".join(texts) + "\n}\n"


def plain(record: Any) -> dict[str, Any]:
    """What JSON shows of one of the dataclasses above: the fields that are not as they are by default."""
    cls: Any = type(record)
    fields = _fields(cls)
    values = {name: getattr(record, name) for name in fields}
    return {name: _plain(value) for name, value in values.items() if value != fields[name].default}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return plain(value) if dataclasses.is_dataclass(value) else value


def loads(text: str | bytes, origin: str) -> Manifest:
    """Read what :func:`dumps` wrote. `origin` names the file in errors.

    Raises :class:`ManifestError` if the text is not a manifest of a schema that this version reads.
    """
    remedy = "reinstall the package that holds it"
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{origin}: not a manifest: {error}; {remedy}") from None
    if not isinstance(data, dict):
        raise ManifestError(f"{origin}: not a manifest: expected a JSON object; {remedy}")
    schema = data.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise ManifestError(
            f"{origin}: written in manifest schema {schema}, and this cuda-ext reads up to {SCHEMA}; "
            "upgrade cuda-ext"
        )
    try:
        if schema in (1, 2):
            _tell_sources(data)
        manifest: Manifest = _record(Manifest, data, "manifest")
        _check_references(manifest)
        return manifest
    except _Mismatch as error:
        raise ManifestError(f"{origin}: damaged manifest: {error}; {remedy}") from None


class _Mismatch(Exception):
    pass


def _tell_sources(data: dict[str, Any]) -> None:
    """Make `data` of an earlier schema, which knew the names of sources only, one of the present schema."""
    for unit in data["units"] if isinstance(data.get("units"), list) else ():
        if isinstance(unit, dict) and isinstance(unit.get("sources"), list):
            unit["sources"] = [{"name": name} for name in unit["sources"]]
            unit.pop("sha256", None)
            unit.pop("options", None)


def _check_references(manifest: Manifest) -> None:
    """What types do not tell: that units exist, and that files lie beside the manifest."""
    if not 1 <= manifest.schema <= SCHEMA:
        raise _Mismatch(f"manifest.schema is {manifest.schema}")
    if not re.fullmatch(r"[0-9]+\.[0-9]+", manifest.version):
        raise _Mismatch(f"manifest.version is {manifest.version!r}")
    everything: dict[str, Sequence[Kernel | Symbol]] = {
        "kernels": manifest.kernels,
        "symbols": manifest.symbols,
    }
    for where, entities in everything.items():
        for i, entity in enumerate(entities):
            if not 0 <= entity.unit < len(manifest.units):
                raise _Mismatch(f"manifest.{where}[{i}].unit is {entity.unit}")
    for i, unit in enumerate(manifest.units):
        for j, image in enumerate(unit.images):
            where = f"manifest.units[{i}].images[{j}]"
            if image.file != posixpath.basename(image.file) or image.file in ("", ".", ".."):
                raise _Mismatch(f"{where}.file is {image.file!r}")
            if not re.fullmatch(r"(sm|compute|lto)_[0-9]{2,4}[af]?", image.architecture):
                raise _Mismatch(f"{where}.architecture is {image.architecture!r}")
    for i, variants in enumerate(manifest.variants):
        _check_variants(variants, manifest.kernels, f"manifest.variants[{i}]")


def _check_variants(variants: Variants, kernels: Sequence[Kernel], where: str) -> None:
    if not variants.candidates:
        raise _Mismatch(f"{where}.candidates is empty")
    known = {kernel.expression for kernel in kernels}
    for i, candidate in enumerate(variants.candidates):
        here = f"{where}.candidates[{i}]"
        if candidate.kernel not in known:
            raise _Mismatch(f"{here}.kernel is {candidate.kernel!r}")
        is_default = candidate is variants.candidates[-1]
        if (candidate.when is None) != is_default:
            raise _Mismatch(f"{here}.when is {candidate.when!r}")


def unit_from(data: object) -> Unit:
    """The unit that :func:`plain` made `data` of. Raises :class:`ManifestError` for anything else."""
    try:
        unit: Unit = _record(Unit, data, "unit")
    except _Mismatch as error:
        raise ManifestError(str(error)) from None
    return unit


_T = TypeVar("_T")


class _Field(typing.NamedTuple):
    """A field's type, and its default; ``MISSING`` where it has none."""

    kind: Any
    default: Any


@cache
def _fields(cls: Any) -> dict[str, _Field]:
    hints = typing.get_type_hints(cls)
    return {
        f.name: _Field(
            hints[f.name],
            f.default if f.default_factory is dataclasses.MISSING else f.default_factory(),
        )
        for f in dataclasses.fields(cls)
    }


def _record(cls: Callable[..., _T], data: object, where: str) -> _T:
    if not isinstance(data, dict):
        raise _Mismatch(f"{where} is not an object")
    fields = _fields(cls)
    if unknown := data.keys() - fields.keys():
        raise _Mismatch(f"{where} has unknown fields {sorted(unknown)}")
    values = {}
    for name, (kind, default) in fields.items():
        if name in data:
            values[name] = _value(kind, data[name], f"{where}.{name}")
        elif default is dataclasses.MISSING:
            raise _Mismatch(f"{where}.{name} is missing")
    return cls(**values)


def _value(kind: Any, data: object, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record(kind, data, where)
    if origin is types.UnionType:
        if data is None and types.NoneType in arguments:
            return None
        (inner,) = (a for a in arguments if a is not types.NoneType)
        return _value(inner, data, where)
    if origin is Literal:
        if data in arguments:
            return data
    elif origin is tuple:
        if isinstance(data, list):
            return tuple(_value(arguments[0], v, f"{where}[{i}]") for i, v in enumerate(data))
    elif origin is dict:
        if isinstance(data, dict):
            return {k: _value(arguments[1], v, f"{where}[{k!r}]") for k, v in data.items()}
    elif isinstance(data, kind) and not (kind is int and isinstance(data, bool)):
        return data
    raise _Mismatch(f"{where} is {data!r}")
