"""``Variants``: a name for several kernels, of which a launch takes the first whose condition holds.

The parts of a condition about the GPU are evaluated once per compute capability. The remaining part, about
arguments, is compiled into the launching function and costs one comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from cuda_ext import manifest
from cuda_ext.errors import ArgumentError, DriverError, NoImageError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.variant_conditions import (
    SM,
    Comparison,
    Condition,
    Leaf,
    Target,
    find_reasons,
    parse_conditions,
    simplify,
    write,
)
from cuda_ext.runtime.driver.driver import Device, open_driver
from cuda_ext.runtime.driver.loaded_kernel import LoadedKernel
from cuda_ext.runtime.kernel import Kernel
from cuda_ext.runtime.launch.launcher import LAUNCH_KEYWORDS, Launcher
from cuda_ext.runtime.loaded_library import Library

__all__ = ["Candidate", "Variants"]


class Candidate(NamedTuple):
    """A kernel and the condition on which it is launched; ``None`` for the default."""

    kernel: Kernel
    when: str | None


class Variants(Kernel):
    """Several kernels under one name. A launch takes the first whose condition holds, else the last.

    Kernels without an image for the GPU are skipped. Otherwise it behaves like a single kernel.
    """

    _launcher: _VariantsLauncher
    _candidates: tuple[Candidate, ...]

    @classmethod
    def among(cls, library: Library, kernels: Sequence[Kernel], variants: manifest.Variants) -> Variants:
        """The `variants` of `library`, with `kernels` as the candidates."""
        launchers = [kernel._launcher for kernel in kernels]
        created = cls.of(library, _VariantsLauncher(library, launchers, variants))
        conditions = [candidate.when for candidate in variants.candidates]
        created._candidates = tuple(map(Candidate, kernels, conditions))
        type(created).__doc__ = f"{variants.name} is {variants}\n\n{type(created).__doc__}"
        return created

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The kernels with their conditions, in the order in which they are tried."""
        return self._candidates

    def explain(self, /, *arguments: Any, **launch: Any) -> None:
        """Print which kernel a launch with these arguments would take, and why it takes none of the others.

        Nothing is launched. Raises what a launch raises for arguments that do not fit, and without a GPU.
        """
        print(self._launcher.explain(arguments, launch))

    def __repr__(self) -> str:
        return f"<variants {self.signature}: {self._launcher.variants}>"


@dataclass(frozen=True)
class _CandidateOnGpu:
    """A candidate on GPUs of one compute capability.

    ``architecture`` is that of the image that they load, or ``obstacle`` is the reason why there is none.
    """

    launcher: Launcher
    condition: Condition | None
    capability: int
    architecture: str = ""
    obstacle: str = ""

    @classmethod
    def of(
        cls, library: Library, launcher: Launcher, condition: Condition | None, device: Device
    ) -> _CandidateOnGpu:
        try:
            image, _ = library.image(launcher.kernel, device)
        except NoImageError:
            kernel, module = launcher.kernel, library.manifest
            images = module.units[kernel.unit].images
            built = [image.architecture for image in images if module.lowered_name(kernel, image) is not None]
            obstacle = f"no image for this GPU, {device}; built for {', '.join(built) or 'none'}"
            return cls(launcher, condition, device.capability, obstacle=obstacle)
        except DriverError as error:
            return cls(launcher, condition, device.capability, obstacle=str(error))
        return cls(launcher, condition, device.capability, image.architecture)

    @cached_property
    def remainder(self) -> Condition | bool:
        """The part of the condition about arguments, or its value where the GPU decides."""
        if self.condition is None:
            return True  # launching the default reports a missing image
        return not self.obstacle and simplify(self.condition, self._holds)

    def is_taken(self, integers: Mapping[str, int]) -> bool:
        """Whether arguments with these values satisfy the condition."""
        return simplify(self.remainder, lambda leaf: self._holds(leaf, integers)) is True

    def reason(self, integers: Mapping[str, int]) -> str:
        """The reason why it is taken or not."""
        if self.obstacle or self.condition is None:
            return self.obstacle or "the default"
        deciding = find_reasons(self.condition, lambda leaf: self._holds(leaf, integers))
        return ", ".join(dict.fromkeys(self._fact(leaf, integers) for leaf in deciding))

    def _holds(self, leaf: Leaf, integers: Mapping[str, int] | None = None) -> bool | None:
        """Whether `leaf` holds; ``None`` if it depends on `integers` and these are not given."""
        match leaf:
            case Target(_, ""):
                return leaf.number == self.capability
            case Target():
                return str(leaf) == f"sm_{Architecture.parse(self.architecture).target}"
            case Comparison(name):
                number = self.capability if name == SM else (integers or {}).get(name)
                return None if number is None else leaf.holds(number)

    def _fact(self, leaf: Leaf, integers: Mapping[str, int]) -> str:
        """The actual value of what `leaf` compares."""
        match leaf:
            case Target(_, ""):
                return f"this GPU is sm_{self.capability}"
            case Target():
                return f"this GPU takes {self.architecture}"
            case Comparison(name):
                value = leaf.value(self.capability if name == SM else integers[name])
                return f"{leaf.term} is {value}"


class _VariantsLauncher(Launcher):
    """Launches one of several candidates, which all have the same parameters."""

    def __init__(self, library: Library, candidates: Sequence[Launcher], variants: manifest.Variants) -> None:
        super().__init__(replace(candidates[-1].kernel, expression=variants.name), self._raise_ambiguous)
        self.variants = variants
        self._library = library
        self._candidates = candidates
        kernels = {candidate.kernel.expression: candidate.kernel for candidate in candidates}
        where = f"{library.module.__name__}: {manifest.FILE_NAME}"
        self._conditions = parse_conditions(variants, kernels, where)
        self._integers = {p.name: i for i, p in enumerate(self.kernel.parameters) if p.is_integer}
        self._by_capability: dict[int, list[_CandidateOnGpu]] = {}

    @property
    def candidates(self) -> Sequence[Launcher]:
        return self._candidates

    def choose(self, device: Device, values: Sequence[Any]) -> Launcher:
        integers = self._integer_values(values)
        return next(candidate.launcher for candidate in self._on(device) if candidate.is_taken(integers))

    def choice(self, table: str) -> str:
        driver = open_driver()
        devices: dict[str, list[int]] = {}
        for ordinal in range(driver.count):
            text = self._choice_on(driver.device(ordinal), table)
            devices.setdefault(text, []).append(ordinal)
        choice, *others = devices
        for text in others:
            choice = f"({text} if device in {devices[text]} else {choice})"
        return choice

    def explain(self, arguments: Sequence[object], launch: Mapping[str, object]) -> str:
        """The text that :meth:`Variants.explain` prints."""
        named = {name: value for name, value in launch.items() if name not in LAUNCH_KEYWORDS}
        _, values, _, device = self.resolve(arguments, named, launch.get("stream"))
        integers = self._integer_values(values)
        rows, chosen = [], False
        for each, candidate in zip(self._on(device), self.variants.candidates, strict=True):
            verdict = "not asked" if chosen else "taken" if each.is_taken(integers) else "not taken"
            reason = "" if chosen else f": {each.reason(integers)}"
            rows.append(
                (candidate.kernel, f"if {candidate.when}" if candidate.when else "", verdict + reason)
            )
            chosen = chosen or verdict == "taken"
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:2]
        lines = ["  ".join(map(str.ljust, row, (*widths, 0))) for row in rows]
        return "\n  ".join([f"{self.kernel.signature} on GPU {device.ordinal}, {device}:", *lines])

    def _raise_ambiguous(self, device: Device) -> LoadedKernel:  # noqa: ARG002 - the signature of a load
        names = ", ".join(candidate.kernel.expression for candidate in self._candidates)
        raise ArgumentError(
            f"{self.variants.name} stands for several kernels", remedy=f"ask one of them: {names}"
        )

    def _integer_values(self, values: Sequence[Any]) -> dict[str, int]:
        """The integers among `values`, by the names of their parameters."""
        return {name: values[position] for name, position in self._integers.items()}

    def _on(self, device: Device) -> list[_CandidateOnGpu]:
        if device.capability not in self._by_capability:
            self._by_capability[device.capability] = [
                _CandidateOnGpu.of(self._library, launcher, condition, device)
                for launcher, condition in zip(self._candidates, self._conditions, strict=True)
            ]
        return self._by_capability[device.capability]

    def _choice_on(self, device: Device, table: str) -> str:
        """The expression of :meth:`choice` for one GPU: ``(table0 if v0 >= 65536 else table2)``."""
        text = ""
        for number, candidate in reversed(list(enumerate(self._on(device)))):
            if candidate.remainder is True:
                text = f"{table}{number}"
            elif candidate.remainder is not False:
                text = f"{table}{number} if {write(candidate.remainder, self._leaf)} else {text}"
        return f"({text})"

    def _leaf(self, leaf: Leaf) -> str:
        """`leaf` with a position instead of a name: no text of a manifest becomes Python code."""
        assert isinstance(leaf, Comparison)  # noqa: S101 - the remainder compares arguments only
        return str(replace(leaf, name=f"v{self._integers[leaf.name]}"))
