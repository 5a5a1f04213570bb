"""Candidates that need more shared memory or registers than a GPU has: a build goes on without them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from cuda_ext.builder.scheduler.job_cache import JobCache
from cuda_ext.compiler.module_plan import LibraryPlan, ModulePlan
from cuda_ext.compiler.products import Library
from cuda_ext.errors import BuildError, CompilationError

_Planned: TypeAlias = Sequence[tuple[LibraryPlan, JobCache]]
_Results: TypeAlias = list[Library | BuildError]

# What ptxas, Triton and this package say.
_TOO_LARGE = re.compile(
    "too much shared data|too many resources|(?:bytes of shared memory|registers) in a block|out of resource"
)


def leave_out(
    plan: ModulePlan,
    libraries: _Planned,
    results: _Results,
    run: Callable[[_Planned], _Results],
    report: Callable[[str], None],
) -> tuple[ModulePlan, _Results]:
    """Return the `plan` and the results of its `libraries` without candidates that are too large for a GPU.

    A candidate that fits other architectures is built for those, by `run`. The default stays an error.
    """
    kept: list[tuple[LibraryPlan, Library | BuildError]] = []
    again: list[tuple[LibraryPlan, JobCache]] = []
    for (library, cache), result in zip(libraries, results, strict=True):
        unit = library.units[0]
        own = [plan.tuned.get((unit.name, text)) for text in unit.instantiate]
        is_candidate = own and all(each and not each.is_default for each in own)
        if not is_candidate or not isinstance(result, CompilationError) or not _TOO_LARGE.search(str(result)):
            kept.append((library, result))
            continue
        reason = next(line for line in result.problem.splitlines() if _TOO_LARGE.search(line))
        report(f"{', '.join(unit.instantiate)}: left out for {', '.join(result.targets)}: {reason}")
        if fitting := tuple(a for a in library.architectures if str(a) not in result.targets):
            again.append((replace(library, architectures=fitting), cache))
    if again:
        reduced, outcomes = leave_out(plan, again, run(again), run, report)
        kept += zip(reduced.libraries, outcomes, strict=True)
    return replace(plan, libraries=tuple(own for own, _ in kept)), [result for _, result in kept]
