"""A name that stands for several kernels, of which each launch takes the first whose condition holds.

What a condition says of the GPU is found out once for each kind of GPU. What is left, about arguments,
becomes part of the function that launches, and costs what the comparison costs.
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
    conditions_of,
    reasons,
    settled,
    spelled,
)
from cuda_ext.runtime.driver.driver import Device, open_driver
from cuda_ext.runtime.driver.loaded_kernel import LoadedKernel
from cuda_ext.runtime.kernel import Kernel
from cuda_ext.runtime.launch.launcher import LAUNCH_KEYWORDS, Launcher

__all__ = ["Candidate", "Variants"]


class Candidate(NamedTuple):
    """A kernel, and the condition on which it is taken. The default has none."""

    kernel: Kernel
    when: str | None


class Variants(Kernel):
    """Several kernels under one name. A launch takes the first whose condition holds, else the last.

    One that has no image for the GPU is passed over. Everything else is as with a single kernel.
    """

    _launcher: _Choosing
    _candidates: tuple[Candidate, ...]

    @classmethod
    def among(cls, kernels: Sequence[Kernel], variants: manifest.Variants) -> Variants:
        """The `variants`, of which `kernels` are the candidates."""
        made = cls.of(_Choosing([kernel._launcher for kernel in kernels], variants))
        conditions = [candidate.when for candidate in variants.candidates]
        made._candidates = tuple(map(Candidate, kernels, conditions))
        type(made).__doc__ = f"{variants.name} is {variants}\n\n{type(made).__doc__}"
        return made

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The kernels with their conditions, in the order in which they are tried."""
        return self._candidates

    def explain(self, /, *arguments: Any, **launch: Any) -> None:
        """Print which kernel a launch with these arguments would take, and of all the others why not.

        Nothing is launched. Raises what a launch does for arguments that do not fit, and without a GPU.
        """
        print(self._launcher.explained(arguments, launch))

    def __repr__(self) -> str:
        return f"<variants {self.signature}: {self._launcher.variants}>"


@dataclass(frozen=True)
class _OnGpu:
    """A candidate on GPUs of one kind.

    ``architecture`` is that of the image that they take, or ``obstacle`` says why there is none.
    """

    launcher: Launcher
    condition: Condition | None
    capability: int
    architecture: str = ""
    obstacle: str = ""

    @classmethod
    def of(cls, launcher: Launcher, condition: Condition | None, device: Device) -> _OnGpu:
        try:
            image, _ = launcher.library.image(launcher.kernel, device)
        except NoImageError:
            kernel, module = launcher.kernel, launcher.library.manifest
            images = module.units[kernel.unit].images
            built = [image.architecture for image in images if module.lowered_name(kernel, image) is not None]
            obstacle = f"no image for this GPU, {device}; built for {', '.join(built) or 'none'}"
            return cls(launcher, condition, device.capability, obstacle=obstacle)
        except DriverError as error:
            return cls(launcher, condition, device.capability, obstacle=str(error))
        return cls(launcher, condition, device.capability, image.architecture)

    @cached_property
    def left(self) -> Condition | bool:
        """What the GPU leaves open of the condition, or whether the candidate can be taken at all."""
        if self.condition is None:
            return True  # if the default has no image, launching it says so
        return not self.obstacle and settled(self.condition, self._holds)

    def taken(self, integers: Mapping[str, int]) -> bool:
        """Whether arguments with these values fulfil the condition."""
        return settled(self.left, lambda leaf: self._holds(leaf, integers)) is True

    def reason(self, integers: Mapping[str, int]) -> str:
        """Why it is taken, or is not."""
        if self.obstacle or self.condition is None:
            return self.obstacle or "the default"
        deciding = reasons(self.condition, lambda leaf: self._holds(leaf, integers))
        return ", ".join(dict.fromkeys(self._fact(leaf, integers) for leaf in deciding))

    def _holds(self, leaf: Leaf, integers: Mapping[str, int] | None = None) -> bool | None:
        """Whether `leaf` holds; ``None`` if that cannot be told without `integers`."""
        match leaf:
            case Target(_, ""):
                return leaf.number == self.capability
            case Target():
                return str(leaf) == f"sm_{Architecture.parse(self.architecture).target}"
            case Comparison(name):
                number = self.capability if name == SM else (integers or {}).get(name)
                return None if number is None else leaf.holds(number)

    def _fact(self, leaf: Leaf, integers: Mapping[str, int]) -> str:
        """What `leaf` asks for, as it is."""
        match leaf:
            case Target(_, ""):
                return f"this GPU is sm_{self.capability}"
            case Target():
                return f"this GPU takes {self.architecture}"
            case Comparison(name):
                value = leaf.value(self.capability if name == SM else integers[name])
                return f"{leaf.term} is {value}"


class _Choosing(Launcher):
    """Launches one of several candidates, which all take the same arguments."""

    def __init__(self, candidates: Sequence[Launcher], variants: manifest.Variants) -> None:
        default = candidates[-1]
        super().__init__(default.library, replace(default.kernel, expression=variants.name))
        self.variants = variants
        self._candidates = candidates
        self._conditions = conditions_of(variants, default.kernel)
        self._integers = {p.name: i for i, p in enumerate(self.kernel.parameters) if p.is_integer}
        self._by_capability: dict[int, list[_OnGpu]] = {}

    @property
    def candidates(self) -> Sequence[Launcher]:
        return self._candidates

    def chosen(self, device: Device, values: Sequence[Any]) -> Launcher:
        integers = self._named(values)
        return next(candidate.launcher for candidate in self._on(device) if candidate.taken(integers))

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

    def loaded(self, device: Device) -> LoadedKernel:  # noqa: ARG002 - whatever the device is
        names = ", ".join(candidate.kernel.expression for candidate in self._candidates)
        raise ArgumentError(f"{self.variants.name} stands for several kernels; ask one of them: {names}")

    def explained(self, arguments: Sequence[object], launch: Mapping[str, object]) -> str:
        """What :meth:`Variants.explain` prints."""
        given = {name: value for name, value in launch.items() if name not in LAUNCH_KEYWORDS}
        _, values, _, device = self.located(arguments, given, launch.get("stream"))
        integers = self._named(values)
        rows, chosen = [], False
        for each, candidate in zip(self._on(device), self.variants.candidates, strict=True):
            verdict = "not asked" if chosen else "taken" if each.taken(integers) else "not taken"
            why = "" if chosen else f": {each.reason(integers)}"
            rows.append((candidate.kernel, f"if {candidate.when}" if candidate.when else "", verdict + why))
            chosen = chosen or verdict == "taken"
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:2]
        lines = ["  ".join(map(str.ljust, row, (*widths, 0))) for row in rows]
        return "\n  ".join([f"{self.kernel.signature} on GPU {device.ordinal}, {device}:", *lines])

    def _named(self, values: Sequence[Any]) -> dict[str, int]:
        """The integers among `values`, by the names of their parameters."""
        return {name: values[position] for name, position in self._integers.items()}

    def _on(self, device: Device) -> list[_OnGpu]:
        if device.capability not in self._by_capability:
            self._by_capability[device.capability] = [
                _OnGpu.of(launcher, condition, device)
                for launcher, condition in zip(self._candidates, self._conditions, strict=True)
            ]
        return self._by_capability[device.capability]

    def _choice_on(self, device: Device, table: str) -> str:
        """What :meth:`choice` gives for one GPU: ``(table0 if v0 >= 65536 else table2)``."""
        text = ""
        for number, candidate in reversed(list(enumerate(self._on(device)))):
            if candidate.left is True:
                text = f"{table}{number}"
            elif candidate.left is not False:
                text = f"{table}{number} if {spelled(candidate.left, self._leaf)} else {text}"
        return f"({text})"

    def _leaf(self, leaf: Leaf) -> str:
        """`leaf` with a position for a name: nothing that a manifest says becomes Python."""
        assert isinstance(leaf, Comparison)  # noqa: S101 - what the GPU leaves open is about arguments
        return str(replace(leaf, name=f"v{self._integers[leaf.name]}"))
