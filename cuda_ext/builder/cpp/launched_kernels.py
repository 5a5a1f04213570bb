"""Kernels as C++ launches them: the arguments of a call, parameters that images add, and candidate images.

A pointer has no shape, so a call in C++ passes the extents of arrays that a kernel takes: ``x_shape_0``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cuda_ext.facts.candidates import Term, Variants
from cuda_ext.facts.kernels import Kernel, Parameter
from cuda_ext.facts.launches import FixedLaunch, HiddenParameter
from cuda_ext.facts.manifest import Manifest
from cuda_ext.facts.symbols import Symbol
from cuda_ext.formats.variant_conditions import CANDIDATE, SM


class LaunchedKernel(NamedTuple):
    """A kernel whose parameters are those of a call.

    ``passed`` and ``terms`` are the fields of ``PassedData`` and ``TermData`` of the interface: the values of
    the kernel's own parameters, if these are others, and the condition ``when`` of its launch. ``fixed`` has
    the launches that images fix, by the positions of the images in the unit. ``exceptions`` come from
    :func:`lowered_elsewhere`. A launch takes the first of the ``candidates`` whose condition holds.

    Its class in C++ has the ``number``, its position in the manifest. ``source`` is its unit, and
    ``types`` are the parameter types of a call.
    """

    kernel: Kernel
    exceptions: Sequence[tuple[int, str | None]] = ()
    passed: tuple[tuple[int, int], ...] = ()
    fixed: Mapping[int, FixedLaunch] = {}
    candidates: tuple[LaunchedKernel, ...] = ()
    when: str = ""
    terms: tuple[tuple[int, bool, int, int, int, str], ...] = ()
    number: int = 0
    source: str = ""
    types: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        expression = self.kernel.expression
        # The expression of an overload contains its types, even if a cast chooses it.
        cast = re.fullmatch(r"\w+_cast<.*>\((.*)\)", expression)
        name = cast[1] if cast else re.sub(r"(?<=[\w>])\(.*\)$", "", expression)
        return f"{name}({', '.join(map(str, self.kernel.parameters))})"

    @property
    def configuration(self) -> dict[str, int]:
        """The integers of its configuration, for functions that compute the grid."""
        values = self.kernel.configuration.items()
        return {name: int(value) for name, value in values if value.removeprefix("-").isdecimal()}

    @property
    def is_derived(self) -> bool:
        """True if its images determine a part of each launch."""
        return bool(self.passed or self.fixed or self.candidates)

    @property
    def is_fixed(self) -> bool:
        """True if a call gives only the grid."""
        return bool(self.fixed) or any(candidate.fixed for candidate in self.candidates)


def launched_kernels(manifest: Manifest) -> list[LaunchedKernel]:
    """List the kernels of `manifest` that have names of their own."""
    specialised = {variants.name: variants for variants in manifest.variants if variants.specialised}
    by_name = {kernel.expression: kernel for kernel in manifest.kernels}
    return [
        _with_candidates(specialised[kernel.expression], by_name, manifest)
        if kernel.expression in specialised
        else _Call([kernel]).launch(kernel, manifest)
        for kernel in manifest.named_kernels
    ]


def lowered_elsewhere(entity: Kernel | Symbol, manifest: Manifest) -> list[tuple[int, str | None]]:
    """List the images in which the lowered name of `entity` differs, with that name."""
    images = enumerate(manifest.units[entity.unit].images)
    names = ((i, manifest.lowered_name(entity, image)) for i, image in images)
    return [(i, name) for i, name in names if name != entity.lowered]


def _with_candidates(variants: Variants, kernels: Mapping[str, Kernel], manifest: Manifest) -> LaunchedKernel:
    own = [kernels[candidate.kernel] for candidate in variants.candidates]
    call = _Call(reversed(own))
    candidates = []
    for candidate, kernel in zip(variants.candidates, own, strict=True):
        launched = call.launch(kernel, manifest)
        named = launched.kernel._replace(expression=variants.name)
        terms = tuple(map(call.term, candidate.when))
        candidates.append(launched._replace(kernel=named, when=candidate.condition, terms=terms))
    return candidates[-1]._replace(candidates=tuple(candidates), when="", terms=())


_OUTCOMES = {"<": 0b001, "<=": 0b011, "==": 0b010, "!=": 0b101, ">=": 0b110, ">": 0b100}
_INTEGERS = {1: "signed char", 2: "short", 4: "int", 8: "long long"}


class _Call:
    """The parameters of a call of any of `kernels`, which have the same parameters themselves."""

    def __init__(self, kernels: Iterable[Kernel]) -> None:
        first, *others = kernels
        self.parameters: list[Parameter] = []
        self._extents: dict[tuple[str, int], int] = {}
        for parameter in _in_order(first):
            if isinstance(parameter, Parameter):
                self.parameters.append(parameter)
            elif parameter.extent:
                self._add(parameter)
        for hidden in (hidden for kernel in others for hidden in kernel.hidden if hidden.extent):
            self._add(hidden)

    def _add(self, hidden: HiddenParameter) -> int:
        """Return the position of the argument for `hidden`, and add the argument if it is not there."""
        key = hidden.source, hidden.size
        if key not in self._extents:
            name = "_".join(map(str, hidden.extent or ()))
            while any(parameter.name == name for parameter in self.parameters):
                name += "_"
            self._extents[key] = len(self.parameters)
            type_ = _INTEGERS.get(hidden.size, "__int128")
            self.parameters.append(Parameter(name, type_, "integer", hidden.size, 0))
        return self._extents[key]

    def launch(self, kernel: Kernel, manifest: Manifest) -> LaunchedKernel:
        """Describe the launch of `kernel` with these parameters."""
        positions = {parameter.name: i for i, parameter in enumerate(self.parameters)}
        passed: list[tuple[int, int]] = []
        for parameter in _in_order(kernel):
            if isinstance(parameter, Parameter):
                passed.append((positions[parameter.name], 0))
            elif parameter.extent:
                passed.append((self._add(parameter), 0))
            else:
                passed.append((-1, parameter.size if parameter.source == "zero" else 0))
        is_plain = passed == [(i, 0) for i in range(len(self.parameters))]
        called = kernel._replace(parameters=tuple(self.parameters), hidden=())
        images = enumerate(manifest.units[kernel.unit].images)
        name = kernel.expression
        fixed = {i: image.launches[name] for i, image in images if name in image.launches}
        exceptions = lowered_elsewhere(kernel, manifest)
        return LaunchedKernel(called, exceptions, () if is_plain else tuple(passed), fixed)

    def term(self, term: Term) -> tuple[int, bool, int, int, int, str]:
        """Describe a `term` of a condition."""
        if not term.operator:
            _, is_gpu, name = term.name.partition('gpu == "')
            target = f"={name[:-1]}" if is_gpu else term.name.removeprefix("sm_")
            return (-1, False, 0, 0, 0, target)
        if term.name == CANDIDATE:
            return (-1, False, 0, 0, 0, "")  # which no outcome satisfies
        positions = {parameter.name: i for i, parameter in enumerate(self.parameters)}
        positions |= {source: position for (source, _), position in self._extents.items()}
        argument = -1 if term.name == SM else positions[term.name]
        is_signed = argument >= 0 and self.parameters[argument].kind == "integer"
        return (argument, is_signed, term.modulus, _OUTCOMES[term.operator], term.number, "")


def _in_order(kernel: Kernel) -> Sequence[Parameter | HiddenParameter]:
    """List all parameters of `kernel`, hidden ones included, in their order."""
    parameters: list[Parameter | HiddenParameter] = list(kernel.parameters)
    for hidden in kernel.hidden:
        parameters.insert(hidden.position, hidden)
    return parameters
