"""``axpy(a, x, y)`` and its like, for CuPy's arrays; compiled at the first call on the user's machine."""

from pathlib import Path

import cupy

_C_NAMES = {"float32": "float", "float64": "double"}


def _module(source: str, expression: str) -> cupy.RawModule:
    code = (Path(__file__).parent / "device" / source).read_text(encoding="utf-8")
    names = [expression.format(name) for name in _C_NAMES.values()]
    return cupy.RawModule(code=code, options=("--std=c++17",), name_expressions=names)


_AXPY = _module("axpy.cu", "axpy<{}>")
_REDUCE = _module("reduce.cu", "reduce<{}, 256>")
_SOFTMAX = _module("softmax.cu", "softmax<{}>")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def _check_alike(x: cupy.ndarray, y: cupy.ndarray) -> None:
    """Check the arguments of a kernel, since RawModule checks none."""
    _require(x.dtype == y.dtype, "x and y must be of one dtype")
    _require(x.dtype.name in _C_NAMES, "x must be float32 or float64")
    _require(x.flags.c_contiguous and y.flags.c_contiguous, "x and y must be contiguous")
    _require(x.size < 2**31, "the kernels count in int")


def axpy(a: float, x: cupy.ndarray, y: cupy.ndarray) -> None:
    _check_alike(x, y)
    _require(x.size == y.size, "x and y must be of one length")
    kernel = _AXPY.get_function(f"axpy<{_C_NAMES[x.dtype.name]}>")
    kernel(((x.size + 255) // 256,), (256,), (cupy.int32(x.size), x.dtype.type(a), x, y))


def reduce(x: cupy.ndarray, partial: cupy.ndarray) -> None:
    _check_alike(x, partial)
    kernel = _REDUCE.get_function(f"reduce<{_C_NAMES[x.dtype.name]}, 256>")
    kernel((partial.size,), (256,), (cupy.int32(x.size), x, partial))


def softmax(x: cupy.ndarray, y: cupy.ndarray) -> None:
    _check_alike(x, y)
    _require(x.ndim == 2 and x.shape == y.shape, "x and y must be matrices of one shape")
    kernel = _SOFTMAX.get_function(f"softmax<{_C_NAMES[x.dtype.name]}>")
    kernel(((x.shape[0] + 7) // 8,), (256,), (cupy.int32(x.shape[0]), cupy.int32(x.shape[1]), x, y))


__all__ = ["axpy", "reduce", "softmax"]
