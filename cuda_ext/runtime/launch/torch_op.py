"""Register kernels as PyTorch operators, for ``torch.compile`` and the dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cuda_ext.errors import ArgumentError
from cuda_ext.manifest import Parameter, ParameterKind

__all__ = ["register_operator"]

_TYPES: dict[ParameterKind, str] = {
    "integer": "int",
    "unsigned": "int",
    "enum": "int",
    "bool": "bool",
    "float": "float",
}
_HALVES = ("__half", "__nv_bfloat16")


def register_operator(
    launch: Callable[..., object],
    signature: str,
    parameters: Sequence[Parameter],
    name: str,
    options: Mapping[str, Any],
) -> Any:
    """Register `launch` as the operator `name`, ``namespace::operator``, for :meth:`Kernel.torch_op`."""
    import torch

    if unfit := [p.name for p in parameters if not p.name.isidentifier()]:
        raise ArgumentError(
            f"PyTorch does not take the name {unfit[0]!r} for a parameter",
            where=signature,
            remedy="rename it",
        )
    positions = {parameter.name: number for number, parameter in enumerate(parameters)}
    for option, value in options.items():
        if isinstance(value, str) and value not in positions:
            raise ArgumentError(
                f"expected the name of a parameter of {signature}, found {value!r}", where=option
            )
    schema = ", ".join(_declare(number, parameter) for number, parameter in enumerate(parameters))
    torch.library.define(name, f"({schema}) -> ()")

    def run(*arguments: Any) -> None:
        launch(*arguments, **{key: _value(value, arguments, positions) for key, value in options.items()})

    torch.library.impl(name, "cuda")(run)
    torch.library.register_fake(name)(lambda *_: None)
    namespace, _, operator = name.partition("::")
    return getattr(getattr(torch.ops, namespace), operator).default


def _declare(number: int, parameter: Parameter) -> str:
    """The declaration of a parameter in a schema: arrays that are not ``const`` are mutated."""
    if parameter.kind == "pointer":
        type_ = "Tensor?" if parameter.const else f"Tensor(a{number}!)?"
    elif parameter.type in _HALVES:
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


def _value(value: Any, arguments: Sequence[Any], positions: Mapping[str, int]) -> Any:
    if isinstance(value, str):
        return arguments[positions[value]]
    return value(*arguments) if callable(value) else value
