"""Measure the candidates of a kernel for cases: successive halving, in a process that may fail."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cuda_ext.compiler.tuned_kernels import spell_values
from cuda_ext.errors import CudaExtError
from cuda_ext.tuning.measuring_process import ROUNDS, Reply, serve
from cuda_ext.tuning.results import Entry, Results

Case = Mapping[str, Any]
Configuration = Mapping[str, str]

# How often the candidates of the last round are measured in turns.
_TURNS = 3
# Of how many the next round measures, and how much slower than the fastest one they may be.
_KEPT = ((10, 1.5), (4, 1.1))
_DRIFT = 1.05
_START = 60.0  # the seconds in which the process has to start, or make the arguments of a case


class Bench:
    """A process that measures kernels of `module`; it is started again if a candidate ends it.

    A candidate may take `patience` seconds.
    """

    def __init__(self, module: str, patience: float) -> None:
        self._module = module
        self._patience = patience
        self._process: Any = None
        self.machine = self._start()

    def ask(self, name: str, case: Case, configuration: Configuration | None, stage: int = 0) -> Reply:
        """Measure one candidate, or list the candidates without one; ``failed`` has the reason."""
        if self._process is None:
            self._start()
            if configuration is not None and "failed" in (listed := self.ask(name, case, None)):
                return listed
        return self._exchange((name, case, configuration, stage), self._patience if configuration else _START)

    def close(self) -> None:
        if self._process is not None:
            self._connection.close()
            self._process.join(1)
            self._process.kill()
            self._process.join()
        self._process = None

    def _start(self) -> Reply:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=serve, args=(self._module, other), daemon=True)
        self._process.start()
        other.close()
        machine = self._exchange(None, _START)
        if "failed" in machine:
            raise CudaExtError(machine["failed"])
        return machine

    def _exchange(self, request: object, seconds: float) -> Reply:
        try:
            if request:
                self._connection.send(request)
            if self._connection.poll(seconds):
                reply: Reply = self._connection.recv()
                if reply.get("ends"):
                    self.close()
                return reply
            failed = f"hangs: it takes more than {seconds:g} seconds"
        except (EOFError, OSError):
            self._process.join(5)
            failed = f"ends the process, with {self._process.exitcode}"
        self.close()
        return {"failed": failed}


def measure_case(
    bench: Bench,
    name: str,
    case: Case,
    results: Results,
    entry_of: Callable[[Mapping[str, Any], Configuration], Entry],
    is_over: Callable[[], bool],
    show: Callable[[str], None],
) -> str:
    """Measure all candidates of the kernel `name` for `case`, and write what is not yet in `results`.

    Return a line about the fastest one. It ends early if `is_over`.
    """
    listed = bench.ask(name, case, None)
    if "failed" in listed:
        return f"cannot be measured: {listed['failed']}"
    values, candidates = {**listed["values"], **case}, listed["candidates"]
    default = candidates[-1]
    known = [results.find(entry_of(values, each)) for each in candidates]
    if all(known) and any(each and each.get("runs") == ROUNDS[-1] for each in known):
        return _summarize([each for each in known if each], entry_of(values, default), " (measured before)")
    first, last = 0.0, 0.0
    rows: dict[int, Reply] = {}
    remaining = [len(candidates) - 1, *range(len(candidates) - 1)]
    for stage in range(len(ROUNDS)):
        turns: dict[int, list[Reply]] = {number: [] for number in remaining}
        plan = remaining * (_TURNS if stage == len(ROUNDS) - 1 else 1)
        for done, number in enumerate(plan):
            if is_over():
                return "the time is over"
            show(f"round {stage + 1}, {done + 1} of {len(plan)}")
            turns[number].append(bench.ask(name, case, candidates[number], stage))
            own_turns = sorted(turns[number], key=lambda each: float(each.get("time", 0)))
            rows[number] = reply = own_turns[0 if "failed" in own_turns[0] else len(own_turns) // 2]
            results.add({**entry_of(values, candidates[number]), **_rounded(reply)})
            if candidates[number] == default:
                first, last = first or reply.get("time", 0), reply.get("time", 0)
        if stage < len(_KEPT):
            most, slower = _KEPT[stage]
            best = {n: reply["time"] for n, reply in rows.items() if "time" in reply and n in remaining}
            order = sorted(best, key=best.__getitem__)
            remaining = [n for n in order[:most] if best[n] <= slower * best[order[0]]]
            remaining = [len(candidates) - 1, *(n for n in remaining if n != len(candidates) - 1)]
    again = bench.ask(name, case, default, 0).get("time", last)
    drift = max(again, last) / min(first or 1, last or 1) if first and last else 1
    note = f"; the default took {drift:.2f} times as long in another round: the GPU is busy or throttles" * (
        drift > _DRIFT
    )
    own = [entry for each in candidates if (entry := results.find(entry_of(values, each)))]
    return _summarize(own, entry_of(values, default), note)


def _rounded(reply: Reply) -> Entry:
    return {n: float(f"{v:.4g}") if isinstance(v, float) else v for n, v in reply.items() if n != "ends"}


def _summarize(entries: Sequence[Entry], default: Entry, note: str) -> str:
    timed = [each for each in entries if "time" in each]
    failed = len(entries) - len(timed)
    if not timed:
        return f"all {failed} candidates fail: {entries[0].get('failed') if entries else ''}"
    best = min(timed, key=lambda each: (-each.get("runs", 0), each["time"]))
    options = {name: value for name, value in best["config"].items() if name != "kwargs"}
    spelled = spell_values({**best["config"]["kwargs"], **options})
    own = next((each["time"] for each in timed if each["config"] == default["config"]), 0)
    faster = f", {own / best['time']:.2f} times as fast as the default" if own else ""
    fails = f"; {failed} of {len(entries)} candidates fail" if failed else ""
    return f"{best['time']:.4g} us with {spelled}{faster}{fails}{note}"
