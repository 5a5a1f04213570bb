"""Record the launches of cuTile's kernels."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from cuda_ext.compiler.front_ends.kernel_description import DTYPES
from cuda_ext.recording.described_values import describe_number, flatten, read_array
from cuda_ext.recording.recorder import record, recording
from cuda_ext.recording.records import Argument, Launch
from cuda_ext.recording.triton_launches import spell_constant

_TYPES = {each.torch: each.cutile for each in DTYPES}


def watch(module: Any) -> None:
    """Record each call of ``cuda.tile.launch``."""
    launch = module.launch

    def recorded_launch(stream: Any, grid: Any, kernel: Any, arguments: Any, /, **named: Any) -> Any:
        function = kernel._annotated_function
        record(lambda: _describe(function, arguments, grid), function.pyfunc.__name__)
        return None if recording().replaces else launch(stream, grid, kernel, arguments, **named)

    module.launch = recorded_launch


def _describe(function: Any, values: Sequence[Any], grid: Sequence[int]) -> Launch:
    names = inspect.signature(function.pyfunc).parameters
    described: list[Argument] = []
    constants: dict[str, str] = {}
    for name, annotation, value in zip(names, function.parameter_annotations, values, strict=True):
        if getattr(annotation, "constant", False) or value is None:
            constants[name] = spell_constant(value)
        else:
            described += (_argument(Argument(name, "", path=path), item) for path, item in flatten(value))
    file = recording().relative(function.pyfunc.__code__.co_filename)
    launch = Launch("cutile", function.pyfunc.__module__, file, function.pyfunc.__name__, tuple(described))
    return launch._replace(constants=constants, grid=tuple(map(int, grid)))


def _argument(argument: Argument, value: Any) -> Argument:
    if array := read_array(value):
        typed = argument._replace(type=_TYPES[array.dtype], divisible=array.has_divisible_strides)
        return array.describe(typed)
    # cuTile does not examine numbers.
    return describe_number(argument, value, _TYPES)._replace(divisible=False)
