"""Every kernel with arguments, its reference in numpy, and the tolerance between the two."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import launch, reference


@dataclass(frozen=True)
class Case:
    kernel: str
    launch: Callable[..., np.ndarray]
    reference: Callable[..., np.ndarray]
    arguments: tuple[Any, ...]
    tolerance: float = 0.0
    compute_capability: tuple[int, int] | None = None  # None: every GPU
    decode: Callable[[np.ndarray], np.ndarray] = np.asarray

    def error(self) -> float:
        """Launch the kernel; return the largest error, relative to the largest expected value."""
        actual = self.decode(self.launch(*self.arguments)).astype(np.float64)
        expected = self.reference(*self.arguments).astype(np.float64)
        return float(np.abs(actual - expected).max() / max(np.abs(expected).max(), 1e-30))


def cases(height: int, width: int) -> list[Case]:
    """All kernels on a matrix of this shape, or on a vector with the same number of elements."""
    random = np.random.default_rng(seed=height * width)
    n, k = height * width, (height + width) // 2
    x, y = random.random((2, n))
    x32, y32 = x.astype(np.float32), y.astype(np.float32)
    matrix = random.standard_normal((height, width)).astype(np.float32)
    logits = 3 * matrix + 200  # exp(200) overflows float: requires a stable softmax
    weights = random.standard_normal((3, 3)).astype(np.float32)
    data = random.integers(256, size=n, dtype=np.uint8)
    integers = random.integers(-1000, 1000, size=n, dtype=np.int32)
    a = random.standard_normal((height, k)).astype(np.float16)
    b = random.standard_normal((width, k)).astype(np.float16)

    def case(kernel: str, function: str, *arguments: Any, **limits: Any) -> Case:
        return Case(kernel, getattr(launch, function), getattr(reference, function), arguments, **limits)

    return [
        case("axpy<float>", "axpy", 2.0, x32, y32, tolerance=1e-6),
        case("axpy<double>", "axpy", 2.0, x, y, tolerance=1e-15),
        case("blockwise::reduce<float, 128>", "reduce", x32, 128, tolerance=1e-5),
        case("blockwise::reduce<float, 256>", "reduce", x32, 256, tolerance=1e-5),
        case("blockwise::reduce<double, 128>", "reduce", x, 128, tolerance=1e-13),
        case("blockwise::reduce<double, 256>", "reduce", x, 256, tolerance=1e-13),
        case("softmax<float>", "softmax", logits, tolerance=1e-5),
        case("softmax<__half>", "softmax", logits.astype(np.float16), tolerance=1e-3),
        case(
            "softmax<__nv_bfloat16>",
            "softmax_bfloat16",
            reference.to_bfloat16(logits),
            tolerance=1e-2,
            decode=reference.from_bfloat16,
        ),
        case("stencil", "stencil", matrix, weights, tolerance=1e-5),
        case("histogram", "histogram", data),
        case("gemm", "gemm", a, b, tolerance=1e-4),
        case("gemm_hopper", "gemm_hopper", a, b, tolerance=1e-4, compute_capability=(9, 0)),
        case("clamp", "clamp", matrix.ravel(), -0.5, 1.5),
        case("grid_scan", "grid_scan", integers),
    ]
