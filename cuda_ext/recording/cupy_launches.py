"""Record the launches of CuPy's ``RawKernel`` and ``RawModule``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cuda_ext.recording.described_values import number_of, read_array, with_number
from cuda_ext.recording.recorder import record
from cuda_ext.recording.records import Argument, Launch


def watch(module: Any) -> None:
    """Record each call of a kernel, of ``cupy``."""

    class RawKernel(module.RawKernel):  # type: ignore[misc]
        def __init__(self, code: str, name: str, *options: Any, **named: Any) -> None:
            super().__init__(code, name, *options, **named)
            self._recorded_name = name

        def __call__(self, grid: Any, block: Any, arguments: Any, **named: Any) -> None:
            _Kernel(super().__call__, self._recorded_name)(grid, block, arguments, **named)

    class RawModule(module.RawModule):  # type: ignore[misc]
        def get_function(self, name: str) -> Any:
            return _Kernel(super().get_function(name), name)

    module.RawKernel, module.RawModule = RawKernel, RawModule


class _Kernel:
    """A kernel called `name`, each of whose calls is recorded."""

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
            typed = argument._replace(type=str(getattr(value, "dtype", "")))
            described.append(with_number(typed, given))
        else:
            described.append(argument)
    launch = Launch("cupy", "", "", name, tuple(described))
    shape = tuple(map(int, grid)), tuple(map(int, block))
    return launch._replace(grid=shape[0], block=shape[1], shared=int(named.get("shared_mem", 0)))
