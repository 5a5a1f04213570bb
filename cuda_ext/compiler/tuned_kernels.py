"""Candidates of tuned kernels: what was chosen for which arguments, and their names in a module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from cuda_ext.compiler.front_ends.kernel_description import SHARED_MEMORY
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.candidates import Candidate, Measured, Tuning, Variants
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.launches import FixedLaunch
from cuda_ext.facts.manifest import Image, Manifest, Unit
from cuda_ext.formats.spelling import plain_name
from cuda_ext.formats.variant_conditions import Condition, check_terms, spell


class Choice(NamedTuple):
    """A configuration, the conditions of which one must hold, and the cases for which it was the fastest.

    The default has no condition.
    """

    configuration: Mapping[str, str]
    when: tuple[Condition, ...] = ()
    measured: tuple[Measured, ...] = ()


class TunedInstantiation(NamedTuple):
    """An instantiation among the candidates of the kernel ``name``, and the ``choices`` that take it.

    In C++, that kernel has no template arguments that are tuned. The names of functions in Python are those
    of their compiled kernels, so ``name`` is empty. ``where`` is the key path of the candidates.
    """

    name: str
    where: str
    tuning: Tuning
    choices: tuple[Choice, ...]
    launch: FixedLaunch | None = None

    @property
    def is_default(self) -> bool:
        return any(not choice.when for choice in self.choices)


class Landscape(NamedTuple):
    """The measured times of a kernel on a GPU, in microseconds, by configuration; ``None`` without one.

    ``cases`` are the columns of ``times``, and ``chosen`` is the configuration that launches take for each.
    """

    kernel: str
    device: str
    cases: tuple[str, ...]
    times: Mapping[str, tuple[float | None, ...]]
    chosen: tuple[str, ...]

    def share(self, configuration: str, column: int) -> float:
        """Return how many times as fast as `configuration` the best one is, for a case: at most 1."""
        time = self.times[configuration][column]
        best = min(each[column] or inf for each in self.times.values())
        return best / time if time else 0.0


# By the unit's name and the instantiation.
Tuned = Mapping[tuple[str, str], TunedInstantiation]


def spell_values(configuration: Mapping[str, object]) -> str:
    """Write a configuration, or the values of a case, in a line."""
    return ", ".join(f"{name}={value}" for name, value in configuration.items())


def fits(shared: int, architecture: Architecture) -> bool:
    """Return True if a block on the GPU of a cubin has `shared` bytes. Those that run PTX may have more."""
    most = SHARED_MEMORY.get(architecture.number) if architecture.kind == "cubin" else None
    return not most or shared <= most << 10


def with_tuning(manifest: Manifest, tuned: Tuned) -> Manifest:
    """Return `manifest` with the candidates in `tuned` as those of one kernel for each name.

    Raises :class:`~cuda_ext.errors.ConfigError` for conditions that compare what no launch has.
    """
    units, kernels = list(manifest.units), list(manifest.kernels)
    variants = {each.name: each for each in manifest.variants}
    groups: dict[str, list[tuple[TunedInstantiation, Choice, str]]] = {}
    for index, unit in enumerate(units):
        for text in unit.sources[0].instantiate:
            if not (each := tuned.get((unit.sources[0].name, text))):
                continue
            number = next(i for i, kernel in enumerate(kernels) if _is_instantiation(kernel, index, text))
            kernel = kernels[number]
            if each.name:
                kernels[number], units[index] = _renamed(kernel, unit, each)
                kernel = kernels[number]
                for choice in each.choices:
                    groups.setdefault(each.name, []).append((each, choice, kernel.expression))
                    for condition in choice.when:
                        check_terms(condition, each.name, kernel.parameters, kernel.hidden, each.where)
            elif kernel.name in variants:
                variants[kernel.name] = _measured(variants[kernel.name], kernel.expression, each)
    for name, members in groups.items():
        candidates = [
            Candidate(expression, condition, choice.measured)
            for _, choice, expression in sorted(members, key=lambda member: not member[1].when)
            for condition in choice.when or ((),)
        ]
        if len(candidates) > 1:
            variants[name] = Variants(name, tuple(candidates), True, members[0][0].tuning)
    return manifest._replace(units=tuple(units), kernels=tuple(kernels), variants=tuple(variants.values()))


def _is_instantiation(kernel: Kernel, unit: int, text: str) -> bool:
    """Return True if `kernel` is that of `text`, the only instantiation of a template in its `unit`."""
    name = plain_name(kernel.expression)
    return (
        kernel.unit == unit and (kernel.expression.endswith(">") or "(" in text) and name == plain_name(text)
    )


def _renamed(kernel: Kernel, unit: Unit, each: TunedInstantiation) -> tuple[Kernel, Unit]:
    """Name `kernel` as one of the candidates, and add its launch to the images of `unit`."""
    choice, old = each.choices[0], kernel.expression
    new = each.name if each.is_default else f"{each.name} if {spell(choice.when)}"
    kept = {n: value for n, value in kernel.constants.items() if n not in choice.configuration}
    kernel = kernel._replace(expression=new, constants=kept, configuration=choice.configuration)

    def renamed(image: Image) -> Image:
        names = {new if name == old else name: lowered for name, lowered in image.names.items()}
        launches = {**image.launches, new: each.launch} if each.launch else image.launches
        return image._replace(names=names, launches=launches)

    return kernel, unit._replace(images=tuple(map(renamed, unit.images)))


def _measured(variants: Variants, expression: str, each: TunedInstantiation) -> Variants:
    """Add to `variants` of a function what was measured of the candidates `expression`."""
    measured = tuple(case for choice in each.choices for case in choice.measured)
    candidates: Sequence[Candidate] = [
        candidate._replace(measured=measured) if candidate.kernel == expression else candidate
        for candidate in variants.candidates
    ]
    return variants._replace(candidates=tuple(candidates), tuning=each.tuning)
