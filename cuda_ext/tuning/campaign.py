"""All kernels and cases of a module: measure their candidates, or check what a package has."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from cuda_ext.compiler.tuned_kernels import spell_values
from cuda_ext.errors import CudaExtError, did_you_mean
from cuda_ext.facts.candidates import Tuning, Variants
from cuda_ext.runtime.driver.driver import open_driver
from cuda_ext.runtime.module import library_of
from cuda_ext.text.expressions import evaluate
from cuda_ext.tuning.measure import ROUNDS, Bench, Reply
from cuda_ext.tuning.results import Entry, Results, make_config

Case: TypeAlias = Mapping[str, Any]

# For each round of successive halving: how often the candidates are measured in turns, how many the next one
# measures, and how much slower than the fastest one these may be.
_ROUNDS = ((1, 10, 1.5), (1, 4, 1.1), (3, 0, 1.0))
_DRIFT = 1.05


def parse_cases(text: str) -> list[dict[str, Any]]:
    """Read ``m=4096, n=[1024, 4096]``: a case for each combination of the values.

    An array may have a shape, ``x=(4096, 64)``. Raises :class:`CudaExtError`.
    """
    try:
        values = evaluate(f"dict({text})", {}, {"dict": dict})
        if not isinstance(values, dict) or [] in values.values():
            raise ValueError("it has no values")
    except ValueError as error:
        problem = f"{text!r} is not a case: {error}"
        raise CudaExtError(problem, remedy='write it as in "m=4096, n=[1024, 4096]"') from None
    each = [value if isinstance(value, list) else [value] for value in values.values()]
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*each)]


@dataclass(frozen=True)
class Campaign:
    """Measurements of `module` with `bench`; messages go to `say`, and what happens now to `show`.

    It ends when the clock shows `end`.
    """

    module: ModuleType
    bench: Bench
    say: Callable[[str], None]
    show: Callable[[str], None]
    end: float = float("inf")

    def run(self, names: Sequence[str], cases: Mapping[str, Sequence[Case]], directory: Path | None) -> bool:
        """Measure the `cases` of each kernel, by its name or ``""`` for all, and write the results.

        `names` are those of kernels or functions, or none for all. Without a `directory`, compare what a
        launch takes with the other candidates instead. Return True if no candidate fails.
        """
        driver = open_driver()
        device, version = driver.current_device(), ".".join(map(str, driver.version))
        self.say(f"{device.name}, sm_{device.capability}, CUDA {version}")
        machine = {"device": device.name, "sm": device.capability, "driver": version}
        is_good = True
        for variants, tuning in self._tuned(names):
            results = Results(directory / tuning.file, tuning.key) if directory else None
            own = dict.fromkeys(("", variants.name.partition("<")[0], variants.name))
            given = [case for name in own for case in cases.get(name, ())]
            for case in given or ([] if directory else self._measured_cases(variants, tuning)):
                title = f"{variants.name} {spell_values(case)}"
                listed = self.bench.ask(variants.name, case)
                if "failed" in listed:
                    self.say(f"{title}: cannot be measured: {listed['failed']}")
                    is_good = False
                    continue
                common = {**machine, **listed["entry"]}
                entries = [{**common, "config": make_config(c)} for c in listed["candidates"]]
                replies, note = self._measure(variants.name, case, listed["candidates"], entries, results)
                self.say(f"{title}: {_summarize(listed, replies, is_check=not directory)}{note}")
                is_good = is_good and not any("failed" in reply for reply in replies.values())
                if time.monotonic() > self.end:
                    self.say("the time is over")
                    return is_good
        return is_good

    def _tuned(self, names: Sequence[str]) -> list[tuple[Variants, Tuning]]:
        found = [(each, each.tuning) for each in library_of(self.module).manifest.variants if each.tuning]
        known = {name for each, _ in found for name in (each.name.partition("<")[0], each.name)}
        for name in names:
            if name not in known:
                remedy = did_you_mean(name, known) or f"it has {', '.join(sorted(known)) or 'none'}"
                problem = f"{self.module.__name__} has no candidates of a kernel {name!r}"
                raise CudaExtError(problem, remedy=f"{remedy}; build with CUDA_EXT_CANDIDATES=1")
        return [(v, t) for v, t in found if not names or {v.name, v.name.partition("<")[0]} & {*names}]

    def _measured_cases(self, variants: Variants, tuning: Tuning) -> list[Case]:
        """Return the cases for which the build chose. Values of constants are not among them."""
        kernels = library_of(self.module).manifest.kernels
        default = next(each for each in kernels if each.expression == variants.candidates[-1].kernel)
        measured = dict.fromkeys(case.key for candidate in variants.candidates for case in candidate.measured)
        return [dict(zip(tuning.sizes(default.constants), key, strict=False)) for key in measured]

    def _measure(
        self,
        name: str,
        case: Case,
        candidates: Sequence[Mapping[str, str]],
        entries: Sequence[Entry],
        results: Results | None,
    ) -> tuple[dict[int, Reply], str]:
        """Return what was measured of `candidates`, now or before, and a note about it.

        The last one is the default. Each reply completes one of `entries`, which is written to `results`.
        """
        known = results.find(entries) if results else {}
        if len(known) == len(candidates) and any(each.get("runs") == ROUNDS[-1] for each in known.values()):
            return known, " (measured before)"
        default = len(candidates) - 1
        remaining = [default, *range(default)]
        measured: dict[int, Reply] = {}
        times: list[float] = []
        for stage, (turns, most, slower) in enumerate(_ROUNDS):
            replies: dict[int, list[Reply]] = {number: [] for number in remaining}
            total = len(remaining) * turns
            # The order alternates: what the GPU did before changes its clocks.
            orders = [remaining[:: 1 - turn % 2 * 2] for turn in range(turns)]
            for done, number in enumerate(chain.from_iterable(orders)):
                if time.monotonic() > self.end:
                    return measured, ""
                now = f"round {stage + 1}, {done + 1} of {total}"
                self.show(f"{name} {spell_values(case)}: {now}")
                replies[number].append(self.bench.ask(name, case, candidates[number], stage))
                # A build compares those with the most runs alone: later rounds are written as a whole.
                if not stage or done + 1 == total:
                    measured |= {n: _middle(own) for n, own in replies.items() if own}
                    if results:
                        results.add([{**entries[n], **measured[n]} for n, own in replies.items() if own])
            near = {n: measured[n].get("time", float("inf")) for n in remaining}
            order = sorted(near, key=near.__getitem__)
            order = [n for n in order[:most] if near[n] <= slower * near[order[0]]]
            remaining = [default, *(number for number in order if number != default)]
            times.append(near[default])
        drift = max(times[0], times[-1]) / min(times[0], times[-1])
        if not _DRIFT <= drift < float("inf"):
            return measured, ""
        note = f"; the default took {drift:.2f} times as long in another round: the GPU is busy or throttles"
        return measured, note


def _middle(replies: Sequence[Reply]) -> Reply:
    """Return a failure if there is one, or the reply with the median time."""
    order = [each for each in replies if "failed" in each] or sorted(replies, key=lambda each: each["time"])
    return order[len(order) // 2]


def _summarize(listed: Reply, replies: Mapping[int, Reply], is_check: bool) -> str:
    """Write a line about the fastest candidate, compared with the default, or with what launches take."""
    name, other = "the default", len(listed["candidates"]) - 1
    if is_check:
        name, other = "what launches take", listed["candidates"].index(listed["taken"])
    spelled = {number: spell_values(listed["candidates"][number]) for number in replies}
    failures = [f"{spelled[n]} {reply['failed']}" for n, reply in replies.items() if "failed" in reply]
    timed = [number for number in replies if "time" in replies[number]]
    verdict = f"the results of {len(timed)} agree"
    if failures:
        verdict = f"{len(failures)} of {len(listed['candidates'])} candidates fail: {failures[0]}"
    if not timed:
        return verdict
    best = min(timed, key=lambda number: (-replies[number]["runs"], replies[number]["time"]))
    text = f"{replies[best]['time']:.4g} us with {spelled[best]}"
    if other == best:
        text += f", {name}"
    elif other in timed:
        text += f", {replies[other]['time'] / replies[best]['time']:.2f} times as fast as {name}"
    return f"{text}; {verdict}"
