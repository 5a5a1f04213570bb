"""Kernels of one Python function that are compiled on demand, at the first call that needs them.

Calls of a family have equal types and constants. Its kernels are for different values of arguments, such as
addresses that are divisible by 16, and a launch tells these apart as for kernels that were built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cuda_ext.errors import ArgumentError, CompilationError, DriverError, ToolchainError
from cuda_ext.facts import candidates as facts
from cuda_ext.facts import kernels
from cuda_ext.formats.variant_conditions import Condition
from cuda_ext.runtime.driver.driver import open_driver
from cuda_ext.runtime.inferred_calls import Inferred, infer_call
from cuda_ext.runtime.jit.on_demand import Owner
from cuda_ext.runtime.jit.request import Entry
from cuda_ext.runtime.kernel import Kernel
from cuda_ext.runtime.loaded_library import Library
from cuda_ext.runtime.variants import Variants


class PythonDemand:
    """Compiles the function `name`, which `owner` defines, for the calls that no built kernel takes."""

    def __init__(self, library: Library, name: str, owner: Owner) -> None:
        self._library = library
        self._name = name
        self._owner = owner
        self.source = library.on_demand.python[owner.source]
        self.parameters = self.source.functions[name].parameters
        # The kernels of each family, by their instantiations, and the conditions of a launch.
        self._families: dict[str, dict[str, tuple[kernels.Kernel, Sequence[Condition]]]] = {}
        self._current: dict[str, Kernel] = {}

    def infer(self, arguments: Sequence[object], keywords: Mapping[str, object]) -> Inferred | None:
        """Return the instantiation for a call, or ``None`` if no instantiation would take it."""
        return infer_call(self.source, self._name, arguments, keywords)

    def knows(self, call: Inferred) -> bool:
        return call.text in self._families.get(call.family, ())

    def kernel(self, call: Inferred, error: ArgumentError) -> Kernel:
        """Return the kernel of the family of `call`, compiled for it if necessary.

        Raises :class:`~cuda_ext.errors.CompilationError`, or `error` with the reason if nothing can be
        compiled.
        """
        family = self._families.setdefault(call.family, {})
        if call.text not in family:
            kernel, entry = self._compile(call, error)
            family[call.text] = kernel, entry.conditions
            self._current[call.family] = self._kernel_of(call.family)
        return self._current[call.family]

    def _compile(self, call: Inferred, error: ArgumentError) -> tuple[kernels.Kernel, Entry]:
        obstacle = self._library.on_demand.obstacle(self._library.manifest.units[self._owner.unit])
        if not obstacle:
            try:
                capability = open_driver().current_device().capability
                on_demand = self._library.on_demand
                entry = on_demand.compile(on_demand.request_kernel(self._owner, call.text, capability))
                self._library.owners[call.text] = self._owner
                kernel = entry.kernels[0]._replace(expression=call.text, unit=self._owner.unit)
                return kernel, entry
            except (DriverError, ToolchainError) as reason:
                obstacle = str(reason)
            except CompilationError as refused:
                raise refused.with_traceback(None) from None  # the inner frames do not help users
        advice = f'add "{call.line}" to `instantiate` and build again'
        remedy = "; ".join(filter(None, [error.remedy, f"jit: {obstacle}", advice]))
        raise ArgumentError(error.problem, where=error.where, remedy=remedy)

    def _kernel_of(self, name: str) -> Kernel:
        family = self._families[name]
        if not any(conditions for _, conditions in family.values()):
            ((kernel, _),) = family.values()
            return Kernel.of(self._library, kernel)
        candidates = [
            facts.Candidate(text, condition)
            for text, (_, conditions) in family.items()
            for condition in conditions or ((),)
        ]
        # cuTile's conditions do not exclude each other: the one with the most terms is the most special.
        candidates.sort(key=lambda candidate: -len(candidate.when))
        own = [Kernel.of(self._library, family[candidate.kernel][0]) for candidate in candidates]
        self._library.owners[name] = self._owner
        return Variants.among(self._library, own, facts.Variants(name, tuple(candidates), specialised=True))


def find_demand(library: Library, name: str) -> PythonDemand | None:
    """Find the Python function `name`, if missing kernels of it are compiled on demand."""
    owner = library.on_demand.python_owner(name)
    return PythonDemand(library, name, owner) if owner else None
