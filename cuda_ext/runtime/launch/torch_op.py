"""Register kernels as PyTorch operators, for ``torch.compile`` and the dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, TypedDict

from cuda_ext.errors import ArgumentError
from cuda_ext.facts.kernels import HALVES, Parameter, ParameterKind

if TYPE_CHECKING:
    from cuda_ext.runtime.arrays.device_memory import DeviceArray
    from cuda_ext.runtime.launch.configuration import Dim
    from cuda_ext.runtime.launch.streams import Stream

# Instead of a value: the name of an integer parameter, or a function of all arguments.
_Computed: TypeAlias = str | Callable[..., Any]


class OperatorLaunch(TypedDict, total=False):
    """The keywords of the launches of an operator."""

    grid: Dim | _Computed
    block: Dim | _Computed | None
    threads: SupportsIndex | _Computed
    shared: SupportsIndex | _Computed
    cluster: Dim | _Computed | None
    cooperative: bool | _Computed
    dependent: bool | _Computed
    stream: Stream | _Computed | None
    like: DeviceArray | _Computed | None
    wait: bool | _Computed


_TYPES: dict[ParameterKind, str] = {
    "integer": "int",
    "unsigned": "int",
    "enum": "int",
    "bool": "bool",
    "float": "float",
}


def register_operator(
    launch: Callable[..., object],
    bind: Callable[..., Callable[..., object]],
    signature: str,
    parameters: Sequence[Parameter],
    name: str,
    options: Mapping[str, Any],
) -> Any:
    """Register `launch` as the operator `name`, ``namespace::operator``, for :meth:`Kernel.torch_op`.

    `bind` binds constant options.
    """
    import torch

    if unfit := [p.name for p in parameters if not p.name.isidentifier()]:
        raise ArgumentError(
            f"PyTorch does not take the name {unfit[0]!r} for a parameter",
            where=signature,
            remedy="rename it",
        )
    positions = {parameter.name: number for number, parameter in enumerate(parameters)}
    constant: dict[str, Any] = {}
    named: dict[str, int] = {}
    computed: dict[str, Callable[..., Any]] = {}
    for option, value in options.items():
        if isinstance(value, str):
            if value not in positions:
                raise ArgumentError(
                    f"expected the name of a parameter of {signature}, found {value!r}", where=option
                )
            named[option] = positions[value]
        elif callable(value):
            computed[option] = value
        else:
            constant[option] = value
    schema = ", ".join(_declare(number, parameter) for number, parameter in enumerate(parameters))
    torch.library.define(name, f"({schema}) -> ()")
    mutated = [number for number, parameter in enumerate(parameters) if _is_mutated(parameter)]
    # Autograd raises an error if a tensor that it needs has changed its version.
    increment_version = torch.autograd.graph.increment_version

    def configure_and_launch(*arguments: Any) -> None:
        keywords = constant.copy()
        for option, position in named.items():
            keywords[option] = arguments[position]
        for option, function in computed.items():
            keywords[option] = function(*arguments)
        launch(*arguments, **keywords)

    launch_all = configure_and_launch if named or computed else bind(**constant)

    def run(*arguments: Any) -> None:
        launch_all(*arguments)
        for number in mutated:
            if (tensor := arguments[number]) is not None:
                increment_version(tensor)

    torch.library.impl(name, "cuda")(run)
    torch.library.register_fake(name)(lambda *_: None)
    namespace, _, operator = name.partition("::")
    return getattr(getattr(torch.ops, namespace), operator).default


def _is_mutated(parameter: Parameter) -> bool:
    return parameter.kind == "pointer" and not parameter.const


def _declare(number: int, parameter: Parameter) -> str:
    """Declare a parameter in a schema; arrays that are not ``const`` are mutated."""
    if parameter.kind == "pointer":
        type_ = f"Tensor(a{number}!)?" if _is_mutated(parameter) else "Tensor?"
    elif parameter.type in HALVES:
        type_ = "float"
    elif parameter.kind in _TYPES:
        type_ = _TYPES[parameter.kind]
    else:
        raise ArgumentError(
            "PyTorch's operators take tensors, integers, bools and floats only",
            where=str(parameter),
            remedy="launch the kernel without one",
        )
    return f"{type_} {parameter.name}"
