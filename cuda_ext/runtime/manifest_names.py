"""The names of a manifest that can be looked up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from cuda_ext.errors import ManifestError
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import FILE_NAME, Manifest, names_of

if TYPE_CHECKING:
    from cuda_ext.facts.candidates import Variants
    from cuda_ext.facts.symbols import Symbol


class Names:
    """The names in `manifest`: kernels, variants, symbols and namespaces.

    A kernel has the name expression of the manifest. A specialised kernel, whose candidates are all called
    ``name if condition``, is one kernel with the name before the condition.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._positions = {name: position for position, name in enumerate(names_of(manifest.kernels))}
        # By name; for a specialised kernel, the position of the last candidate.
        self._kernels: dict[str, int] = {}
        self.specialised: set[str] = set()
        for expression, position in self._positions.items():
            name, condition, _ = expression.partition(" if ")
            if condition:
                self.specialised.add(name)
            self._kernels[name] = position
        self._variants = {name: position for position, name in enumerate(names_of(manifest.variants))}
        self._add_derived()
        self._symbols: dict[str, list[int]] = {}
        for position, name in enumerate(names_of(manifest.symbols)):
            self._symbols.setdefault(name, []).append(position)

    def _add_derived(self) -> None:
        """Add the names of kernels whose constants a launch derives: kernels have them with the constants."""
        others = self._variants.keys() - self._kernels.keys()
        functions = {name.partition("<")[0] for name in self._kernels} if others else ()
        for name in (each for each in self._variants if each in others):
            if name.partition("<")[0] in functions:
                self.specialised.add(name)
                self._kernels[name] = -1

    @cached_property
    def everything(self) -> list[str]:
        """The names of all kernels, variants and symbols, and of structures that are attributes."""
        variants = [name for name in self._variants if name not in self.specialised]
        structures = (s.name for s in self._manifest.structures if s.is_attribute)
        constants = ["constants"] if len(self._manifest.constants) else []
        return [*self._kernels, *variants, *self._symbols, *structures, *constants]

    @cached_property
    def _overloads(self) -> dict[str, list[str]]:
        overloads: dict[str, list[str]] = {}
        for name in self._kernels:
            template = _strip_parameters(name) if name.endswith(")") else name
            for each in dict.fromkeys((name, template, template.partition("<")[0])):
                overloads.setdefault(each, []).append(name)
        return overloads

    @cached_property
    def members(self) -> dict[str, set[str]]:
        """The names in each namespace; ``""`` is the global one."""
        members: dict[str, set[str]] = {"": set()}
        for name in {each.partition("<")[0].partition("(")[0] for each in self.everything}:
            namespace = ""
            for part in name.split("::"):
                members.setdefault(namespace, set()).add(part)
                namespace = f"{namespace}::{part}" if namespace else part
        return members

    @property
    def looked_up(self) -> list[str]:
        """All names with and without template arguments and parameters, and namespaces."""
        return [*dict.fromkeys([*self._overloads, *self.everything, *self.members])]

    def overloads(self, name: str) -> Sequence[str]:
        """List the kernels that `name` may mean: ``f`` and ``f<int>`` both mean ``f<int>(int*)``."""
        return self._overloads.get(name, ())

    def has_kernel(self, name: str) -> bool:
        """Return True if `name` is a kernel, with its template arguments and parameters."""
        return name in self._kernels

    def kernel(self, name: str) -> Kernel:
        """Return the kernel `name`; for a specialised kernel, the last candidate under this name."""
        position = self._kernels.get(name)
        if position == -1:
            kernel = self.candidates(self._manifest.variants[self._variants[name]])[-1]
            kept = {each: text for each, text in kernel.constants.items() if each not in kernel.derived}
            return kernel._replace(expression=name, constants=kept)
        kernel = self._manifest.kernels[self._positions[name] if position is None else position]
        return kernel._replace(expression=name) if name in self.specialised else kernel

    def variants(self, name: str) -> Variants | None:
        """Return the variants `name`, or ``None``."""
        position = self._variants.get(name)
        return None if position is None else self._manifest.variants[position]

    def candidates(self, variants: Variants) -> list[Kernel]:
        """List the kernels among which `variants` choose.

        Raises :class:`~cuda_ext.errors.ManifestError` if one is missing, or if one call does not fit all.
        """
        positions = [self._positions.get(candidate.kernel) for candidate in variants.candidates]
        found = [self._manifest.kernels[position] for position in positions if position is not None]
        sizes = {tuple(parameter.size for parameter in kernel.parameters) for kernel in found}
        is_complete = len(found) == len(positions) and len(sizes) == 1
        if not is_complete or not _can_compare(found[-1], variants, self._manifest):
            raise ManifestError(
                f"damaged manifest: the candidates of {variants.name!r} are not kernels with one signature, "
                "or compare what no launch has",
                where=f"{self._manifest.module}: {FILE_NAME}",
                remedy="reinstall the package that holds it",
            )
        return found

    def symbols(self, name: str) -> list[Symbol]:
        """List the symbols called `name`; each unit may have one."""
        return [self._manifest.symbols[position] for position in self._symbols.get(name, ())]


def _can_compare(kernel: Kernel, variants: Variants, manifest: Manifest) -> bool:
    """Return True if a launch of `kernel` has all values that the conditions of `variants` compare."""
    from cuda_ext.facts.structures import comparable_names  # few modules have variants
    from cuda_ext.formats.variant_conditions import CANDIDATE, SM

    known = {SM, CANDIDATE, *comparable_names(kernel, manifest.structures)}
    terms = (term for candidate in variants.candidates for term in candidate.when)
    return known.issuperset(term.name for term in terms if term.operator)


def _strip_parameters(name: str) -> str:
    """Remove the final parameter list from `name`, a normalised name expression.

    >>> _strip_parameters("f<(Mode)1>(int, void(*)(int))")
    'f<(Mode)1>'
    """
    depth, start = 0, len(name)
    while start and (depth or start == len(name)):
        start -= 1
        depth += {")": 1, "(": -1}.get(name[start], 0)
    return name[:start]
