"""The data of a module in C++: constant arrays of the structures in ``interface/data.hpp``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cuda_ext.builder.cpp.embedding import Embedded, quoted
from cuda_ext.builder.cpp.launched_kernels import LaunchedKernel, lowered_elsewhere
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.image_choice import describe_images, needed_driver
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Manifest, Unit
from cuda_ext.facts.sources import Source
from cuda_ext.facts.symbols import Symbol


class Recipe(NamedTuple):
    """The options and headers to compile a one-source unit on demand, or the ``obstacle`` to that."""

    source: Source
    options: Sequence[str] = ()
    headers: Sequence[str] = ()
    is_specific: bool = False
    obstacle: str = ""


class Template(NamedTuple):
    """A kernel template and the unit that defines it. The name of a built kernel's template is qualified.

    ``obstacle`` says why it is not instantiated on demand; it is empty if it is.
    """

    name: str
    is_qualified: bool
    unit: int
    obstacle: str


class _Code(str):
    """An expression in C++. Other texts become literals."""


def _written(value: object) -> str:
    match value:
        case None:
            return "nullptr"
        case _Code():
            return value
        case str():
            return quoted(value)
        case bool():
            return str(value).lower()
        case tuple():
            return f"{{{', '.join(map(_written, value))}}}"
        case _:
            return str(value)


@dataclass(frozen=True)
class ModuleData:
    """Constant arrays, each declared before those that refer to it; the last constant is ``module_data``.

    ``images`` are the embedded images of the ``manifest``, by file. ``sources`` and ``headers`` are
    expressions in C++, by the names of the texts, which have the digest ``sha256``.
    """

    manifest: Manifest
    kernels: Sequence[LaunchedKernel]
    images: Mapping[str, Embedded]
    sources: Mapping[str, str]
    headers: Mapping[str, str]
    sha256: str
    recipes: Sequence[Recipe] | None
    templates: Sequence[Template]
    _names: dict[tuple[str, str], str] = field(default_factory=dict, init=False)  # by types and content

    def __str__(self) -> str:
        module = (
            _Code("::cuda_ext::open_module"),
            self.manifest.module,
            f"{self.manifest.compiler} {self.manifest.version}",
            self.recipes is not None,
            self._array("UnitData", map(self._unit, self.manifest.units)),
            self._array("KernelData", map(self._kernel, self.kernels)),
            self._array("SymbolData", map(self._symbol, self.manifest.symbols)),
            self._array("SourceData", ((name, _Code(text)) for name, text in self.sources.items())),
            self._headers(self.headers, self.sha256),
            None if self.recipes is None else self._on_demand(self.recipes),
        )
        fields = "".join(f"  {_written(field)},\n" for field in module)
        arrays = (f"constexpr {type_} {name}[] = {text};\n" for (type_, text), name in self._names.items())
        return f"{''.join(arrays)}constexpr ::cuda_ext::ModuleData module_data = {{\n{fields}}};\n"

    def _pointer(self, type_: str, rows: Iterable[object]) -> _Code:
        """Return the name of an array of `rows`, structures or texts. Equal arrays are declared once."""
        content = "".join(f"  {_written(row)},\n" for row in rows)
        name = re.sub(r"\B(?=[A-Z])", "_", type_).lower()
        full = "const char*" if type_ == "text" else f"::cuda_ext::{type_}"
        return _Code(self._names.setdefault((full, f"{{\n{content}}}"), f"{name}_{len(self._names)}"))

    def _array(self, type_: str, rows: Iterable[object]) -> _Code:
        rows = list(rows)
        return _Code(f"{{{self._pointer(type_, rows)}, {len(rows)}}}" if rows else "{}")

    def _unit(self, unit: Unit) -> tuple[object, ...]:
        rows = []
        for image in unit.images:
            gpus = Architecture.parse(image.architecture).gpus
            (major, minor), reason = needed_driver(self.manifest, unit, image)
            file = self.images[image.file]
            data = (1000 * major + 10 * minor, reason, _Code(file.name), len(file.content))
            rows.append((image.architecture, gpus.start, gpus.stop - 1, *data))
        return unit.title, self._array("ImageData", rows), describe_images(unit)

    def _elsewhere(self, entity: Kernel | Symbol) -> _Code:
        return self._array("LoweredName", lowered_elsewhere(entity, self.manifest))

    def _symbol(self, symbol: Symbol) -> tuple[object, ...]:
        named = (symbol.name, symbol.lowered, symbol.unit)
        return (*named, symbol.type, symbol.size, self._elsewhere(symbol))

    def _kernel(self, launched: LaunchedKernel) -> tuple[object, ...]:
        kernel = launched.kernel
        parameters = ((each.name, each.type, each.size) for each in kernel.parameters)
        described = (
            *(kernel.expression, kernel.lowered, kernel.unit),
            *(self._array("ParameterData", parameters), self._array("LoweredName", launched.exceptions)),
        )
        if not launched.is_derived:
            return described
        fixed = (
            (image, _extents(f.block, 1), f.shared, _extents(f.cluster, min(len(f.cluster), 1)), *f[3:6])
            for image, f in launched.fixed.items()
        )
        return (
            *(*described, True),
            self._array("PassedData", launched.passed),
            self._array("FixedLaunchData", fixed),
            self._array("CandidateData", map(self._candidate, launched.candidates)),
            self._array("ConfigurationData", launched.configuration.items()),
        )

    def _candidate(self, launched: LaunchedKernel) -> tuple[object, ...]:
        terms = ((*term, target or None) for *term, target in launched.terms)
        kernel = self._pointer("KernelData", [self._kernel(launched)])
        return kernel, launched.when, self._array("TermData", terms)

    def _headers(self, headers: Mapping[str, str], sha256: str = "") -> tuple[object, ...]:
        if not headers:
            return 0, None, None, sha256
        texts = self._pointer("text", map(_Code, headers.values()))
        return len(headers), texts, self._pointer("text", headers), sha256

    def _on_demand(self, recipes: Iterable[Recipe]) -> _Code:
        data = (
            _Code("::cuda_ext::fulfil_demand"),
            self._array("RecipeData", map(self._recipe, recipes)),
            self._array("TemplateData", self.templates),
        )
        return self._pointer("OnDemandData", [data])

    def _recipe(self, recipe: Recipe) -> tuple[object, ...]:
        source = recipe.source
        return (
            *(source.name, _Code(self.sources.get(source.name, "nullptr")), source.sha256),
            *(self._array("text", recipe.options), self._array("text", source.instantiate)),
            self._headers({name: self.headers[name] for name in recipe.headers}),
            *(recipe.is_specific, recipe.obstacle),
        )


def _extents(given: tuple[int, ...], other: int) -> tuple[int, ...]:
    return (*given, other, other, other)[:3]
