"""Pack a library for shipping: its files, and the part of the manifest that describes them.

Everything that was requested must be there: every instantiation is checked in each image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cuda_ext.compiler.module_plan import LibraryPlan
from cuda_ext.compiler.products import CompiledImage, Library, Signatures, differs
from cuda_ext.compiler.signatures.spellings import describe_spellings
from cuda_ext.compiler.spelled_settings import spell_setting
from cuda_ext.errors import BuildError
from cuda_ext.facts.codec import sha256
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Image, Unit
from cuda_ext.facts.structures import Structure
from cuda_ext.facts.symbols import Symbol
from cuda_ext.formats.definitions import read_code
from cuda_ext.formats.spelling import normalise
from cuda_ext.formats.tile_ir import read_tile_ir

# For each image, the lowered names by name expression; compilers may mangle a name differently in images.
_NameMaps = list[dict[str, str]]


def pack(
    plan: LibraryPlan,
    images: Sequence[CompiledImage],
    signatures: Signatures,
    files: Sequence[tuple[str, bytes]],
    log: Sequence[str],
) -> Library:
    """Describe the library of `plan`. `files` has the name and content of the file of each image.

    Raises :class:`~cuda_ext.errors.BuildError` if a requested instantiation is missing.
    """
    where = plan.units[0].name
    _check_instantiations(images, where)
    kernels, kernel_names = _kernels(plan, images, signatures.kernels)
    symbols, symbol_names, ambiguous = _symbols(images, signatures.symbols, where)
    expected = {k.expression: k.lowered for k in kernels} | {s.name: s.lowered for s in symbols}
    described = []
    for image, (file, content), *names in zip(images, files, kernel_names, symbol_names, strict=True):
        here = names[0] | names[1]
        described.append(
            Image(
                architecture=str(image.architecture),
                file=file,
                size=len(image.data),
                sha256=sha256(content).hex(),
                names={e: here.get(e) for e, lowered in expected.items() if here.get(e) != lowered}
                if image.architecture.kind != "ltoir"
                else {},
                launches={e: image.launches[n] for e, n in names[0].items() if n in image.launches},
                version=read_tile_ir(image.data).version if image.architecture.kind == "tileir" else None,
            )
        )
    warnings = (
        f"{plan.stem}: several units define a {name!r} of their own, which cannot be selected by name"
        for name in ambiguous
    )
    requested = {e: lowered for image in images for e, lowered in image.names.items()}
    meanings = describe_spellings(kernels, requested, signatures.meanings)
    unit = Unit(tuple(unit.described for unit in plan.units), tuple(described), meanings)
    code = tuple(map(_digests_of_code, images, kernel_names))
    return Library(
        unit,
        kernels,
        symbols,
        dict(files),
        (*log, *warnings),
        code,
        signatures.conditions,
        tuple(_structures(kernels, signatures.structures)),
        tuple(signatures.constants.values()),
    )


def _structures(kernels: Iterable[Kernel], structures: Mapping[str, Structure]) -> Iterator[Structure]:
    """List the structures that `kernels` take, and the structures that these contain, by name."""
    needed: set[str] = set()
    pending = {parameter.type for kernel in kernels for parameter in kernel.parameters}
    while pending := (pending & structures.keys()) - needed:
        needed |= pending
        pending = {field.type for name in pending for field in structures[name].fields}
    return (structures[name]._replace(units=(0,)) for name in sorted(needed))


def _digests_of_code(image: CompiledImage, names: Mapping[str, str]) -> dict[str, str]:
    """Digest the instructions of the kernels `names` in `image`, by expression; LTO-IR has none."""
    code = read_code(image.architecture.kind, image.data)
    return {e: sha256(code[n]).hex() for e, n in names.items() if n in code}


def _kernels(
    plan: LibraryPlan, images: Sequence[CompiledImage], signatures: Mapping[str, Kernel]
) -> tuple[tuple[Kernel, ...], _NameMaps]:
    """List the kernels of `images`, under the first expressions that authors requested, or the compiler's."""
    requested = [e for unit in reversed(plan.units) for e in reversed(unit.instantiate)]
    entries = [_known_names(images, image.entries, signatures) for image in images]
    overloaded = {
        name
        for lowered_names in entries
        for name, count in Counter(signatures[lowered].expression for lowered in lowered_names).items()
        if count > 1
    }
    kernels: dict[str, Kernel] = {}
    name_maps: _NameMaps = []
    for image, lowered_names in zip(images, entries, strict=True):
        expressions = {lowered: _expression(signatures[lowered], overloaded) for lowered in lowered_names}
        expressions |= {
            image.names[e]: normalise(e) for e in requested if image.names.get(e, "") in expressions
        }
        names = {expression: lowered for lowered, expression in expressions.items()}
        for expression, lowered in names.items():
            kernel = signatures[lowered]._replace(expression=expression)
            if kernels.setdefault(expression, kernel).parameters != kernel.parameters:
                raise differs(f"kernel {expression!r}", "parameters", image, plan.units[0].name)
        name_maps.append(names)
    return tuple(sorted(kernels.values(), key=lambda k: k.expression)), name_maps


def _expression(kernel: Kernel, overloaded: set[str]) -> str:
    if kernel.expression not in overloaded:
        return kernel.expression
    return f"{kernel.expression}({', '.join(p.type for p in kernel.parameters)})"


def _symbols(
    images: Sequence[CompiledImage], signatures: Mapping[str, Symbol], where: str
) -> tuple[tuple[Symbol, ...], _NameMaps, list[str]]:
    """List the variables of `images` whose names are unique, and the names that several share."""
    symbols: dict[str, Symbol] = {}
    name_maps: _NameMaps = []
    ambiguous: set[str] = set()
    for image in images:
        names: dict[str, str] = {}
        for lowered in _known_names(images, image.variables, signatures):
            symbol = signatures[lowered]
            name = symbol.name
            if names.setdefault(name, lowered) != lowered:
                ambiguous.add(name)
            if symbols.setdefault(name, symbol).size != symbol.size:
                raise differs(f"variable {name!r}", "size", image, where)
        name_maps.append(names)
    unique = sorted((s for name, s in symbols.items() if name not in ambiguous), key=lambda s: s.name)
    return tuple(unique), name_maps, sorted(ambiguous)


def _known_names(
    images: Sequence[CompiledImage], lowered_names: Sequence[str], signatures: Mapping[str, object]
) -> Sequence[str]:
    """Select the `lowered_names` that have a signature; if there is only LTO-IR, all that have one."""
    if all(i.architecture.kind == "ltoir" for i in images):
        return tuple(signatures)
    return tuple(lowered for lowered in lowered_names if lowered in signatures)


def _check_instantiations(images: Sequence[CompiledImage], where: str) -> None:
    for image in images:
        if image.architecture.kind == "ltoir":
            continue
        for expression, lowered in image.names.items():
            if lowered not in image.entries and lowered not in image.variables:
                raise BuildError(
                    f"instantiation {expression!r} is missing from the image for {image.architecture}",
                    where=where,
                    remedy="define it for all architectures, or take it out of "
                    f"{spell_setting('instantiate')}",
                )
