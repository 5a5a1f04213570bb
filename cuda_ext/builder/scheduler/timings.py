"""How long jobs took in earlier builds, so that the longest start first."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from cuda_ext import __version__
from cuda_ext.cache.store import Store
from cuda_ext.compiler.jobs import Job, LinkJob, SignatureJob
from cuda_ext.formats.codec import DecodingError, decode, encode, key_of

__all__ = ["Timings"]

# Estimates without a measurement, in seconds. CUDA's and CCCL's headers take long, and signatures take longer
# than an image, since debug information is written and read.
_WITH_HEADERS, _SIGNATURES, _IMAGE = 2.0, 0.1, 0.05


class _Entry(NamedTuple):
    seconds: Mapping[str, float] = {}


class Timings:
    """Seconds by job, for the modules of one build."""

    def __init__(self, store: Store, modules: tuple[str, ...]) -> None:
        self._store = store
        self._key = key_of("timings", __version__, *modules)
        self._known: Mapping[str, float] | None = None
        self._measured: dict[str, float] = {}

    def known(self, module: str, job: Job) -> float | None:
        """The seconds that `job` took, if it was ever done."""
        if self._known is None:
            self._known = self._load()
        return self._known.get(f"{module} {job}")

    def expected(self, module: str, job: Job) -> float:
        """The seconds that `job` will take, as an estimate."""
        known = self.known(module, job)
        if known is not None:
            return known
        if isinstance(job, LinkJob) or b"#include <" in job.unit.source:
            return _WITH_HEADERS
        return _SIGNATURES if isinstance(job, SignatureJob) else _IMAGE

    def measured(self, module: str, job: Job, seconds: float) -> None:
        self._measured[f"{module} {job}"] = round(seconds, 3)

    def save(self) -> None:
        """Keep the measurements for the next build."""
        if self._measured:
            self._store.put(self._key, encode(_Entry({**(self._known or {}), **self._measured})))

    def _load(self) -> Mapping[str, float]:
        with suppress(DecodingError):
            return decode(_Entry, self._store.get(self._key) or b"").seconds
        return {}
