"""``Variants``: one name for several kernels. A launch takes the first whose condition holds.

The parts of a condition about the GPU are evaluated once for GPUs of one name. Launches in C compare the
arguments with numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import reduce
from math import log2
from operator import and_
from typing import TYPE_CHECKING, Any, NamedTuple

from cuda_ext.errors import ArgumentError, DriverError
from cuda_ext.facts import candidates as facts
from cuda_ext.facts import kernels
from cuda_ext.facts.structures import Operand, operands_of
from cuda_ext.formats.variant_conditions import CANDIDATE, SM, holds, is_about_gpu, on_gpu
from cuda_ext.runtime.arrays.device_memory import DeviceMemory
from cuda_ext.runtime.arrays.host_arrays import HostArray
from cuda_ext.runtime.driver.driver import Device
from cuda_ext.runtime.driver.loaded_kernel import LoadedKernel
from cuda_ext.runtime.kernel import Documentation, Kernel
from cuda_ext.runtime.launch.configuration import LaunchOptions
from cuda_ext.runtime.launch.fast_launch import extent_terms
from cuda_ext.runtime.launch.launcher import Launched, Launcher, ResolvedArguments
from cuda_ext.runtime.loaded_library import Library

if TYPE_CHECKING:
    from cuda_ext.runtime.launch._launch import Choice
    from cuda_ext.runtime.launch._launch import Term as CompiledTerm

# If the text before a verdict is wider, the verdict of an explanation goes on the next line.
_WIDEST = 100


class Candidate(NamedTuple):
    """A kernel and the condition of its launch, which is ``None`` for the default."""

    kernel: Kernel
    when: str | None


class Variants(Kernel):
    """Several kernels under one name. A launch takes the first whose condition holds, else the last.

    Kernels without an image for the GPU are skipped. Otherwise it behaves like a single kernel.
    """

    __doc__ = Documentation(__doc__, lambda kernel: kernel._help())

    _launcher: _VariantsLauncher
    _candidates: tuple[Kernel, ...]

    @classmethod
    def among(cls, library: Library, kernels: Sequence[Kernel], variants: facts.Variants) -> Variants:
        """Create the `variants` of `library`, with `kernels` as the candidates."""
        launchers = [kernel._launcher for kernel in kernels]
        launcher = _VariantsLauncher(library, launchers, variants)
        created = cls.of(library, launcher.kernel, tuple(kernels))
        created._launcher = launcher
        return created

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The kernels with their conditions, in the order in which a launch tries them."""
        conditions = (candidate.condition or None for candidate in self._launcher.variants.candidates)
        return tuple(map(Candidate, self._candidates, conditions))

    def explain(self, /, *arguments: Any, **launch: Any) -> None:
        """Print which kernel a launch with these arguments would take, and why it takes none of the others.

        Nothing is launched. Raises the errors of a launch for arguments that do not fit, and without a GPU.
        """
        print(self._launcher.explain(arguments, launch))

    def configurations(self, /, *arguments: Any, **launch: Any) -> list[Kernel]:
        """Return a kernel for each configuration, the default last, all of which take these arguments.

        The sizes and the GPU for which a configuration is chosen do not matter, but what it was compiled for.
        """
        return [self._candidates[number] for number in self._launcher.find_configurations(arguments, launch)]

    def taken(self, /, *arguments: Any, **launch: Any) -> Kernel:
        """Return the kernel that a launch with these arguments takes. Nothing is launched."""
        options, named = LaunchOptions.split(launch)
        chosen = self._launcher.choose(self._launcher.resolve(arguments, named, options))
        return self._candidates[self._launcher.number_of(chosen)]

    @property
    def tuning(self) -> facts.Tuning | None:
        """The arguments by which the candidates are measured; ``None`` if they are not."""
        return self._launcher.variants.tuning

    @property
    def _is_fixed(self) -> bool:
        return self._launcher.is_fixed

    def _load(self, device: Device) -> LoadedKernel:
        return self._launcher.load(device)

    def _help(self) -> str:
        variants = self._launcher.variants
        return f"{variants.name} is {variants}\n\n{super()._help()}"

    def __repr__(self) -> str:
        return f"<variants {self.signature}: {self._launcher.variants}>"


class _OnGpu(NamedTuple):
    """A candidate on the GPUs of one name.

    ``architecture`` is that of the image that they load, or ``obstacle`` the reason why there is none.
    """

    launcher: Launcher
    when: Sequence[facts.Term]
    architecture: str
    obstacle: str
    gpu: str

    @classmethod
    def of(cls, library: Library, launcher: Launcher, when: Sequence[facts.Term], device: Device) -> _OnGpu:
        try:
            return cls(launcher, when, library.architecture(launcher.kernel, device), "", device.name)
        except DriverError as error:
            return cls(launcher, when, "", error.problem, device.name)

    def decide(self, numbers: Mapping[str, int]) -> tuple[bool, list[str]]:
        """Return True if `numbers` satisfy the condition, and the reasons."""
        if not self.when:  # launching the default reports a missing image
            return True, [self.obstacle or "the default"]
        if self.obstacle:
            return False, [self.obstacle]
        results = [self._evaluate(term, numbers) for term in self.when]
        wrong = [reason for is_true, reason in results if not is_true]
        return not wrong, wrong[:1] or [reason for _, reason in results]

    def compared(self, capability: int) -> list[facts.Term] | None:
        """Return the terms about arguments; ``None`` if no launch on these GPUs takes the candidate."""
        of_gpu = [term for term in self.when if is_about_gpu(term)]
        is_possible = all(self._evaluate(term, {SM: capability, CANDIDATE: -1})[0] for term in of_gpu)
        if self.when and (self.obstacle or not is_possible):
            return None
        return [term for term in self.when if term not in of_gpu]

    def _evaluate(self, term: facts.Term, numbers: Mapping[str, int]) -> tuple[bool, str]:
        """Return True if `term` holds, and the actual value that it compares."""
        if not term.operator and term.name.startswith("gpu"):
            return term == on_gpu(self.gpu), f"this GPU is {self.gpu}"
        if term.name == CANDIDATE:
            return False, "built to be measured"
        if not term.operator:
            is_loaded = self.architecture.partition("_")[2] == term.name.partition("_")[2]
            return is_loaded, f"this GPU takes {self.architecture}"
        number = numbers[term.name]
        found = number % term.modulus if term.modulus else number
        return holds(term, number), f"{term.left} is {found}"


class _VariantsLauncher(Launcher):
    """Launches one of several candidates, which all have the same parameters."""

    def __init__(self, library: Library, candidates: Sequence[Launcher], variants: facts.Variants) -> None:
        is_built = library.names.has_kernel(variants.name)  # and not compiled on demand
        kernel = library.names.kernel(variants.name) if is_built else candidates[-1].kernel
        common = reduce(and_, (each.kernel.options.items() for each in candidates))
        kernel = kernel._replace(expression=variants.name, options=dict(sorted(common)))
        is_fixed = any(each.is_fixed for each in candidates)
        super().__init__(kernel, self._raise_ambiguous, is_fixed, candidates[-1].structures)
        self.variants = variants
        self._library = library
        self._candidates = candidates
        operands = operands_of(candidates[-1].kernel, library.manifest.structures)
        self._operands = {name: each for name, each in operands.items() if each.parameter.is_comparable}
        self._by_gpu: dict[tuple[int, str], list[_OnGpu]] = {}

    def launch(
        self, arguments: Sequence[object], named: Mapping[str, object], options: LaunchOptions
    ) -> Launched:
        # A decision about copies of host arrays must still hold when the kernel is launched.
        scopes = sys.modules.get("cuda_ext.runtime.arrays.device_scope")
        scope = scopes and scopes.innermost_scope()
        with scope.lock if scope else nullcontext():
            return super().launch(arguments, named, options)

    def choose(self, resolved: ResolvedArguments) -> Launcher:
        numbers = self._numbers(resolved)
        reasons: list[str] = []
        candidates = self._on(resolved.device)
        if all(candidate.obstacle for candidate in candidates):
            return candidates[-1].launcher  # the launch reports the error
        for candidate in candidates:
            is_taken, why = candidate.decide(numbers)
            if is_taken:
                return candidate.launcher
            reasons += why
        largest = candidates[-1].launcher.kernel
        needed = dict(_needed_values(largest, numbers))
        advice = (
            f"the largest is {name}={largest.constants[name]}; add {value} to {name} in `instantiate`"
            for name, value in needed.items()
        )
        error = ArgumentError(
            f"was compiled only for conditions that do not hold: {', '.join(dict.fromkeys(reasons))}",
            where=self.variants.name,
            remedy=next(advice, f"it is {self.variants}"),
        )
        error.is_missing, error.needed = bool(needed), needed
        raise error

    def find_choice(self, chosen: Launcher, device: Device) -> tuple[int, Choice]:
        return self.number_of(chosen), self._choice_on(device)

    def number_of(self, chosen: Launcher) -> int:
        """Return the position of the candidate `chosen`."""
        return self._candidates.index(chosen)

    def find_configurations(self, arguments: Sequence[object], launch: Mapping[str, object]) -> list[int]:
        """Return the first candidate of each configuration that was compiled for such arguments."""
        options, named = LaunchOptions.split(launch)
        resolved = self.resolve(arguments, named, options)
        numbers = self._numbers(resolved)
        found: dict[tuple[tuple[str, str], ...], int] = {}
        for number, each in enumerate(self._on(resolved.device)):
            promises = (term for term in each.when if term.modulus or term.operator == "==")
            if all(is_about_gpu(term) or holds(term, numbers[term.name]) for term in promises):
                found.setdefault(tuple(sorted(each.launcher.kernel.configuration.items())), number)
        return list(found.values())

    def _choice_on(self, device: Device) -> Choice:
        parts = {name: (each.position, _part(each), each.offset) for name, each in self._operands.items()}
        parts |= extent_terms(self.kernel)
        required: list[CompiledTerm] = []
        for number, candidate in enumerate(self._on(device)):
            terms = candidate.compared(device.capability)
            if terms == []:
                return tuple(required), number
            required += (
                (number, *parts[each.name], each.modulus, each.operator, each.number) for each in terms or ()
            )
        return tuple(required), -1

    def explain(self, arguments: Sequence[object], launch: Mapping[str, object]) -> str:
        """Write the text that :meth:`Variants.explain` prints."""
        options, named = LaunchOptions.split(launch)
        resolved = self.resolve(arguments, named, options)
        device, numbers = resolved.device, self._numbers(resolved)
        rows, is_chosen = [], False
        for each, candidate in zip(self._on(device), self.variants.candidates, strict=True):
            is_taken, reasons = each.decide(numbers)
            if is_taken and (case := self._measured_near(candidate, numbers)):
                reasons = [*reasons, case]
            why = ", ".join(dict.fromkeys(reasons))
            verdict = "not asked" if is_chosen else f"{'taken' if is_taken else 'not taken'}: {why}"
            rows.append((*_title(each.launcher.kernel, candidate, self.variants), verdict))
            is_chosen = is_chosen or is_taken
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:2]
        used = [i for i, width in enumerate((*widths, 1)) if width]
        lines = ["  ".join(row[i].ljust((*widths, 0)[i]) for i in used) for row in rows]
        if sum(widths) > _WIDEST:
            lines = ["\n    ".join(filter(None, row)) for row in rows]
        return "\n  ".join([f"{self.kernel.signature} on GPU {device.ordinal}, {device}:", *lines])

    def _measured_near(self, candidate: facts.Candidate, numbers: Mapping[str, int]) -> str:
        """Spell the measured case of `candidate` that is nearest to `numbers`; nothing without one."""
        key = self.variants.tuning.sizes(self.kernel.constants) if self.variants.tuning else ()

        def distance(case: facts.Measured) -> float:
            pairs = zip(key, case.key, strict=False)
            return sum(log2(max(numbers.get(name, 1), 1) / max(value, 1)) ** 2 for name, value in pairs)

        if not (case := min(candidate.measured, key=distance, default=None)):
            return ""
        values = ", ".join(f"{name} = {value}" for name, value in zip(key, case.key, strict=False))
        return f"measured on {case.device} for {values}"

    def _raise_ambiguous(self, device: Device) -> LoadedKernel:  # noqa: ARG002 - the signature of a load
        names = ", ".join(dict.fromkeys(candidate.kernel.expression for candidate in self._candidates))
        raise ArgumentError(
            f"{self.variants.name} stands for several kernels", remedy=f"ask one of them: {names}"
        )

    def _numbers(self, resolved: ResolvedArguments) -> dict[str, int]:
        """Return the operands of conditions by name: values and extents of arguments, and the capability."""
        values = self._values(resolved)
        numbers = {name: _number(values[each.position], each) for name, each in self._operands.items()}
        return {**numbers, **resolved.extents, SM: resolved.device.capability}

    @staticmethod
    def _values(resolved: ResolvedArguments) -> list[Any]:
        """Return the values, with addresses for arrays; addresses of copied host arrays are modulo 256."""
        arrays = [value for value in resolved.values if isinstance(value, HostArray)]
        copies: Mapping[HostArray, int] = {}
        if arrays:
            from cuda_ext.runtime.arrays.device_scope import DeviceCopies, innermost_scope  # a slow import

            copies = (innermost_scope() or DeviceCopies()).expect_addresses(arrays)
        return [_plain_value(each, copies) for each in resolved.values]

    def _on(self, device: Device) -> list[_OnGpu]:
        gpu = device.capability, device.name
        if gpu not in self._by_gpu:
            self._by_gpu[gpu] = [
                _OnGpu.of(self._library, launcher, candidate.when, device)
                for launcher, candidate in zip(self._candidates, self.variants.candidates, strict=True)
            ]
        return self._by_gpu[gpu]


def _needed_values(largest: kernels.Kernel, numbers: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield the values of derived constants that would suffice, where those of the `largest` do not."""
    for name, terms in largest.derived.items():
        factor, wrong = 1, [t for t in terms if t.number > 0 and not holds(t, numbers[t.name])]
        while any(numbers[term.name] > term.number * factor for term in wrong):
            factor *= 2
        if factor > 1:
            yield name, int(largest.constants[name]) * factor


# What C takes of an argument: its value, or a member with so many bytes.
_MEMBERS = {1: "b", 2: "h", 4: "i", 8: "q"}


def _part(operand: Operand) -> str:
    if not operand.is_member:
        return "v"
    letter = _MEMBERS[operand.parameter.size]
    return letter if operand.parameter.kind == "integer" else letter.upper()


def _number(value: Any, operand: Operand) -> int:
    """Return the number that conditions compare, in the plain `value` of a parameter."""
    if not operand.is_member:
        number: int = value
        return number
    content = value if isinstance(value, bytes) else value.to_bytes(8, "little")  # a structure of an address
    member = content[operand.offset : operand.offset + operand.parameter.size]
    return int.from_bytes(member, "little", signed=operand.parameter.kind == "integer")


def _plain_value(value: Any, copies: Mapping[HostArray, int]) -> Any:
    """Return the address of an array; that of one of the `copies` is known modulo 256, and not null."""
    if isinstance(value, HostArray):
        return copies[value] % 256 + 256 if value in copies else 0  # an empty array has no copy
    return value.address if isinstance(value, DeviceMemory) else value


def _title(kernel: kernels.Kernel, candidate: facts.Candidate, variants: facts.Variants) -> tuple[str, str]:
    """Return the text that identifies a candidate (its name or its values), and its condition."""
    when = f"if {candidate.condition}" if candidate.when else ""
    if not variants.is_one_kernel:
        return candidate.kernel.partition(" if ")[0], when
    return when or "otherwise", ", ".join(f"{name}={value}" for name, value in kernel.configuration.items())
