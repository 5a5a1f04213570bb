"""``cuda_ext.prepare``: compilation on demand, ahead of the demand.

For container images, and for the start of clusters: afterwards no process has to compile at its first call.
No GPU is needed where architectures are named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from cuda_ext.compiler.name_expressions import normalise
from cuda_ext.errors import BuildError, KernelNotFoundError
from cuda_ext.manifest import Unit
from cuda_ext.runtime.driver.images import select_image
from cuda_ext.runtime.driver.loaded_library import Library
from cuda_ext.runtime.jit.on_demand import Owner
from cuda_ext.runtime.jit.request import Demand
from cuda_ext.runtime.module import KernelModule, library_of
from cuda_ext.runtime.suggestions import did_you_mean
from cuda_ext.toolchain import native_gpus

__all__ = ["Preparation", "prepare", "prepare_library"]


@dataclass(frozen=True, slots=True)
class Preparation:
    """What was ``compiled``, and what was ``known`` before: ``axpy<__half> for sm_90``, each as text."""

    compiled: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


def prepare(
    module: ModuleType,
    expressions: Sequence[str] | None = None,
    *,
    architectures: Sequence[str] | None = None,
) -> Preparation:
    """Compile what would be compiled on demand, and keep it in the cache.

    `expressions` are C++ name expressions of kernels of `module`; those of one source are compiled in one go.
    By default it is everything that was built, for GPUs that no image was built for. `architectures`, spelled
    ``sm_90``, stand for GPUs; by default they are those of this machine.

    Raises :class:`~cuda_ext.errors.BuildError` where nothing can be compiled, and
    :class:`~cuda_ext.errors.KernelNotFoundError` for an expression that no source defines.
    """
    if not isinstance(module, KernelModule):
        raise TypeError(f"expected a module of kernels, as an import gives it, found {module!r}")
    return prepare_library(library_of(module), expressions, architectures)


def prepare_library(
    library: Library, expressions: Sequence[str] | None, architectures: Sequence[str] | None
) -> Preparation:
    """The same for what is behind a module."""
    if isinstance(expressions, str) or isinstance(architectures, str):
        raise TypeError('expected lists of strings, found a string; write ["..."]')
    if reason := library.on_demand.why_not():
        raise BuildError(
            f"{library.manifest.module}: nothing is compiled on demand: jit: {reason}; what it lacks goes "
            "into architectures and `instantiate`"
        )
    names = None if expressions is None else list(map(normalise, expressions))
    compiled: list[str] = []
    known: list[str] = []
    for capability in _capabilities(architectures):
        for demand, singles in _demands(library, names, capability).items():
            missing = [single for single in singles if library.on_demand.known(single) is None]
            known += [str(single) for single in singles if single not in missing]
            if len(missing) == 1:
                library.on_demand.made(missing[0])
            elif missing:
                library.on_demand.refer(missing, library.on_demand.made(demand))
            compiled += map(str, missing)
    return Preparation(tuple(compiled), tuple(known))


def _capabilities(architectures: Sequence[str] | None) -> list[int]:
    if architectures is None:
        if found := native_gpus.capabilities():
            return found
        raise BuildError('architectures: there is no GPU here; name those of others, such as "sm_90"')
    capabilities = []
    for name in architectures:
        if not re.fullmatch("sm_[0-9]{2,3}", name):
            remedy = "name none for those of this machine" if name == "native" else "spell them as sm_90"
            raise BuildError(f"architectures: {name!r} stands for no GPU; {remedy}")
        capabilities.append(int(name.removeprefix("sm_")))
    return list(dict.fromkeys(capabilities))


def _demands(library: Library, names: Sequence[str] | None, capability: int) -> dict[Demand, list[Demand]]:
    """What to compile at once, with the demands that this meets."""
    on_demand = library.on_demand
    lacking = [unit for unit in library.manifest.units if _lacks(library, unit, capability)]
    if names is None:
        wholes = [on_demand.whole(unit, capability) for unit in lacking]
        return {whole: [whole] for whole in wholes}
    demands: dict[Demand, list[Demand]] = {}
    owned: dict[Owner, list[str]] = {}
    for name in dict.fromkeys(names):
        if kernel := library.index.expressions.get(name):
            if (unit := library.manifest.units[kernel.unit]) in lacking:
                whole = on_demand.whole(unit, capability)
                demands[whole] = [whole]
        elif "<" in name and (owner := on_demand.owner(name)):
            owned.setdefault(owner, []).append(name)
        else:
            hint = did_you_mean(name, [*library.index.expressions, *library.index.kernels])
            raise KernelNotFoundError(
                f"{library.manifest.module} has no kernel {name!r}{hint}; cuda_ext.describe lists what it has"
            )
    for owner, expressions in owned.items():
        together = on_demand.instantiations(owner, expressions, capability)
        demands[together] = [on_demand.instantiations(owner, [e], capability) for e in expressions]
    return demands


def _lacks(library: Library, unit: Unit, capability: int) -> bool:
    """Whether `unit`, which can be compiled, has no image for a GPU of that capability."""
    return select_image(unit.images, capability) is None and not library.on_demand.why_not(unit)
