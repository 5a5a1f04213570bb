"""The arguments of a measured case: arrays in device memory with random numbers, and what they contain."""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Mapping, Sequence
from importlib import import_module
from math import inf, prod
from typing import Any, NamedTuple

from cuda_ext.compiler.front_ends.kernel_description import ELEMENT_SIZES
from cuda_ext.errors import ArgumentError, CudaExtError
from cuda_ext.facts.candidates import Tuning
from cuda_ext.facts.kernels import Kernel, Parameter
from cuda_ext.runtime.arrays.device_memory import device_memory
from cuda_ext.runtime.driver.driver import Driver
from cuda_ext.runtime.driver.functions import OUT
from cuda_ext.runtime.launch.python_arguments import values_of_constant
from cuda_ext.text.expressions import evaluate

# The numbers of a random block, which repeats in an array. No size of a matrix is a multiple of it.
_RANDOM = 65_537
_FORMATS = {"float": "f", "double": "d", "__half": "e", "__nv_bfloat16": ""}


class _Buffer(NamedTuple):
    """Device memory that a kernel writes, and its content before a launch."""

    address: int
    element: str
    before: bytes


class Inputs:
    """The arguments of a case of `kernel`, with the values `case` of integers and other numbers.

    Raises :class:`CudaExtError` if an argument is missing.
    """

    def __init__(
        self, driver: Driver, stream: int, kernel: Kernel, tuning: Tuning, case: Mapping[str, Any]
    ) -> None:
        self._driver = driver
        self._stream = stream
        self._arrays = tuning.arrays
        self._written: list[_Buffer] = []
        self._names = dict(case)
        if tuning.inputs:
            module, _, function = tuning.inputs.partition(":")
            self._names |= getattr(import_module(module), function)(**case)
        self._grid: Any = self._names.pop("grid", tuning.grid)
        self.arguments = {
            p.name: self._argument(p, self._names.get(p.name))
            for p in kernel.parameters
            if p.name not in kernel.defaults
        }

    def grid(self, constants: Mapping[str, str]) -> Any:
        """Return the grid for a candidate with these `constants`, as Python spells them."""
        if not self._grid:
            raise CudaExtError("there is no grid", where="tune", remedy="add grid or inputs to the table")
        names = {**self._names, **{name: values_of_constant(text)[0] for name, text in constants.items()}}
        if callable(self._grid):
            return self._grid(names)
        extents = self._grid if isinstance(self._grid, Sequence) else [self._grid]
        return tuple(int(evaluate(str(each), names)) for each in extents)

    def reset(self) -> None:
        """Write what the arrays contained before a launch."""
        for each in self._written:
            self._copy("cuMemcpyHtoDAsync", each.address, each.before, len(each.before))

    def results(self) -> list[bytes]:
        """Read what a kernel wrote."""
        return [self._read(each.address, len(each.before)) for each in self._written]

    def compare(self, expected: Sequence[bytes], tolerance: float) -> None:
        """Raise :class:`CudaExtError` if the results are not those `expected`."""
        for buffer, one, other in zip(self._written, self.results(), expected, strict=True):
            difference = float(one != other)
            if difference and tolerance:
                difference = _difference(buffer.element, one, other)
            if not difference <= tolerance:
                by = f": they differ by {difference:.2g}" if tolerance else ""
                raise CudaExtError(f"computes other results than the default{by}")

    def _argument(self, parameter: Parameter, value: Any) -> Any:
        if parameter.element is None:
            if value is None and parameter.kind == "struct":
                raise _missing(parameter, "inputs")
            return value if value is not None else 1.0 if parameter.kind == "float" else 0
        if memory := device_memory(value):
            address, size = memory.address, value.nbytes
        else:
            content = value.tobytes() if hasattr(value, "tobytes") else self._random(parameter, value)
            address, size = self._driver.query("cuMemAlloc", OUT, max(len(content), 1)), len(content)
            self._copy("cuMemcpyHtoDAsync", address, content, size)
        if not parameter.const:
            self._written.append(_Buffer(address, parameter.element, self._read(address, size)))
        return value if memory else address

    def _random(self, parameter: Parameter, shape: Sequence[int] | None) -> bytes:
        elements = self._arrays.get(parameter.name)
        if shape is None and elements is None:
            raise _missing(parameter, f'arrays = {{ {parameter.name} = "..." }}')
        count = prod(shape) if shape else int(evaluate(elements or "", self._names))
        return random_bytes(parameter.element or "", count)

    def _read(self, address: int, size: int) -> bytes:
        memory = ctypes.create_string_buffer(max(size, 1))
        self._copy("cuMemcpyDtoHAsync", ctypes.addressof(memory), address, size)
        return memory.raw[:size]

    def _copy(self, function: str, *arguments: Any) -> None:
        """Copy behind all work in the stream, and wait for it."""
        self._driver.call(function, *arguments, self._stream)
        self._driver.call("cuStreamSynchronize", self._stream)


def _missing(parameter: Parameter, key: str) -> CudaExtError:
    return ArgumentError(f"the case has no {parameter}", where="tune", remedy=f"add {key} to the table")


def random_bytes(element: str, count: int) -> bytes:
    """Return `count` numbers between -1 and 1 of a type of C++; zeros for integers, which may be indices."""
    size = ELEMENT_SIZES.get(element, 1)
    block = bytes(size)
    if element in _FORMATS:
        numbers = random.Random(1)  # noqa: S311 - measurements need no secrets
        values = [numbers.uniform(-1, 1) for _ in range(_RANDOM)]
        if form := _FORMATS[element]:
            block = struct.pack(f"<{_RANDOM}{form}", *values)
        else:  # the upper half of a float
            block = b"".join(struct.pack("<f", value)[2:] for value in values)
    return (block * (count * size // len(block) + 1))[: count * size]


def _difference(element: str, one: bytes, other: bytes) -> float:
    """Return the largest difference relative to the largest number; infinity for other types and NaNs."""
    if element not in _FORMATS:
        return inf
    import numpy as np  # only tolerances need it

    if form := _FORMATS[element]:
        a, b = (np.frombuffer(x, f"<{form}").astype("<f8") for x in (one, other))
    else:
        a, b = (np.frombuffer(x, "<u2").astype("<u4").__lshift__(16).view("<f4") for x in (one, other))
    if bool((np.isnan(a) != np.isnan(b)).any()):
        return inf
    return float(np.nanmax(np.abs(a - b)) / max(float(np.nanmax(np.abs(b))), 1e-30))
