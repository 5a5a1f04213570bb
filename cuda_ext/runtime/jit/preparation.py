"""Compile ahead of demand what would be compiled on demand, for several GPUs, and cache it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cuda_ext.compiler.name_expressions import normalise, plain_name
from cuda_ext.errors import BuildError, KernelNotFoundError, did_you_mean
from cuda_ext.manifest import Unit
from cuda_ext.runtime.driver.images import select_image
from cuda_ext.runtime.jit.on_demand import OnDemand, Owner
from cuda_ext.runtime.jit.request import Request
from cuda_ext.toolchain.bindings import gpu_capabilities

__all__ = ["Preparation", "prepare_entries"]


@dataclass(frozen=True, slots=True)
class Preparation:
    """What was ``compiled``, and what was ``known`` before: texts such as ``axpy<__half> for sm_90``."""

    compiled: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


def prepare_entries(
    on_demand: OnDemand, expressions: Sequence[str] | None, architectures: Sequence[str] | None
) -> Preparation:
    """Compile `expressions`, or else everything that lacks an image, for `architectures` or the local GPUs.

    Raises as :func:`cuda_ext.prepare` does.
    """
    if isinstance(expressions, str) or isinstance(architectures, str):
        raise TypeError('expected lists of strings, found a string; write ["..."]')
    if reason := on_demand.obstacle():
        raise BuildError(
            f"nothing is compiled on demand: jit: {reason}",
            where=on_demand.manifest.module,
            remedy="what it lacks goes into architectures and `instantiate`",
        )
    names = None if expressions is None else list(map(normalise, expressions))
    compiled: list[str] = []
    known: list[str] = []
    for capability in _capabilities(architectures):
        for request, parts in _requests(on_demand, names, capability).items():
            missing = [part for part in parts if on_demand.find(part) is None]
            known += [str(part) for part in parts if part not in missing]
            if len(missing) == 1:
                on_demand.compile(missing[0])
            elif missing:
                on_demand.compile_together(request, missing)
            compiled += map(str, missing)
    return Preparation(tuple(compiled), tuple(known))


def _capabilities(architectures: Sequence[str] | None) -> list[int]:
    if architectures is None:
        if capabilities := gpu_capabilities():
            return capabilities
        raise BuildError(
            "there is no GPU here", where="architectures", remedy='name those of others, such as "sm_90"'
        )
    capabilities = []
    for name in architectures:
        if not re.fullmatch("sm_[0-9]{2,3}", name):
            remedy = "name none for those of this machine" if name == "native" else "spell them as sm_90"
            raise BuildError(f"{name!r} stands for no GPU", where="architectures", remedy=remedy)
        capabilities.append(int(name.removeprefix("sm_")))
    return list(dict.fromkeys(capabilities))


def _requests(
    on_demand: OnDemand, names: Sequence[str] | None, capability: int
) -> dict[Request, list[Request]]:
    """The requests to compile, each with the requests that its entry satisfies."""
    manifest = on_demand.manifest
    lacking = [unit for unit in manifest.units if _lacks_image(on_demand, unit, capability)]
    if names is None:
        return {request: [request] for request in (on_demand.request_unit(u, capability) for u in lacking)}
    kernels = {normalise(kernel.expression): kernel for kernel in manifest.kernels}
    requests: dict[Request, list[Request]] = {}
    owned: dict[Owner, list[str]] = {}
    for name in dict.fromkeys(names):
        if kernel := kernels.get(name):
            if (unit := manifest.units[kernel.unit]) in lacking:
                request = on_demand.request_unit(unit, capability)
                requests[request] = [request]
        elif "<" in name and (owner := on_demand.owner(name)):
            owned.setdefault(owner, []).append(name)
        else:
            raise _unknown_kernel(on_demand, name, list(kernels))
    # All instantiations of one source are compiled at once.
    for owner, expressions in owned.items():
        request = on_demand.request_kernels(owner, expressions, capability)
        requests[request] = [on_demand.request_kernels(owner, [e], capability) for e in expressions]
    return requests


def _unknown_kernel(on_demand: OnDemand, name: str, known: Sequence[str]) -> KernelNotFoundError:
    """The error for the `name` of a kernel that is not one of the `known` expressions."""
    if built := [expression for expression in known if plain_name(expression) == name]:
        remedy = f"name an instantiation or an overload, such as {built[0]!r}"
    elif on_demand.owner(name):
        remedy = f"name an instantiation, {name}<...>"
    else:
        hint = did_you_mean(name, [*known, *map(plain_name, known)])
        remedy = "; ".join(filter(None, [hint, "cuda_ext.describe lists what it has"]))
    return KernelNotFoundError(f"{on_demand.manifest.module} has no kernel {name!r}", remedy=remedy)


def _lacks_image(on_demand: OnDemand, unit: Unit, capability: int) -> bool:
    """Whether `unit` can be compiled on demand and has no image for a GPU of `capability`."""
    return select_image(unit.images, capability) is None and not on_demand.obstacle(unit)
