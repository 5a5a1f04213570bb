"""Watch launches: each function changes a module of a library, whose launches are recorded from then on."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cuda_ext.compiler.front_ends.instantiation import parse_instantiation
from cuda_ext.compiler.front_ends.python_functions import PythonFunction
from cuda_ext.recording.described_values import describe_arguments, read_arrays
from cuda_ext.recording.recorder import record, recording
from cuda_ext.recording.records import Launch

if TYPE_CHECKING:
    from cuda_ext.runtime.launch.launcher import Launched
    from cuda_ext.runtime.loaded_library import Library

_measuring = threading.local()
# The keywords of its decorator by which Triton examines fewer arguments.
_EXCLUDING = ("do_not_specialize", "do_not_specialize_on_alignment")
# What a launch of Triton says that no image depends on.
_NOT_COMPILED = {"debug", "instrumentation_mode", "sanitize_overflow", "stream", "ir_override"}


def watch_modules(module: Any) -> None:
    """Record the launches of modules of kernels, of ``cuda_ext.runtime.launch.fast_launch``.

    No launch runs in C then, so the launcher in Python sees all of them.
    """

    def observe(launch: Any, launched: Launched) -> None:
        kernel = getattr(launch, "_bound", launch)
        record(kernel._kernel.expression, lambda: _of_module(kernel._library, launched))

    module.observe = observe


def _of_module(library: Library, launched: Launched) -> Launch:
    kernel, configuration = launched.launcher.kernel, launched.configuration
    owner = library.owners.get(kernel.expression)
    source = library.manifest.units[kernel.unit].sources[0]
    file, text = owner.source if owner else source.name, kernel.name
    if file.endswith(".py"):
        # Units of Python functions have one instantiation. Those on demand have it as their name.
        each = parse_instantiation(kernel.expression if owner else source.instantiate[0])
        constants = {**each.constants, **each.configuration}
        text = str(replace(each, constants=constants, configuration={}, when=(), derived={}))
    ordered = zip(kernel.parameters, launched.arguments.ordered, strict=True)
    # An address as a number says nothing.
    values = {p.name: value for p, value in ordered if p.kind != "pointer" or not isinstance(value, int)}
    arguments = tuple(describe_arguments(values))
    shape = configuration.grid, configuration.block, configuration.shared
    return Launch("module", library.manifest.module, file, text, arguments, *shape)


def watch_functions(module: Any) -> None:
    """Record the launches of each ``JITFunction``, of ``triton.runtime.jit``.

    The constants that heuristics and tuning derive arrive here as others do. Runs that measure are left out.
    """
    run = module.JITFunction.run

    def recorded_run(self: Any, /, *arguments: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        if not warmup and not getattr(_measuring, "now", False):
            record(self.__name__, lambda: _of_triton(self, arguments, named, grid))
        return None if recording().replaces else run(self, *arguments, grid=grid, warmup=warmup, **named)

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


def _of_triton(jit: Any, arguments: Sequence[Any], named: Mapping[str, Any], grid: Any) -> Launch:
    given = {**dict(zip(jit.arg_names, arguments, strict=False)), **named}
    values = {p.name: given.pop(p.name, p.default) for p in jit.params}
    annotations = {p.name: p.annotation for p in jit.params}
    excluded = {keyword: tuple(getattr(jit, keyword)) for keyword in _EXCLUDING}
    function = PythonFunction(jit.__name__, tuple(values), {}, (), annotations, excluded)
    options = {n: value for n, value in given.items() if n not in _NOT_COMPILED and value is not None}
    blocks = grid({**values, **given}) if callable(grid) else grid
    blocks = blocks if isinstance(blocks, tuple | list) else [blocks]
    return _of_python("triton", jit.fn, function, values, options, blocks)


def watch_tiles(module: Any) -> None:
    """Record each call of ``launch``, of ``cuda.tile``."""
    launch = module.launch

    def recorded_launch(stream: Any, grid: Any, kernel: Any, arguments: Any, /, **named: Any) -> Any:
        record("ct.launch", lambda: _of_tile(kernel._annotated_function, arguments, grid))
        return None if recording().replaces else launch(stream, grid, kernel, arguments, **named)

    module.launch = recorded_launch


def _of_tile(kernel: Any, arguments: Sequence[Any], grid: Sequence[int]) -> Launch:
    values = dict(zip(inspect.signature(kernel.pyfunc).parameters, arguments, strict=True))
    annotated = zip(values, kernel.parameter_annotations, strict=True)
    constants = {name: "Constant" for name, each in annotated if getattr(each, "constant", False)}
    function = PythonFunction(kernel.pyfunc.__name__, tuple(values), {}, (), constants)
    return _of_python("cutile", kernel.pyfunc, function, values, {}, grid)


def _of_python(
    kind: Any, code: Any, function: PythonFunction, values: Any, options: Any, grid: Sequence[Any]
) -> Launch:
    """Describe the launch of a `function`, defined by `code`, with `values` of all its parameters."""
    from cuda_ext.runtime.inferred_calls import infer_launch  # not needed for other launches

    arrays = {name: read_arrays(value) for name, value in values.items()}
    each = infer_launch(function, kind, arrays, options)
    typed = {parameter.name for parameter in each.parameters}
    arguments = describe_arguments({name: value for name, value in arrays.items() if name in typed})
    file = recording().relative(code.__code__.co_filename)
    parse_instantiation(text := str(each))  # a function without a name cannot be listed
    return Launch(kind, code.__module__, file, text, tuple(arguments), tuple(map(int, grid)))


def watch_raw_kernels(module: Any) -> None:
    """Record each call of a ``RawKernel``, also of a ``RawModule``, of ``cupy``."""
    make = module.RawKernel

    class RawKernel:
        """The kernel `name`, of `code` or made by a module."""

        def __init__(self, code: str, name: str, *options: Any, made: Any = None, **named: Any) -> None:
            self.__dict__.update(_made=made or make(code, name, *options, **named), _recorded_name=name)

        def __call__(self, grid: Any, block: Any, arguments: Any, **named: Any) -> None:
            record(self._recorded_name, lambda: _of_cupy(self._recorded_name, grid, block, arguments, named))
            self._made(grid, block, arguments, **named)

        def __getattr__(self, name: str) -> Any:
            return getattr(object.__getattribute__(self, "_made"), name)

        def __setattr__(self, name: str, value: object) -> None:
            setattr(self._made, name, value)

    class RawModule(module.RawModule):  # type: ignore[misc]
        def get_function(self, name: str) -> Any:
            return RawKernel("", name, made=super().get_function(name))

    module.RawKernel, module.RawModule = RawKernel, RawModule


def _of_cupy(name: str, grid: Any, block: Any, values: Sequence[Any], named: Mapping[str, Any]) -> Launch:
    arguments = describe_arguments({str(number): value for number, value in enumerate(values)})
    shape = tuple(map(int, grid)), tuple(map(int, block))
    return Launch("cupy", "", "", name, tuple(arguments), *shape, int(named.get("shared_mem", 0)))
