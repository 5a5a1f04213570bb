"""Trials for nvcc's sources: a build embeds only those that NVRTC can compile on demand.

A trial is a library of one architecture, which no package contains. The cache keeps its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from cuda_ext.compiler.module_plan import LibraryPlan, ModulePlan
from cuda_ext.compiler.products import Library
from cuda_ext.compiler.spelled_settings import spell_setting
from cuda_ext.compiler.translation_unit import CompilerInfo
from cuda_ext.errors import BuildError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.formats.quantities import format_count

_SHOWN = 3  # the number of sources of a module in a message


def plan_trials(plan: ModulePlan, compiler: CompilerInfo) -> list[LibraryPlan]:
    """Plan the trial compilations by `compiler`, which is NVRTC, for the sources of `plan`.

    A linked library is tried only as a whole.
    """
    trials: dict[str, LibraryPlan] = {}
    for library in plan.libraries:
        names = [unit.name for unit in library.units if unit.kind == "cu"]
        if names and plan.embeds(library):
            trials.setdefault(names[0], _trial(library, compiler))
    return list(trials.values())


def _trial(library: LibraryPlan, compiler: CompilerInfo) -> LibraryPlan:
    targets = [a.as_kind("cubin") for a in library.architectures]
    supported = list(filter(compiler.supports, targets))
    target = min(supported) if supported else Architecture("cubin", max(compiler.capabilities()))
    kind: Literal["cubin", "ptx"] = "cubin" if library.link else "ptx"
    return replace(library, architectures=(target.as_kind(kind),), emit=kind, compress="none", trial=True)


def with_results(plan: ModulePlan, results: Sequence[tuple[LibraryPlan, Library | BuildError]]) -> ModulePlan:
    """Return `plan` with the obstacles from the `results` of its trials."""
    obstacles = dict(plan.obstacles)
    for trial, result in results:
        if isinstance(result, BuildError):
            reason = str(result).partition("\n")[0]
            obstacles |= {u.name: f"NVRTC does not compile it: {reason}" for u in trial.units}
    return replace(plan, obstacles=obstacles)


def describe_obstacles(plan: ModulePlan) -> str:
    """List the sources of `plan` that are not embedded, with the reasons."""
    lines = [f"{plan.name}: not embedded, and not compiled on demand:"]
    lines += [f"  {name}: {reason}" for name, reason in list(plan.obstacles.items())[:_SHOWN]]
    if more := len(plan.obstacles) - _SHOWN:
        lines += [f"  and {format_count(more, 'more source')}"] if more > 0 else []
    tiles = {unit.name for library in plan.libraries for unit in library.units if unit.kind == "tile"}
    change = "remove the cause, or " if plan.obstacles.keys() - tiles else ""
    lines.append(f"  {change}set {spell_setting('jit', False)} to embed no source")
    return "\n".join(lines)
