"""The arguments of a measured case: arrays in device memory with random numbers, and what they contain."""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Mapping
from importlib import import_module
from math import prod
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
_FORMATS = {"float": "f", "double": "d", "__half": "e"}


class Buffer(NamedTuple):
    """Device memory that a kernel writes, and its content before a launch."""

    address: int
    size: int
    element: str
    before: bytes


class Inputs:
    """The arguments of a case of `kernel`, with the values `case` of integers and other numbers.

    ``grid`` is that of a candidate, by its constants. Raises :class:`CudaExtError` if an argument is missing.
    """

    def __init__(
        self, driver: Driver, stream: int, kernel: Kernel, tuning: Tuning, case: Mapping[str, Any]
    ) -> None:
        self._driver = driver
        self._stream = stream
        self._tuning = tuning
        self._allocated: list[int] = []
        self.written: list[Buffer] = []
        given = dict(case)
        if tuning.inputs:
            module, _, function = tuning.inputs.partition(":")
            given |= getattr(import_module(module), function)(**case)
        self._grid = given.pop("grid", None)
        self._names = given
        self.arguments = {
            p.name: self._argument(p, given) for p in kernel.parameters if p.name not in kernel.defaults
        }

    def grid(self, constants: Mapping[str, str]) -> Any:
        """Return the grid for a candidate with these `constants`, as Python spells them."""
        names = {**self._names, **{name: values_of_constant(text)[0] for name, text in constants.items()}}
        if self._grid is not None:
            return self._grid(names) if callable(self._grid) else self._grid
        if not self._tuning.grid:
            raise CudaExtError("there is no grid", where="tune", remedy="add grid or inputs to the table")
        return tuple(int(evaluate(text, names)) for text in self._tuning.grid)

    def reset(self) -> None:
        """Write what the arrays contained before a launch."""
        for each in self.written:
            self._driver.call("cuMemcpyHtoDAsync", each.address, each.before, each.size, self._stream)
        self._driver.call("cuStreamSynchronize", self._stream)

    def results(self) -> list[bytes]:
        """Read what a kernel wrote."""
        return [self._read(each.address, each.size) for each in self.written]

    def _read(self, address: int, size: int) -> bytes:
        """Copy `size` bytes at `address` to the host, behind all work in the stream."""
        memory = ctypes.create_string_buffer(max(size, 1))
        self._driver.call("cuMemcpyDtoHAsync", ctypes.addressof(memory), address, size, self._stream)
        self._driver.call("cuStreamSynchronize", self._stream)
        return memory.raw[:size]

    def free(self) -> None:
        for address in self._allocated:
            self._driver.call("cuMemFree", address)

    def _argument(self, parameter: Parameter, given: Mapping[str, Any]) -> Any:
        value = given.get(parameter.name)
        if parameter.element is None:
            if value is None and parameter.kind == "struct":
                raise _missing(parameter, "inputs")
            return value if value is not None else 1.0 if parameter.kind == "float" else 0
        if isinstance(value, tuple):
            return self._upload(parameter, random_bytes(parameter.element, prod(value)))
        if value is not None and not hasattr(value, "__array_interface__"):
            if not parameter.const and (memory := device_memory(value)):
                size = value.numel() * value.element_size() if hasattr(value, "numel") else value.nbytes
                before = self._read(memory.address, size)
                self.written.append(Buffer(memory.address, size, parameter.element, before))
            return value
        if value is not None:
            return self._upload(parameter, value.tobytes())
        if not (elements := self._tuning.arrays.get(parameter.name)):
            raise _missing(parameter, f'arrays = {{ {parameter.name} = "..." }}')
        try:
            return self._upload(parameter, random_bytes(parameter.element, int(evaluate(elements, given))))
        except ValueError as error:
            raise CudaExtError(f"{elements}: {error}", where=f"arrays.{parameter.name}") from None

    def _upload(self, parameter: Parameter, content: bytes) -> int:
        address = self._driver.query("cuMemAlloc", OUT, max(len(content), 1))
        self._allocated.append(address)
        self._driver.call("cuMemcpyHtoDAsync", address, content, len(content), self._stream)
        self._driver.call("cuStreamSynchronize", self._stream)
        if not parameter.const:
            self.written.append(Buffer(address, len(content), parameter.element or "", content))
        return address


def _missing(parameter: Parameter, key: str) -> CudaExtError:
    return ArgumentError(f"the case has no {parameter}", where="tune", remedy=f"add {key} to the table")


def random_bytes(element: str, count: int) -> bytes:
    """Return `count` numbers between -1 and 1 of a type of C++; zeros for integers, which may be indices."""
    size = ELEMENT_SIZES.get(element, 1)
    numbers = random.Random(1)  # noqa: S311 - measurements need no secrets
    if element in _FORMATS:
        values = (numbers.uniform(-1, 1) for _ in range(_RANDOM))
        block = struct.pack(f"<{_RANDOM}{_FORMATS[element]}", *values)
    elif element == "__nv_bfloat16":
        block = b"".join(struct.pack("<f", numbers.uniform(-1, 1))[2:] for _ in range(_RANDOM))
    else:
        block = bytes(size)
    return (block * (count * size // len(block) + 1))[: count * size]


def disagreement(buffers: list[Buffer], found: list[bytes], expected: list[bytes], tolerance: float) -> str:
    """Return how the results `found` differ from those `expected`; nothing if they agree."""
    for buffer, one, other in zip(buffers, found, expected, strict=True):
        if one == other:
            continue
        if not tolerance or buffer.element not in (*_FORMATS, "__nv_bfloat16"):
            return "computes other bits than the default"
        import numpy as np  # only tolerances need it

        if buffer.element == "__nv_bfloat16":
            a, b = (np.frombuffer(x, "<u2").astype("<u4").__lshift__(16).view("<f4") for x in (one, other))
        else:
            a, b = (np.frombuffer(x, f"<{_FORMATS[buffer.element]}").astype("<f8") for x in (one, other))
        difference = float(np.nanmax(np.abs(a - b)) / max(float(np.nanmax(np.abs(b))), 1e-30))
        if not difference <= tolerance or bool((np.isnan(a) != np.isnan(b)).any()):
            return f"computes other results than the default: they differ by {difference:.2g}"
    return ""
