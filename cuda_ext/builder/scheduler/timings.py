"""How long compilations took last time, so that the longest can begin first."""

from __future__ import annotations

import json
from contextlib import suppress

from cuda_ext.cache.dependencies import key_of
from cuda_ext.cache.store import Store
from cuda_ext.compiler.jobs import Job, LinkJob

__all__ = ["Durations"]


class Durations:
    """Seconds by job, for the modules of one build."""

    def __init__(self, store: Store, modules: tuple[str, ...]) -> None:
        self._store = store
        self._key = key_of("durations", *modules)
        self._known: dict[str, float] = {}
        with suppress(ValueError, TypeError, AttributeError):
            found = json.loads(store.get(self._key) or b"{}")
            self._known = {str(name): float(seconds) for name, seconds in found.items()}
        self._measured: dict[str, float] = {}

    def known(self, module: str, job: Job) -> float | None:
        """What `job` took, if it was ever done."""
        return self._known.get(_name(module, job))

    def expected(self, module: str, job: Job) -> float:
        """What `job` will take, if only by guess: CUDA's and CCCL's headers take seconds, kernels little."""
        known = self.known(module, job)
        if known is not None:
            return known
        return 2.0 if isinstance(job, LinkJob) or b"#include <" in job.unit.source else 0.05

    def measured(self, module: str, job: Job, seconds: float) -> None:
        self._measured[_name(module, job)] = round(seconds, 3)

    def save(self) -> None:
        """Keep what was measured for the next build."""
        if self._measured:
            self._store.put(self._key, json.dumps(self._known | self._measured).encode())


def _name(module: str, job: Job) -> str:
    return f"{module} {job.name} {job.action} {job.architecture}"
