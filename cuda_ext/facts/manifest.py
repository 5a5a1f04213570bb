"""The manifest: what a build writes about a module and the runtime reads.

It is a JSON file beside the images of a module, and here plain frozen data: the compiler, the sources, the
kernels and symbols, and the file of each image.

A module may have thousands of kernels, of which a program launches few. So each item of an array is one line,
which is parsed when it is first used. Records that most launches do without are imported then, too. Kernels
share parameters: the file has one array of all parameters, and each kernel has indices into it. A damaged
record raises a :class:`ManifestError`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

from cuda_ext.errors import ManifestError
from cuda_ext.facts.architecture import Architecture, ImageKind
from cuda_ext.facts.codec import Reader, parse_json, plain, reader
from cuda_ext.facts.kernels import Kernel, Parameter

if TYPE_CHECKING:
    import cuda_ext.facts.candidates
    import cuda_ext.facts.constants
    import cuda_ext.facts.launches
    import cuda_ext.facts.sources
    import cuda_ext.facts.structures
    import cuda_ext.facts.symbols

SCHEMA = 1
FILE_NAME = "manifest.json"

Compression: TypeAlias = Literal["none", "speed", "balance", "size"]

_T = TypeVar("_T")
_ARRAYS = ("units", "kernels", "symbols", "variants", "structures", "constants", "parameters")
_OPTIONAL = ("variants", "structures", "constants")
_NOT_IN_NAMES = frozenset("/\\:\0")


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
    launches: Mapping[str, "cuda_ext.facts.launches.FixedLaunch"] = {}
    version: str | None = None

    @property
    def target(self) -> Architecture:
        """The architecture, with its parts."""
        return Architecture.parse(self.architecture)

    @property
    def kind(self) -> ImageKind:
        return self.target.kind


class Unit(NamedTuple):
    """One translation unit, or one linked module.

    ``meanings`` maps names in template arguments. ``compiler`` is the front-end that compiled it, with its
    version, such as ``Triton 3.9.0``; it is empty if the compiler of the module did.
    """

    sources: Sequence["cuda_ext.facts.sources.Source"]
    images: tuple[Image, ...]
    meanings: Mapping[str, str] = {}
    compiler: str = ""

    @property
    def title(self) -> str:
        """The names of its sources."""
        return ", ".join(names_of(self.sources))

    def arrived_as(self, *suffixes: str) -> bool:
        """Return True if it consists of files with such a suffix, packaged without compiling a source."""
        return all(name.endswith(suffixes) for name in names_of(self.sources))


class Manifest(NamedTuple):
    """All that is known about a module without a driver.

    ``compiler`` is ``nvrtc`` or ``nvcc``, or the front-end of all units; ``compress`` is the compression of
    the fatbins. ``embedded`` maps embedded device sources and headers to their SHA-256; it is ``None`` for a
    module with ``jit = false``.
    """

    schema: int
    module: str
    compiler: str
    version: str
    compress: Compression
    units: Sequence[Unit]
    kernels: Sequence[Kernel]
    symbols: Sequence["cuda_ext.facts.symbols.Symbol"]
    embedded: Mapping[str, str] | None = None
    variants: Sequence["cuda_ext.facts.candidates.Variants"] = ()
    structures: Sequence["cuda_ext.facts.structures.Structure"] = ()
    constants: Sequence["cuda_ext.facts.constants.Constant"] = ()

    @property
    def files(self) -> dict[str, str]:
        """The SHA-256 of each file beside the manifest: images, and embedded sources."""
        images = {image.file: image.sha256 for unit in self.units for image in unit.images}
        return images | {f"sources/{name}": digest for name, digest in (self.embedded or {}).items()}

    @property
    def compilers(self) -> str:
        """The compilers of its units with their versions, each once."""
        own = f"{self.compiler} {self.version}"
        return ", ".join(dict.fromkeys(unit.compiler or own for unit in self.units)) or own

    @property
    def named_kernels(self) -> tuple[Kernel, ...]:
        """The kernels that have names of their own, with specialised variants as one kernel."""
        kernels = {kernel.expression: kernel for kernel in self.kernels}
        for variants in filter(lambda each: each.is_one_kernel, self.variants):
            own = [kernels.pop(name, None) for name in {c.kernel: None for c in variants.candidates}]
            if own and own[-1]:  # damaged manifests may lack it
                kernels[variants.name] = own[-1]._replace(expression=variants.name)
        return tuple(kernels.values())

    def fixes(self, kernel: Kernel) -> bool:
        """Return True if images fix the launches of `kernel`, so that a call gives only the grid."""
        name = kernel.expression.partition(" if ")[0]
        images = self.units[kernel.unit].images
        return any(name == each.partition(" if ")[0] for image in images for each in image.launches)

    def lowered_name(self, entity: "Kernel | cuda_ext.facts.symbols.Symbol", image: Image) -> str | None:
        """Return the lowered name of `entity` in `image`; ``None`` if the image does not contain it."""
        name = entity.expression if isinstance(entity, Kernel) else entity.name
        return image.names.get(name, entity.lowered)


class Records(Sequence[_T]):
    """The records of an array, each with a field `name`. `read` makes a record when it is first used.

    An item is JSON, or a line of text in which it is. `kind` says in errors what the items are; `refuse` gets
    what is wrong.
    """

    def __init__(
        self, items: list[Any], kind: str, name: str, read: Reader, refuse: Callable[[str], Exception]
    ) -> None:
        self._items = items
        self._kind = kind
        self._name = name
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
                data = parse_json(item) if isinstance(item, str) else item
                item = self._items[index] = self._read(data, iter(()))
            except (ValueError, TypeError, LookupError, RecursionError) as error:
                raise self._refuse(f"{self._kind} {index}: {error}") from None
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
        start = f'{{"{self._name}": "'
        names: list[Any] = []
        for index, item in enumerate(self._items):
            if isinstance(item, str) and item.startswith(start):
                name = item[len(start) : item.find('"', len(start))]
                names.append(self[index][0] if "\\" in name else name)
            elif isinstance(item, dict):
                names.append(item.get(self._name))
            else:
                names.append(self[index][0])
        if {*map(type, names)} - {str}:
            raise self._refuse(f"a {self._kind} has no name")
        return names


def names_of(records: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return the names of `records`, their first fields."""
    return records.names() if isinstance(records, Records) else [record[0] for record in records]


def dumps(manifest: Manifest) -> str:
    """Write `manifest` as JSON, with each item of its arrays on its own line.

    Equal manifests give equal texts.
    """
    import json  # slow to import, and not needed to read

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
        data = _parse(text if isinstance(text, str) else text.decode())
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


def _parse(text: str) -> Any:
    """Parse the JSON `text`, except items of arrays as :func:`dumps` writes them. These remain text."""
    items: list[str] = []
    lines = []
    for line in text.split("\n"):
        end = line.rfind("}") + 1
        if end and line.startswith("  {"):
            lines.append(f"{len(items)}{line[end:]}")
            items.append(line[2:end])
        else:
            lines.append(line)
    try:
        data = parse_json("\n".join(lines))
        for name in _ARRAYS if items else ():
            data[name] = [items[number] for number in data[name]]
    except (ValueError, TypeError, LookupError):  # another program has written it
        return parse_json(text)
    return data


def _read_manifest(data: dict[str, Any], refuse: Callable[[str], ManifestError]) -> Manifest:
    def array(data: dict[str, Any], name: str, kind: str, read: Reader, field: str = "name") -> Records[Any]:
        items = data.get(name, [] if name in _OPTIONAL else None)
        if not isinstance(items, list):
            raise ValueError(f"{name} is {items!r:.40}")
        return Records(items, kind, field, read, refuse)

    def read_unit(item: Any, contents: Iterator[bytes | None]) -> Unit:
        unit: Unit = reader(Unit)({**item, "sources": []}, contents)
        _check_images(unit)
        sources = array(item, "sources", "Source", _read_source)
        if not sources:
            raise ValueError("it has no source")
        return unit._replace(sources=sources)

    def read_kernel(item: Any, contents: Iterator[bytes | None]) -> Kernel:
        kernel: Kernel = reader(Kernel)({**item, "parameters": []}, contents)
        kernel = kernel._replace(parameters=tuple(parameters[index] for index in item["parameters"]))
        check_unit(kernel)
        if not kernel.is_launchable:
            raise ValueError(f"{kernel.expression} has parameters that no launch can pass")
        return kernel

    def read_symbol(item: Any, contents: Iterator[bytes | None]) -> Any:
        from cuda_ext.facts.symbols import Symbol

        symbol: Symbol = reader(Symbol)(item, contents)
        check_unit(symbol)
        if not 0 <= symbol.size < 1 << 40:
            raise ValueError(f"{symbol.name} has {symbol.size} bytes")
        return symbol

    def check_unit(entity: "Kernel | cuda_ext.facts.symbols.Symbol") -> None:
        if not 0 <= entity.unit < len(units):
            raise ValueError(f"there is no unit {entity.unit}")

    units = array(data, "units", "Unit", read_unit)
    parameters = array(data, "parameters", "Parameter", reader(Parameter))
    kernels = array(data, "kernels", "Kernel", read_kernel, "expression")
    symbols = array(data, "symbols", "Symbol", read_symbol)
    variants = array(data, "variants", "Variants", _read_variants)
    structures = array(data, "structures", "Structure", _read_structure)
    constants = array(data, "constants", "Constant", _read_constant)
    rest = {name: [] if name in _ARRAYS else value for name, value in data.items() if name != "parameters"}
    manifest: Manifest = reader(Manifest)(rest, iter(()))
    _check_version(manifest.version)
    return manifest._replace(
        units=units,
        kernels=kernels,
        symbols=symbols,
        variants=variants,
        structures=structures,
        constants=constants,
    )


def _check_version(version: str) -> None:
    if not all(number.isdecimal() and len(number) < 9 for number in version.split(".")):
        raise ValueError(f"the version is {version}")


def _check_images(unit: Unit) -> None:
    for image in unit.images:
        if not image.file.strip(".") or _NOT_IN_NAMES.intersection(image.file):
            raise ValueError(f"{image.file!r} is not a file of the package")
        if image.kind == "tileir":  # or it raises that the architecture is none
            _check_version(image.version or "")
        for name, launch in image.launches.items():
            if not launch.is_possible:
                raise ValueError(f"{name} has a launch that no GPU supports")


def _read_source(item: Any, contents: Iterator[bytes | None]) -> Any:
    from cuda_ext.facts.sources import Source  # a launch needs only their names

    return reader(Source)(item, contents)


def _read_structure(item: Any, contents: Iterator[bytes | None]) -> Any:
    from cuda_ext.facts.structures import Structure  # few kernels take structures

    structure: Structure = reader(Structure)(item, contents)
    if not structure.is_consistent:
        raise ValueError(f"the members of {structure.name} are not within it")
    return structure


def _read_constant(item: Any, contents: Iterator[bytes | None]) -> Any:
    from cuda_ext.facts.constants import Constant  # few modules have constants

    constant: Constant = reader(Constant)(item, contents)
    for architecture in ("", *constant.elsewhere):
        constant.number(architecture)  # or it raises that the value is none
    return constant


def _read_variants(item: Any, contents: Iterator[bytes | None]) -> Any:
    from cuda_ext.facts.candidates import Variants  # few modules have variants

    variants: Variants = reader(Variants)(item, contents)
    if not variants.candidates:
        raise ValueError(f"{variants.name} has no candidate")
    for term in (term for candidate in variants.candidates for term in candidate.when):
        if not term.is_comparable:
            raise ValueError(f"{term} has a number beyond 64 bits")
    return variants
