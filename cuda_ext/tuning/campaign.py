"""All kernels and cases of a module: measure their candidates, or check what a package has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

from cuda_ext.compiler.front_ends.kernel_description import DTYPES
from cuda_ext.compiler.tuned_kernels import spell_values
from cuda_ext.errors import CudaExtError, did_you_mean
from cuda_ext.facts.candidates import Tuning, Variants
from cuda_ext.facts.kernels import Kernel
from cuda_ext.runtime.launch.python_arguments import values_of_constant
from cuda_ext.runtime.module import library_of
from cuda_ext.text.expressions import evaluate
from cuda_ext.tuning.measure import Bench, Case, Configuration, measure_case
from cuda_ext.tuning.results import Entry, Results, spell_configuration

_DTYPES = {dtype.cpp: f"torch.{dtype.torch}" for dtype in DTYPES}


def parse_cases(text: str) -> list[dict[str, Any]]:
    """Read ``m=4096, n=[1024, 4096]``: a case for each combination of the values.

    An array may have a shape, ``x=(4096, 64)``. Raises :class:`CudaExtError`.
    """
    try:
        values = evaluate(f"dict({text})", {}, {"dict": dict})
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

    def tuned(self, names: Sequence[str]) -> list[tuple[Variants, Kernel, Tuning]]:
        """List the kernels with candidates, those of functions called `names` if there are any."""
        library = library_of(self.module)
        found = [v for v in library.manifest.variants if v.tuning]
        known = {each.name.partition("<")[0] for each in found}
        for name in names:
            if name not in known and name not in [each.name for each in found]:
                remedy = did_you_mean(name, known) or f"it has {', '.join(sorted(known)) or 'none'}"
                problem = f"{self.module.__name__} has no candidates of a kernel {name!r}"
                raise CudaExtError(problem, remedy=f"{remedy}; build with CUDA_EXT_CANDIDATES=1")
        wanted = [each for each in found if not names or {each.name, each.name.partition("<")[0]} & {*names}]
        return [(each, library.names.kernel(each.name), each.tuning) for each in wanted if each.tuning]

    def tune(self, names: Sequence[str], cases: Mapping[str, Sequence[Case]], directory: Path) -> None:
        """Measure the `cases` of each kernel, by its name or ``""`` for all, and write the files."""
        for variants, kernel, tuning in self.tuned(names):
            results = Results(directory / tuning.file, tuning.key)
            function = variants.name.partition("<")[0]
            for case in [*cases.get("", ()), *cases.get(function, ()), *cases.get(variants.name, ())]:
                title = f"{variants.name} {spell_values(case)}"
                text = measure_case(
                    self.bench,
                    variants.name,
                    case,
                    results,
                    partial(self._entry, kernel, tuning, function),
                    lambda: time.monotonic() > self.end,
                    lambda now, title=title: self.show(f"{title}: {now}"),  # type: ignore[misc]
                )
                self.say(f"{title}: {text}")
                if time.monotonic() > self.end:
                    return

    def check(self, names: Sequence[str], cases: Sequence[Case]) -> bool:
        """Compare what a launch takes with the other candidates; return True if results agree everywhere."""
        agree = True
        for variants, kernel, tuning in self.tuned(names):
            for case in cases or [*_measured_cases(variants, kernel, tuning)]:
                title = f"{variants.name} {spell_values(case)}"
                listed = self.bench.ask(variants.name, case, None)
                if "failed" in listed:
                    self.say(f"{title}: cannot be measured: {listed['failed']}")
                    agree = False
                    continue
                replies = []
                for number, each in enumerate(listed["candidates"]):
                    self.show(f"{title}: {number + 1} of {len(listed['candidates'])}")
                    reply = self.bench.ask(variants.name, case, each, 0)
                    if "failed" not in reply:
                        reply = self.bench.ask(variants.name, case, each, 1)
                    replies.append((spell_values(each), reply))
                times = {each: reply["time"] for each, reply in replies if "time" in reply}
                failed = [f"{each} {reply['failed']}" for each, reply in replies if "failed" in reply]
                taken = spell_values(listed["taken"])
                agree = agree and not failed
                best = min(times, key=times.__getitem__, default=taken)
                loss = times[taken] / times[best] - 1 if taken in times else 0
                verdict = "the fastest" if best == taken else f"{loss:.1%} slower than {best}"
                same = "; ".join(failed) if failed else f"the results of {len(times)} agree"
                self.say(f"{title}: {times.get(taken, 0):.4g} us with {taken}, {verdict}; {same}")
        return agree

    def _entry(
        self, kernel: Kernel, tuning: Tuning, function: str, values: Mapping[str, Any], each: Configuration
    ) -> Entry:
        """Return the entry of a candidate for these `values`, without its time."""
        own = {name: kernel.constants[name] for name in tuning.key if name in kernel.constants}
        constants = {name: values_of_constant(text)[0] for name, text in own.items()}
        if missing := [name for name in tuning.key if name not in constants and name not in values]:
            raise CudaExtError(f"the case has no {missing[0]}", remedy=f"give {', '.join(tuning.key)}")
        key = [constants.get(name, values.get(name)) for name in tuning.key]
        if kernel.options:  # a function in Python
            key += [_DTYPES.get(p.element, p.element) for p in kernel.parameters if p.element]
        manifest, machine = library_of(self.module).manifest, self.bench.machine
        return {
            "kernel": function if kernel.options else kernel.expression,
            "device": machine["device"],
            "sm": machine["sm"],
            "key": key,
            "config": spell_configuration(each),
            "driver": machine["driver"],
            "compiler": manifest.units[kernel.unit].compiler or f"{manifest.compiler} {manifest.version}",
            "source": tuning.source,
        }


def _measured_cases(variants: Variants, kernel: Kernel, tuning: Tuning) -> Iterator[Case]:
    """Yield the cases for which the build chose."""
    names = [name for name in tuning.key if name not in kernel.constants]
    measured = dict.fromkeys(case.key for candidate in variants.candidates for case in candidate.measured)
    for key in measured:
        yield dict(zip(names, key, strict=False))
