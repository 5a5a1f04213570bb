"""Record the launches of modules of kernels, also of what was compiled on demand.

While a program is recorded, no launch runs in C, so the launcher in Python sees all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cuda_ext.recording.described_values import number_of, read_array, with_number
from cuda_ext.recording.recorder import record
from cuda_ext.recording.records import Argument, Launch, LaunchKind, without_defaults

if TYPE_CHECKING:
    from cuda_ext.compiler.front_ends.instantiation import TypedParameter
    from cuda_ext.facts.kernels import Parameter
    from cuda_ext.runtime.launch.launcher import Launched
    from cuda_ext.runtime.loaded_library import Library


def watch(module: Any) -> None:
    """Record each launch, of ``cuda_ext.runtime.launch.fast_launch``."""

    def observe(launch: Any, launched: Launched) -> None:
        kernel = getattr(launch, "_bound", launch)
        record(lambda: _describe(kernel._library, launched), kernel._kernel.expression)

    module.observe = observe


def _describe(library: Library, launched: Launched) -> Launch:
    kernel, configuration = launched.launcher.kernel, launched.configuration
    values = dict(zip((p.name for p in kernel.parameters), launched.arguments.ordered, strict=True))
    owner = library.owners.get(kernel.expression)
    source = library.manifest.units[kernel.unit].sources[0]
    file = owner.source if owner else source.name
    if not file.endswith(".py"):
        arguments = (each for p in kernel.parameters for each in _of_cpp(p, values[p.name]))
        grid, block = configuration.grid, configuration.block
        launch = Launch("cuda", library.manifest.module, file, kernel.name, tuple(arguments))
        return launch._replace(
            constants=dict(kernel.constants), grid=grid, block=block, shared=configuration.shared
        )
    from cuda_ext.compiler.front_ends.instantiation import parse_instantiation

    # Units of Python functions have one instantiation. Those on demand have it as their name.
    each = parse_instantiation(kernel.expression if owner else source.instantiate[0])
    kind: LaunchKind = "cutile" if any(parameter.axes for parameter in each.parameters) else "triton"
    return Launch(
        kind,
        library.manifest.module,
        file,
        each.function,
        tuple(_of_python(p, values[p.argument], kind) for p in each.parameters),
        {**kernel.constants, **kernel.configuration},
        without_defaults(kernel.options) if kind == "triton" else {},
        configuration.grid,
    )


def _of_cpp(parameter: Parameter, value: Any) -> Iterator[Argument]:
    argument = Argument(parameter.name, parameter.type)
    if array := read_array(value):
        yield array.describe(argument._replace(divisible=array.is_divisible))
    elif hasattr(value, "__members__"):  # a structure
        for name, member in value.__members__.items():
            inner = member.field.parameter
            yield from _of_cpp(inner._replace(name=f"{parameter.name}.{name}"), getattr(value, name))
    else:
        yield _number(argument, value)


def _of_python(parameter: TypedParameter, value: Any, kind: LaunchKind) -> Argument:
    argument = Argument(parameter.name, parameter.type, path=parameter.path)
    if array := read_array(value):
        is_divisible = array.has_divisible_strides if kind == "cutile" else array.is_divisible
        return array.describe(argument._replace(divisible=is_divisible))
    return _number(argument, value)


def _number(argument: Argument, value: Any) -> Argument:
    number = number_of(value)
    return argument if number is None else with_number(argument, number)  # bytes, or None for a null pointer
