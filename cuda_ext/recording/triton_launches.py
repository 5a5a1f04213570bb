"""Record the launches of Triton's functions, also of those that are tuned or have heuristics.

The constants that these derive arrive at the function as others do. Runs that measure are left out.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from cuda_ext.compiler.front_ends.kernel_description import DTYPES
from cuda_ext.recording.described_values import describe_number, flatten, number_of, read_array
from cuda_ext.recording.recorder import record, recording
from cuda_ext.recording.records import Argument, Launch, without_defaults

_TYPES = {each.torch: each.triton for each in DTYPES}
_measuring = threading.local()
# What a launch says that no image depends on.
_NOT_COMPILED = {"debug", "instrumentation_mode", "sanitize_overflow", "stream", "ir_override"}


def watch_functions(module: Any) -> None:
    """Record each launch of a ``JITFunction``, of ``triton.runtime.jit``."""
    run = module.JITFunction.run

    def recorded_run(self: Any, /, *arguments: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        if not warmup and not getattr(_measuring, "now", False):
            record(lambda: _describe(self, arguments, named, grid), self.__name__)
        if recording().replaces:
            return None
        return run(self, *arguments, grid=grid, warmup=warmup, **named)

    module.JITFunction.run = recorded_run


def watch_autotuner(module: Any) -> None:
    """Leave out the runs that an ``Autotuner`` measures. Without a GPU, it takes its first configuration."""
    measure = module.Autotuner._bench

    def measured(self: Any, *arguments: Any, **named: Any) -> Any:
        _measuring.now = True
        try:
            return measure(self, *arguments, **named)
        finally:
            _measuring.now = False

    def run_first(self: Any, *arguments: Any, **named: Any) -> Any:
        return self.fn.run(*arguments, **named, **self.configs[0].all_kwargs())

    module.Autotuner._bench = measured
    if recording().replaces:
        module.Autotuner.run = run_first


def _describe(function: Any, arguments: Sequence[Any], named: Mapping[str, Any], grid: Any) -> Launch:
    names = function.arg_names
    given = {**dict(zip(names, arguments, strict=False)), **named}
    described: list[Argument] = []
    constants: dict[str, str] = {}
    for parameter in function.params:
        value = given.setdefault(parameter.name, parameter.default)
        if parameter.is_constexpr or value is None or type(value).__name__ == "constexpr":
            constants[parameter.name] = spell_constant(value)
        else:
            described += (_argument(parameter, path, item) for path, item in flatten(value))
    options = {name: value for name, value in given.items() if name not in names and value is not None}
    spelled = {n: spell_constant(v) for n, v in options.items() if n not in _NOT_COMPILED}
    blocks = grid(given) if callable(grid) else grid
    return Launch(
        "triton",
        function.__module__,
        recording().relative(function.fn.__code__.co_filename),
        function.__name__,
        tuple(described),
        constants,
        without_defaults(spelled),
        tuple(map(int, blocks if isinstance(blocks, tuple | list) else [blocks])),
    )


def _argument(parameter: Any, path: tuple[int, ...], value: Any) -> Argument:
    argument = Argument(parameter.name, parameter.annotation_type or "", path=path)
    examines = not parameter.do_not_specialize
    aligns = examines and not getattr(parameter, "do_not_specialize_on_alignment", False)
    if hasattr(value, "block_shape"):  # a tensor descriptor
        block = ", ".join(map(str, value.block_shape))
        shape, strides = (tuple(map(int, each)) for each in (value.shape, value.strides))
        base = _argument(parameter, path, value.base)
        type_ = f"tensordesc<{base.type.lstrip('*k')}[{block}]>"
        return base._replace(type=type_, shape=shape, strides=strides)
    if array := read_array(value):
        type_ = f"*{'k' * bool(parameter.is_const)}{_TYPES[array.dtype]}"
        return array.describe(argument._replace(type=type_, divisible=aligns and array.is_divisible))
    described = describe_number(argument, value, _TYPES)
    return described._replace(divisible=described.divisible and aligns and described.type != "i1")


def spell_constant(value: Any) -> str:
    """Spell a constant as an instantiation does: dtypes and functions are their names."""
    if type(value).__name__ == "constexpr":
        value = value.value
    if isinstance(value, tuple | list):
        items = [*map(spell_constant, value)]
        return f"({', '.join(items)}{',' * (len(items) == 1)})"
    if isinstance(value, str) or value is None:
        return repr(value)
    if "dtype" in type(value).__name__:
        name = str(value).removeprefix("torch.")
        return _TYPES.get(name, name)
    if (number := number_of(value)) is not None:
        return repr(number)
    name = getattr(value, "__name__", "")
    if not name:
        raise TypeError(f"{value!r} cannot be a constant of an instantiation")
    return str(name)
