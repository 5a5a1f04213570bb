"""Kernels of one name, among which launches choose by conditions on their arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from cuda_ext.compiler.products import Library
from cuda_ext.errors import BuildError
from cuda_ext.facts.candidates import Candidate, Variants
from cuda_ext.facts.kernels import Kernel
from cuda_ext.text.brackets import split_arguments


def find_candidates(module: str, libraries: Iterable[Library]) -> Iterator[Variants]:
    """Group the kernels that were compiled under conditions by name; and those with derived constants.

    Raises :class:`BuildError` if one call does not fit all kernels of a group.
    """
    by_name: dict[str, list[Candidate]] = {}
    derived: dict[str, list[Candidate]] = {}
    kernels: dict[str, Kernel] = {}
    for library in libraries:
        kernels |= {kernel.expression: kernel for kernel in library.kernels}
        for expression, conditions in library.conditions.items():
            own = [Candidate(expression, condition) for condition in conditions or ((),)]
            by_name.setdefault(kernels[expression].name, []).extend(own)
            if name := _name_without_derived(kernels[expression]):
                terms = tuple(chain.from_iterable(kernels[expression].derived.values()))
                own = [candidate._replace(when=terms + candidate.when) for candidate in own]
                derived.setdefault(name, []).extend(own)
    for name, candidates in by_name.items():
        if any(candidate.when for candidate in candidates):
            _check_calls(module, [kernels[candidate.kernel] for candidate in candidates])
            yield Variants(name, tuple(sorted(candidates, key=lambda c: not c.when)), specialised=True)
    for name, candidates in derived.items():
        if name in by_name:
            raise BuildError(
                f"{name} is a kernel, and stands for kernels among which a launch chooses by constants",
                where=module,
                remedy="give this kernel the constants, too, or leave it out",
            )
        _check_calls(module, [kernels[candidate.kernel] for candidate in candidates])
        candidates.sort(key=lambda candidate: _order(kernels[candidate.kernel]))
        default = next((i for i, each in enumerate(candidates) if not each.when), len(candidates))
        yield Variants(name, tuple(candidates[: default + 1]), specialised=True)


def _name_without_derived(kernel: Kernel) -> str:
    """Return the name of `kernel` without its derived constants; nothing if it has none."""
    name, _, arguments = kernel.name.removesuffix(">").partition("<")
    kept = [each for each in split_arguments(arguments) if each.partition("=")[0] not in kernel.derived]
    if not kernel.derived:
        return ""
    return f"{name}<{', '.join(kept)}>" if kept else name


def _order(kernel: Kernel) -> list[int]:
    """Return the values of derived constants, by which launches try kernels; ``True`` is first."""
    values = (kernel.constants[name] for name in kernel.derived)
    return [("True", "False").index(value) if value[:1] in "TF" else int(value) for value in values]


def _check_calls(module: str, kernels: Sequence[Kernel]) -> None:
    """Check that one call fits all `kernels` of a name. Raises :class:`BuildError`."""
    first, *others = kernels
    for other in others:
        if other.hidden != first.hidden or [p._replace(offset=0) for p in other.parameters] != [
            p._replace(offset=0) for p in first.parameters
        ]:
            raise BuildError(
                f"{first.signature} and {other.signature} have one name and other parameters",
                where=module,
                remedy="give them different names, or the same parameters",
            )
