"""Compare every kernel, launched from C++ and from Python, with numpy."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from . import launch

TOLERANCES = {"float32": 1e-5, "float64": 1e-13}
LANGUAGES: tuple[launch.Language, ...] = ("C++", "Python")


@dataclass(frozen=True)
class Comparison:
    """The largest error of a kernel's results, relative to the largest expected value."""

    kernel: str
    language: launch.Language
    error: float
    tolerance: float

    @property
    def is_right(self) -> bool:
        return self.error <= self.tolerance


def compare(n: int) -> Iterator[Comparison]:
    """Launch all kernels on vectors of `n` elements."""
    random = np.random.default_rng(seed=n)
    for dtype, tolerance in TOLERANCES.items():
        x, y = random.random((2, n)).astype(dtype)
        for language in LANGUAGES:
            results = {
                "axpy": (launch.axpy(language, 2.0, x, y), 2 * x + y),
                "reduce": (launch.reduce(language, x), x.sum(dtype=np.float64, keepdims=True)),
            }
            for kernel, (actual, expected) in results.items():
                error = np.abs(actual - expected).max() / np.abs(expected).max()
                yield Comparison(f"{kernel}, {dtype}", language, float(error), tolerance)
