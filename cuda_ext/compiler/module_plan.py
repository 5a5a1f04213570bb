"""Modules: divide one into libraries, and assemble it from these with the manifest that describes it.

Everything is done in memory; nothing is read from or written to the project.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

from cuda_ext.compiler.candidates_of_kernels import find_candidates
from cuda_ext.compiler.products import Library
from cuda_ext.compiler.spelled_settings import spell_setting
from cuda_ext.compiler.translation_unit import PYTHON, TITLES, CompilerInfo, SourceKind, TranslationUnit
from cuda_ext.compiler.tuned_kernels import Landscape, Tuned, with_choices, with_measurements
from cuda_ext.errors import BuildError, CompilationError, join_names
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.codec import sha256
from cuda_ext.facts.constants import Constant
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.launches import FixedLaunch
from cuda_ext.facts.manifest import SCHEMA, Compression, Manifest, Unit
from cuda_ext.facts.structures import Structure
from cuda_ext.formats.spelling import base_name, plain_name
from cuda_ext.text.declarations import find_declarations, kernel_names
from cuda_ext.text.doc_comments import find_doc_comments, may_have_doc_comments
from cuda_ext.text.macros import definitions_in

Emit = Literal["fatbin", "cubin", "ptx", "ltoir"]


@dataclass(frozen=True, eq=False)
class LibraryPlan:
    """A library to load as one: a unit for its architectures or, with ``link``, several linked units.

    ``module`` is the name of its module. ``emit`` is the form of the output: a fatbin, or the single images
    as files. ``part`` is the number of the part, if the instantiations of the source are divided.
    ``file_stem`` replaces the source's basename in the names of its files. A ``trial`` may fail, and no
    package contains its output. If it ``may_be_empty``, it is left out if it has no kernel and another part
    of its source has one. ``launch`` is that of its only instantiation, a candidate.
    """

    module: str
    units: tuple[TranslationUnit, ...]
    architectures: tuple[Architecture, ...]
    compress: Compression = "size"
    emit: Emit = "fatbin"
    link: bool = False
    part: int | None = None
    file_stem: str = ""
    trial: bool = False
    may_be_empty: bool = False
    launch: FixedLaunch | None = None

    @property
    def stem(self) -> str:
        """The name of its files, without their suffix."""
        if self.link:
            return self.module.rpartition(".")[2]
        stem = self.file_stem or posixpath.splitext(posixpath.basename(self.units[0].name))[0]
        return stem if self.part is None else f"{stem}-{self.part}"

    @cached_property
    def targets(self) -> tuple[Architecture, ...]:
        """The architectures that sources are compiled for, one for each of ``architectures``."""
        if not self.link:
            return self.architectures
        through_lto = any(unit.kind == "ltoir" for unit in self.units)
        # PTX comes out of a link only when LTO-IR goes in, and LTO-IR is not linked with cubins.
        return tuple(a.as_kind("ltoir") if through_lto or a.kind == "ptx" else a for a in self.architectures)

    @cached_property
    def passes(self) -> tuple[tuple[Architecture, ...], ...]:
        """The targets of each pass of a compiler, which makes the cubin and the PTX of a target at once."""
        passes: dict[object, list[Architecture]] = {}
        for target in dict.fromkeys(self.targets):
            passes.setdefault(target if target.kind == "ltoir" else target.target, []).append(target)
        return tuple(map(tuple, passes.values()))

    @cached_property
    def newest(self) -> Architecture:
        """The newest target, for which signatures are read.

        For newer GPUs, the tool chain's headers have variables that they lack for older ones.
        """
        return max(self.targets, key=lambda target: (target.number, target.suffix))


@dataclass(frozen=True, slots=True)
class ModulePlan:
    """All that determines a module's bytes, besides the compiler.

    With ``embed`` the module contains the sources and headers of the units, and also ``headers``, by
    their canonical names. ``obstacles`` has the sources that cannot be compiled on demand, with the reason;
    they are not embedded.
    ``tuned`` are the instantiations among the candidates of kernels, ``notes`` are messages about them, and
    ``landscapes`` show what was measured.
    """

    name: str
    libraries: tuple[LibraryPlan, ...]
    compress: Compression = "size"
    embed: bool = True
    headers: Mapping[str, bytes] = field(default_factory=dict)
    obstacles: Mapping[str, str] = field(default_factory=dict)
    tuned: Tuned = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    landscapes: tuple[Landscape, ...] = ()

    @property
    def kind(self) -> SourceKind:
        """The kind of sources whose compiler is that of the module: a front-end if all are in Python."""
        kinds = [library.units[0].kind for library in self.libraries]
        return kinds[0] if kinds and all(kind in PYTHON for kind in kinds) else "cu"

    def embeds(self, library: LibraryPlan) -> bool:
        """Return True if the sources of `library` are embedded; a linked library embeds all or none."""
        return self.embed and not any(unit.name in self.obstacles for unit in library.units)


def file_stems(names: Iterable[str]) -> dict[str, str]:
    """Name the files of each source after its basename and, if sources share it, the directories above.

    No two names are equal, ignoring case, unless the paths differ only in their suffixes, or in a dot for a
    slash.

    >>> file_stems(["a/fwd.cu", "b/fwd.cu", "b/bwd.cu"])
    {'a/fwd.cu': 'a.fwd', 'b/fwd.cu': 'b.fwd', 'b/bwd.cu': 'bwd'}
    """
    parts = {name: posixpath.splitext(name)[0].split("/") for name in names}
    depths = dict.fromkeys(parts, 1)
    while True:
        stems = {name: ".".join(own[-depths[name] :]) for name, own in parts.items()}
        counts = Counter(stem.casefold() for stem in stems.values())
        shared = [n for n, stem in stems.items() if counts[stem.casefold()] > 1 and depths[n] < len(parts[n])]
        if not shared:
            return stems
        for name in shared:
            depths[name] += 1


class CompiledModule(NamedTuple):
    """A manifest, the files that it names, and the compiler's warnings.

    ``comments`` are the comments above kernels in the sources, by the names of the kernels.
    """

    manifest: Manifest
    files: Mapping[str, bytes]
    log: tuple[str, ...]
    comments: Mapping[str, str]


def assemble(
    plan: ModulePlan, libraries: Sequence[Library], compiler_of: Callable[[SourceKind], CompilerInfo]
) -> CompiledModule:
    """Assemble the module of `libraries`; `compiler_of` returns the compiler of a kind.

    Raises :class:`BuildError`.
    """
    plan, libraries = _without_empty(plan, libraries)
    libraries = [with_choices(library, plan.tuned) for library in libraries]
    embedded = _embedded(plan)
    compiler = compiler_of(plan.kind) if libraries else None
    kinds = {library.units[0].kind for library in plan.libraries}
    front_ends = {kind: f"{TITLES[kind]} {compiler_of(kind).version}" for kind in kinds if kind in PYTHON}
    manifest = Manifest(
        schema=SCHEMA,
        module=plan.name,
        compiler=compiler.name if compiler else "nvrtc",
        version=compiler.version if compiler else "0.0",
        compress=plan.compress,
        units=tuple(
            library.unit._replace(compiler=front_ends.get(own.units[0].kind, ""))
            for own, library in zip(plan.libraries, libraries, strict=True)
        ),
        kernels=tuple(_kernels(plan, libraries)),
        symbols=tuple(s._replace(unit=index) for index, lib in enumerate(libraries) for s in lib.symbols),
        embedded={n: sha256(c).hex() for n, c in embedded.items()} if plan.embed else None,
        variants=tuple(with_measurements(find_candidates(plan.name, libraries), libraries, plan.tuned)),
        structures=tuple(_structures(libraries)),
        constants=tuple(_constants(libraries)),
    )
    files: dict[str, bytes] = {}
    for library in libraries:
        if shared := files.keys() & library.files.keys():
            raise BuildError(
                f"another source makes {min(shared)} too",
                where=library.unit.sources[0].name,
                remedy="rename it",
            )
        files |= library.files
    files |= {f"sources/{name}": content for name, content in embedded.items()}
    log = dict.fromkeys(text for library in libraries for text in library.log)
    return CompiledModule(manifest, files, tuple(log), _doc_comments(plan))


def assemble_sources(plan: ModulePlan, compiler: CompilerInfo) -> CompiledModule:
    """Assemble a module that has the sources of `plan` and no image: its kernels are compiled on demand."""
    embedded = _embedded(plan)
    manifest = Manifest(
        schema=SCHEMA,
        module=plan.name,
        compiler=compiler.name,
        version=compiler.version,
        compress=plan.compress,
        units=tuple(Unit([unit.described for unit in library.units], ()) for library in plan.libraries),
        kernels=(),
        symbols=(),
        embedded={name: sha256(content).hex() for name, content in embedded.items()},
    )
    files = {f"sources/{name}": content for name, content in embedded.items()}
    return CompiledModule(manifest, files, (), {})


def _doc_comments(plan: ModulePlan) -> Mapping[str, str]:
    """Return the comments above kernels in the sources and their headers."""
    units = [unit for library in plan.libraries for unit in library.units if unit.kind == "cu"]
    texts = dict.fromkeys(text for unit in units for text in (*unit.headers.values(), unit.source))
    if not (texts := {text: None for text in texts if may_have_doc_comments(text)}):
        return {}
    return find_doc_comments(texts)


class NoKernelError(CompilationError):
    """A source defines no kernel, except for templates without an instantiation."""


def templates_of(unit: TranslationUnit) -> list[str]:
    """List the kernel templates that the texts of `unit` define."""
    declared = find_declarations((unit.source, *unit.headers.values())).kernels
    return sorted({kernel.name for kernel in declared if "<" in kernel.template})


def defines_no_kernel(unit: TranslationUnit) -> NoKernelError:
    """Return the error for a source without a kernel, or with templates alone."""
    if unit.kind in ("cu", "tile") and (names := templates_of(unit)):
        return NoKernelError(
            f"defines only templates: {join_names(names)}",
            where=unit.name,
            remedy=f"list instantiations, such as {names[0]}<float>, under {spell_setting('instantiate')}",
        )
    return NoKernelError(
        "defines no kernel",
        where=unit.name,
        remedy="a source needs at least one __global__ or __tile_global__ function, or set "
        f"{spell_setting('link', True)} if other sources call it",
    )


def _without_empty(plan: ModulePlan, libraries: Sequence[Library]) -> tuple[ModulePlan, Sequence[Library]]:
    """Leave out libraries that may be empty and are. Raises :class:`BuildError` if a source has none left."""
    both = list(zip(plan.libraries, libraries, strict=True))
    kept = [(own, library) for own, library in both if library.kernels or not own.may_be_empty]
    names = {own.units[0].name for own, _ in kept}
    for own, _ in both:
        if own.units[0].name not in names:
            raise defines_no_kernel(own.units[0])
    return replace(plan, libraries=tuple(own for own, _ in kept)), [library for _, library in kept]


def defined_twice(expression: str, one: str, other: str) -> BuildError:
    """Return the error for a kernel that two sources define."""
    places = f"in {one} and in {other}" if one != other else f"with threads and with tiles in {one}"
    return BuildError(
        f"kernel {expression!r} is defined twice, {places}",
        remedy="rename one of them or put it into a namespace",
    )


def _kernels(plan: ModulePlan, libraries: Sequence[Library]) -> Iterator[Kernel]:
    """List the kernels of `libraries`, each once. Raises :class:`BuildError` if several share a name."""
    owners: dict[str, tuple[int, Kernel]] = {}
    instantiations: dict[str, str] = {}  # by lowered name, which each source may spell in its own way
    for index, library in enumerate(libraries):
        for kernel in library.kernels:
            name = kernel.expression
            if kernel.lowered.startswith("_Z") and name.endswith(">"):
                name = instantiations.setdefault(kernel.lowered, name)
            owner, first = owners.setdefault(name, (index, kernel))
            if owner == index:
                yield kernel._replace(unit=index)
                continue
            units = [plan.libraries[number].units[0] for number in (owner, index)]
            if all(unit.kind in PYTHON for unit in units):
                one, other = (unit.instantiate[0] for unit in units)
                raise BuildError(
                    f"{one} and {other} have one name, {kernel.expression!r}",
                    where=units[1].name,
                    remedy="leave one out: a name has the types of pointers and the constants alone",
                )
            is_other = any(unit.kind in PYTHON or unit.kernels for unit in units)
            if is_other or len({unit.kind == "tile" for unit in units}) > 1:
                raise defined_twice(kernel.expression, units[0].name, units[1].name)
            # Each part of a source has all its kernels that are no templates.
            if units[0].name != units[1].name:
                _check_same([first, kernel], units, [libraries[owner], library])


def _structures(libraries: Sequence[Library]) -> Iterator[Structure]:
    """List the structures of `libraries`, each once, sorted by name, with the units that have it."""
    units: dict[Structure, list[int]] = {}
    for index, library in enumerate(libraries):
        for structure in library.structures:
            units.setdefault(structure._replace(units=()), []).append(index)
    for structure in sorted(units, key=lambda each: each.name):
        yield structure._replace(units=tuple(units[structure]))


def _constants(libraries: Sequence[Library]) -> Iterable[Constant]:
    """List the constants that `libraries` know, as the table names them.

    Raises :class:`BuildError` if no library knows one, or if it has several values.
    """
    known: dict[str, Constant] = {}
    reasons: dict[str, str] = {}
    for index, library in enumerate(libraries):
        for constant in library.constants:
            if not constant.type:
                reasons.setdefault(constant.name, f"{library.unit.title}: {constant.value}")
                continue
            first = known.setdefault(constant.name, constant._replace(unit=index))
            if first._replace(unit=0) != constant:
                sources = (libraries[number].unit.title for number in (first.unit, index))
                raise BuildError(
                    f"{constant.name} differs: {' and '.join(sources)} have {first.declaration} and "
                    f"{constant.declaration}",
                    where=spell_setting("constants"),
                    remedy="give it different names in them",
                )
    for name, reason in reasons.items():
        if name not in known:
            raise BuildError(
                f"no source has the constant {name!r} ({reason})",
                where=spell_setting("constants"),
                remedy="spell it as C++ does behind the last line of a source, with all namespaces",
            )
    return known.values()


def _check_same(
    kernels: Sequence[Kernel], units: Sequence[TranslationUnit], libraries: Sequence[Library]
) -> None:
    """Check that C++ allows two units to define one of the `kernels` each, and that it is one kernel.

    It must come from a template, or from a header of both. Its code must be equal, or come from the same
    text: code may differ in the places of constants.
    """
    expression = kernels[0].expression
    name, is_template = base_name(expression), expression.startswith("<", len(plain_name(expression)))
    one, other = (unit.name for unit in units)
    common = units[0].headers.keys() & units[1].headers.keys()
    shared = [units[0].headers[header] for header in common]
    own = [[u.source, *(text for header, text in u.headers.items() if header not in common)] for u in units]
    is_own = any(name in kernel_names(text) for texts in own for text in texts)
    if not is_template and (is_own or not any(name in kernel_names(text) for text in shared)):
        raise defined_twice(expression, one, other)
    codes = [
        {i.architecture: code.get(k.expression) for i, code in zip(lib.unit.images, lib.code, strict=True)}
        for k, lib in zip(kernels, libraries, strict=True)
    ]
    if kernels[0].parameters != kernels[1].parameters:
        problem = "other parameters"
    elif codes[0].keys() != codes[1].keys():
        problem = "other architectures"
    elif codes[0] != codes[1] and (is_own or units[0].options != units[1].options or _depends(shared, *own)):
        problem = "other code"
    else:
        return
    raise BuildError(
        f"kernel {expression!r} has {problem} in {one} than in {other}",
        remedy="compile both for the same architectures with the same options and macros, or rename it in "
        "one of them",
    )


def _depends(headers: Sequence[bytes], one: Sequence[bytes], other: Sequence[bytes]) -> bool:
    """True if `headers` contain a macro that the texts `one` define in another way than `other`."""
    macros = [{macro for text in texts for macro in definitions_in(text)} for texts in (one, other)]
    different = {name.encode() for name, *_ in macros[0] ^ macros[1]}
    return any(not different.isdisjoint(re.findall(rb"\w+", header)) for header in headers)


def _embedded(plan: ModulePlan) -> dict[str, bytes]:
    """Return the sources and headers that compilation on demand reads."""
    if not plan.embed:
        return {}
    files = dict(plan.headers)
    for unit in (unit for library in filter(plan.embeds, plan.libraries) for unit in library.units):
        if unit.kind in ("cu", "ptx", *PYTHON):
            files[unit.name] = unit.source
            files |= unit.headers
    return dict(sorted(files.items()))
