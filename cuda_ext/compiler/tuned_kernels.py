"""Candidates of tuned kernels: what was chosen for which arguments, and their names in a module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from cuda_ext.compiler.products import Library
from cuda_ext.facts.candidates import Candidate, Measured, Tuning, Variants
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.launches import FixedLaunch
from cuda_ext.formats.spelling import plain_name
from cuda_ext.formats.variant_conditions import Condition, check_terms, spell

# The constants and options in which candidates differ, as Python spells them.
Configuration: TypeAlias = Mapping[str, str]
# A configuration that can be compared: its items.
Label: TypeAlias = tuple[tuple[str, str], ...]


class Choice(NamedTuple):
    """A configuration, the conditions of which one must hold, and the cases for which it was the fastest.

    The default has no condition.
    """

    configuration: Configuration
    when: tuple[Condition, ...] = ()
    measured: tuple[Measured, ...] = ()


class TunedInstantiation(NamedTuple):
    """An instantiation among the candidates at the key path ``where``.

    ``choices`` are those that take it, by their positions among all of its kernel. In C++, this kernel is
    called ``name``, without the template arguments that are tuned, and the block is that of ``launch``. The
    names of functions in Python are those of their compiled kernels.
    """

    where: str
    tuning: Tuning
    choices: Mapping[int, Choice]
    name: str = ""
    launch: FixedLaunch | None = None

    @property
    def is_default(self) -> bool:
        return any(not choice.when for choice in self.choices.values())


class Landscape(NamedTuple):
    """The microseconds of a kernel on a GPU, by case and configuration, and the choice for each case."""

    kernel: str
    device: str
    times: Mapping[tuple[int, ...], Mapping[Label, float]]
    chosen: Mapping[tuple[int, ...], Label]

    def share(self, case: tuple[int, ...], configuration: Label) -> float:
        """Return how many times as fast as `configuration` the best one is, for a case: at most 1."""
        times = self.times[case]
        return min(times.values()) / times[configuration] if configuration in times else 0.0

    @property
    def configurations(self) -> list[Label]:
        """All configurations: those first that are near the best in many cases."""
        listed = {each: None for times in self.times.values() for each in times}
        return sorted(listed, key=lambda each: -sum(self.share(case, each) for case in self.times))


# By the unit's name and the instantiation.
Tuned: TypeAlias = Mapping[tuple[str, str], TunedInstantiation]


def spell_values(configuration: Mapping[str, object]) -> str:
    """Write a configuration, or the values of a case, in a line."""
    return ", ".join(f"{name}={value}" for name, value in configuration.items())


def with_choices(library: Library, tuned: Tuned) -> Library:
    """Return `library` with the kernel of a template in `tuned` as a candidate, under its conditions.

    Raises :class:`~cuda_ext.errors.ConfigError` for conditions that compare what no launch has.
    """
    each, kernels = _find(library, tuned), [*library.kernels]
    if not each or not each.name:
        return library
    text = library.unit.sources[0].instantiate[0]
    number = next(i for i, kernel in enumerate(kernels) if _is_instantiation(kernel, text))
    old, first = kernels[number], next(iter(each.choices.values()))
    new = each.name if each.is_default else f"{each.name} if {spell(first.when)}"
    conditions = tuple(condition for choice in each.choices.values() for condition in choice.when or ((),))
    for condition in conditions:
        check_terms(condition, each.name, old.parameters, old.hidden, each.where)
    constants = {n: value for n, value in old.constants.items() if n not in first.configuration}
    kernels[number] = old._replace(expression=new, constants=constants, configuration=first.configuration)
    images = [
        image._replace(
            names={new if name == old.expression else name: n for name, n in image.names.items()},
            launches={new if name == old.expression else name: n for name, n in image.launches.items()},
        )
        for image in library.unit.images
    ]
    unit = library.unit._replace(images=tuple(images))
    return library._replace(unit=unit, kernels=tuple(kernels), conditions={new: conditions})


def _is_instantiation(kernel: Kernel, text: str) -> bool:
    """Return True if `kernel` is that of `text`, the only instantiation of a template."""
    is_template = kernel.expression.endswith(">") or "(" in text
    return is_template and plain_name(kernel.expression) == plain_name(text)


def find_tuned(unit: str, texts: Sequence[str], tuned: Tuned) -> TunedInstantiation | None:
    """Return the candidate that the instantiations `texts` of a part of `unit` are, if they are one."""
    return tuned.get((unit, texts[0])) if len(texts) == 1 else None


def _find(library: Library, tuned: Tuned) -> TunedInstantiation | None:
    source = library.unit.sources[0]
    return find_tuned(source.name, source.instantiate, tuned)


def with_measurements(
    variants: Iterable[Variants], libraries: Iterable[Library], tuned: Tuned
) -> Iterator[Variants]:
    """Add to `variants` in `tuned` how they are measured, and to each candidate its cases; in their order."""
    known: dict[str, TunedInstantiation] = {}
    for library in libraries:
        if each := _find(library, tuned):
            known |= {k.expression: each for k in library.kernels if each.name in ("", k.name)}
    for own in variants:
        if not all(candidate.kernel in known for candidate in own.candidates):
            yield own
            continue
        chosen = [_choice_of(candidate, known[candidate.kernel]) for candidate in own.candidates]
        order = sorted(range(len(chosen)), key=lambda i: chosen[i][0])
        candidates = [own.candidates[i]._replace(measured=chosen[i][1].measured) for i in order]
        yield own._replace(candidates=tuple(candidates), tuning=known[candidates[0].kernel].tuning)


def _choice_of(candidate: Candidate, each: TunedInstantiation) -> tuple[int, Choice]:
    """Return the choice, with its position, whose condition `candidate` has, with others behind it."""
    return next(
        (position, choice)
        for position, choice in each.choices.items()
        for condition in choice.when or ((),)
        if candidate.when[: len(condition)] == condition
    )
