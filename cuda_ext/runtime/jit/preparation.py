"""Compile kernels in advance that would be compiled on demand, for several GPUs, and cache them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cuda_ext.errors import BuildError, KernelNotFoundError, did_you_mean
from cuda_ext.facts.image_choice import select_image
from cuda_ext.formats.lowered_names.meanings import find_meant
from cuda_ext.formats.spelling import normalise, plain_name
from cuda_ext.runtime.jit.on_demand import OnDemand, Owner
from cuda_ext.runtime.jit.request import Request
from cuda_ext.toolchain.cuda_libraries import gpu_capabilities


@dataclass(frozen=True, slots=True)
class Preparation:
    """Kernels that were ``compiled``, and ones ``known`` before: texts such as ``axpy<__half> for sm_90``.

    ``skipped`` lists sources that lack an image for a GPU, and why they cannot be compiled on demand.
    """

    compiled: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


def prepare_entries(
    on_demand: OnDemand, expressions: Sequence[str] | None, architectures: Sequence[str] | None
) -> Preparation:
    """Compile `expressions`, or else everything that lacks an image, for `architectures` or the local GPUs.

    Raises as :func:`cuda_ext.prepare` does.
    """
    if reason := on_demand.obstacle():
        raise BuildError(
            f"nothing is compiled on demand: jit: {reason}",
            where=on_demand.manifest.module,
            remedy="add what it lacks to architectures and `instantiate`, and build again",
        )
    names = None if expressions is None else list(map(normalise, expressions))
    compiled: list[str] = []
    known: list[str] = []
    skipped: list[str] = []
    for capability in _capabilities(architectures, on_demand.capabilities()):
        for requests in _group_requests(on_demand, names, capability, skipped):
            missing = [request for request in requests if on_demand.find(request) is None]
            if missing:
                on_demand.compile_together(missing)
            compiled += map(str, missing)
            known += [str(request) for request in requests if request not in missing]
    return Preparation(tuple(compiled), tuple(known), tuple(skipped))


def _capabilities(architectures: Sequence[str] | None, known: Sequence[int]) -> list[int]:
    """Return the capabilities of `architectures`, which must be `known`, or else of the local GPUs."""
    if architectures is None:
        if capabilities := gpu_capabilities():
            return capabilities
        raise BuildError(
            "there is no GPU here", where="architectures", remedy='name architectures, such as "sm_90"'
        )
    capabilities = []
    for name in architectures:
        if not re.fullmatch("sm_[0-9]{2,3}", name):
            remedy = (
                "leave it out for the GPUs of this machine" if name == "native" else "spell them as sm_90"
            )
            raise BuildError(
                f"{name!r} is not the architecture of a GPU", where="architectures", remedy=remedy
            )
        capabilities.append(int(name.removeprefix("sm_")))
        if capabilities[-1] not in known:
            spelled = ", ".join(f"sm_{each}" for each in known)
            raise BuildError(
                f"NVRTC does not know {name}", where="architectures", remedy=f"it compiles for {spelled}"
            )
    return list(dict.fromkeys(capabilities))


def _group_requests(
    on_demand: OnDemand, names: Sequence[str] | None, capability: int, skipped: list[str]
) -> list[list[Request]]:
    """Group the requests for `names`, or for all units, that are compiled at once.

    `skipped` receives the reasons why units without an image cannot be compiled.
    """
    manifest = on_demand.manifest
    kernels = {normalise(kernel.expression): kernel for kernel in manifest.kernels}
    wanted = set(range(len(manifest.units))) if names is None else set()
    instantiations: dict[Owner, list[str]] = {}
    for name in dict.fromkeys(names or ()):
        built = name if name in kernels else find_meant(name, kernels, kernels.__getitem__, manifest.units)
        if built:
            wanted.add(kernels[built].unit)
        elif "<" in name and (owner := on_demand.owner(name)):
            if reason := on_demand.obstacle(manifest.units[owner.unit]):
                raise KernelNotFoundError(
                    f"{name} was not built ahead and cannot be compiled on demand: {reason}",
                    where=manifest.module,
                    remedy=f'add "{name}" to `instantiate` and build again',
                )
            instantiations.setdefault(owner, []).append(name)
        else:
            raise _unknown_kernel(on_demand, name, list(kernels))
    lacking = []
    for index, unit in enumerate(manifest.units):
        if index in wanted and select_image(unit.images, capability) is None:
            if reason := on_demand.obstacle(unit):
                skipped.append(f"sm_{capability}: {reason}")
            else:
                lacking.append(unit)
    return [
        *([on_demand.request_unit(unit, capability)] for unit in lacking),
        *(
            [on_demand.request_kernel(owner, name, capability) for name in of_owner]
            for owner, of_owner in instantiations.items()
        ),
    ]


def _unknown_kernel(on_demand: OnDemand, name: str, known: Sequence[str]) -> KernelNotFoundError:
    """Return the error for a `name` that is not one of the `known` expressions."""
    if built := [expression for expression in known if plain_name(expression) == name]:
        remedy = f"name an instantiation or an overload, such as {built[0]!r}"
    elif on_demand.owner(name):
        remedy = f"name an instantiation, {name}<...>"
    else:
        hint = did_you_mean(name, [*known, *map(plain_name, known)])
        remedy = "; ".join(filter(None, [hint, "cuda_ext.describe lists what it has"]))
    return KernelNotFoundError(f"{on_demand.manifest.module} has no kernel {name!r}", remedy=remedy)
