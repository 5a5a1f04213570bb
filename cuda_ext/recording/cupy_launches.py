"""Record the launches of CuPy's ``RawKernel`` and ``RawModule``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cuda_ext.recording.described_values import DIVISOR, number_of, read_array
from cuda_ext.recording.recorder import record
from cuda_ext.recording.records import Argument, Launch


def watch(module: Any) -> None:
    """Record each call of a kernel, of ``cupy``."""

    class RawKernel(module.RawKernel):  # type: ignore[misc]
        def __init__(self, code: str, name: str, *options: Any, **named: Any) -> None:
            super().__init__(code, name, *options, **named)
            self._recorded_name = name

        def __call__(self, grid: Any, block: Any, arguments: Any, **named: Any) -> None:
            record(lambda: _describe(self._recorded_name, grid, block, arguments, named), self._recorded_name)
            super().__call__(grid, block, arguments, **named)

    class RawModule(module.RawModule):  # type: ignore[misc]
        def get_function(self, name: str) -> Any:
            return _Kernel(super().get_function(name), name)

    module.RawKernel, module.RawModule = RawKernel, RawModule


class _Kernel:
    """A kernel of a ``RawModule``, which makes it itself."""

    def __init__(self, kernel: Any, name: str) -> None:
        self._kernel = kernel
        self._name = name

    def __call__(self, grid: Any, block: Any, arguments: Any, **named: Any) -> None:
        record(lambda: _describe(self._name, grid, block, arguments, named), self._name)
        self._kernel(grid, block, arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)


def _describe(name: str, grid: Any, block: Any, values: Sequence[Any], named: dict[str, Any]) -> Launch:
    described = []
    for number, value in enumerate(values):
        argument = Argument(str(number), "")
        if array := read_array(value):
            described.append(array.describe(argument._replace(divisible=array.is_divisible)))
        elif (given := number_of(value)) is not None:
            type_ = str(getattr(value, "dtype", ""))
            is_divisible = type(given) is int and given % DIVISOR == 0
            described.append(argument._replace(type=type_, value=repr(given), divisible=is_divisible))
        else:
            described.append(argument)
    launch = Launch("cupy", "", "", name, tuple(described))
    shape = tuple(map(int, grid)), tuple(map(int, block))
    return launch._replace(grid=shape[0], block=shape[1], shared=int(named.get("shared_mem", 0)))
