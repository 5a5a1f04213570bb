"""Compiling as data: jobs that any process on any machine can do, and products that travel as bytes.

A computation that needs jobs done is a generator of type :data:`Steps`: it yields jobs and gets their
products, and whoever drives it decides where, when, and whether they were done before.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

from cuda_ext.compiler.image import read_image
from cuda_ext.compiler.translation_unit import (
    CompiledImage,
    Compiler,
    Survey,
    SurveyedKernel,
    SurveyedSymbol,
    TranslationUnit,
)
from cuda_ext.errors import BuildError, CompilationError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.resources import Usage
from cuda_ext.manifest import Parameter
from cuda_ext.toolchain.nvjitlink import LinkInput, link

__all__ = [
    "Job",
    "LinkJob",
    "Product",
    "Steps",
    "UnitJob",
    "decode",
    "encode",
    "perform",
    "run_here",
    "together",
]

_T = TypeVar("_T")

Product = CompiledImage | Survey
Outcome = Product | CompilationError
Steps = Generator[Sequence["Job"], Sequence[Outcome], _T]


@dataclass(frozen=True, slots=True)
class UnitJob:
    """One call of the pure function: `unit` compiled or surveyed for `architecture`."""

    action: Literal["compile", "survey"]
    unit: TranslationUnit
    architecture: Architecture

    @property
    def name(self) -> str:
        return self.unit.name

    @property
    def units(self) -> tuple[TranslationUnit, ...]:
        """The units whose headers it reads."""
        return (self.unit,)

    def __str__(self) -> str:
        return f"{self.name} {'names' if self.action == 'survey' else self.architecture}"


@dataclass(frozen=True, slots=True)
class LinkJob:
    """`inputs` linked, or a single one assembled, for `architecture`; ``name`` is for people."""

    name: str
    inputs: tuple[LinkInput, ...]
    architecture: Architecture
    action: Literal["link"] = "link"
    units: tuple[TranslationUnit, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.architecture}"


Job = UnitJob | LinkJob


def together(jobs: Sequence[Job]) -> list[list[Job]]:
    """`jobs` in groups that one pass of a compiler does: the cubin and the PTX of one target."""
    groups: dict[object, list[Job]] = {}
    for index, job in enumerate(jobs):
        key: object = index
        if isinstance(job, UnitJob) and job.action == "compile" and job.architecture.kind != "ltoir":
            key = id(job.unit), job.architecture.target
        groups.setdefault(key, []).append(job)
    return list(groups.values())


def perform(jobs: Sequence[Job], compiler: Compiler) -> list[Product]:
    """Do `jobs`, one group of :func:`together`. Raises :class:`CompilationError`."""
    match jobs[0]:
        case LinkJob(_, inputs, architecture):
            return [read_image(architecture, link(inputs, architecture))]
        case UnitJob("survey", unit, architecture):
            return [compiler.survey(unit, architecture)]
        case UnitJob(_, unit, _):
            return list(compiler.compile(unit, [job.architecture for job in jobs]))


def run_here(steps: Steps[_T], compiler: Compiler) -> _T:
    """Drive `steps` to their end in this process, one job after the other."""
    outcomes: Sequence[Outcome] | None = None
    try:
        while True:
            # A generator begins with nothing.
            jobs = steps.send(cast("Sequence[Outcome]", outcomes))
            done: dict[int, Outcome] = {}
            for group in together(jobs):
                try:
                    products: Sequence[Outcome] = perform(group, compiler)
                except CompilationError as error:
                    products = [error] * len(group)
                done.update(zip(map(id, group), products, strict=True))
            outcomes = [done[id(job)] for job in jobs]
    except StopIteration as stop:
        result: _T = stop.value
        return result


def encode(product: Product) -> bytes:
    """`product` without its trace: a line of JSON and, for an image, its bytes."""
    if isinstance(product, Survey):
        fields: dict[str, Any] = {
            "kernels": [dataclasses.astuple(kernel) for kernel in product.kernels.values()],
            "symbols": [dataclasses.astuple(symbol) for symbol in product.symbols.values()],
            "variables": sorted(product.variables),
            "names": dict(product.names),
        }
        return json.dumps(fields).encode()
    fields = {
        "architecture": str(product.architecture),
        "entries": product.entries,
        "variables": product.variables,
        "sizes": product.sizes,
        "log": product.log,
        "usage": {name: dataclasses.astuple(usage) for name, usage in product.usage.items()},
    }
    return json.dumps(fields).encode() + b"\n" + product.data


def decode(content: bytes) -> Product:
    """What :func:`encode` wrote. Raises :class:`BuildError` for anything else."""
    head, _, data = content.partition(b"\n")
    try:
        fields = json.loads(head)
        if "architecture" not in fields:
            kernels = [
                SurveyedKernel(n, low, tuple(Parameter(*p) for p in ps)) for n, low, ps in fields["kernels"]
            ]
            symbols = [SurveyedSymbol(*symbol) for symbol in fields["symbols"]]
            return Survey(
                {kernel.lowered: kernel for kernel in kernels},
                {symbol.lowered: symbol for symbol in symbols},
                frozenset(fields["variables"]),
                fields["names"],
            )
        usage: Mapping[str, Usage] = {name: Usage(*counts) for name, counts in fields["usage"].items()}
        return CompiledImage(
            Architecture.parse(fields["architecture"]),
            data,
            tuple(fields["entries"]),
            tuple(fields["variables"]),
            {name: tuple(sizes) for name, sizes in fields["sizes"].items()},
            fields["log"],
            usage,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BuildError(f"not the record of a compilation: {error}; build again") from None
