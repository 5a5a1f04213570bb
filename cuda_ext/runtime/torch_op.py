"""Kernels as operators of PyTorch, which ``torch.compile`` and autograd's dispatcher know of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cuda_ext.errors import ArgumentError
from cuda_ext.manifest import Parameter, ParameterKind

__all__ = ["torch_op"]

_TYPES: dict[ParameterKind, str] = {
    "integer": "int",
    "unsigned": "int",
    "enum": "int",
    "bool": "bool",
    "float": "float",
}
_HALVES = ("__half", "__nv_bfloat16")


def torch_op(
    launch: Callable[..., object],
    signature: str,
    parameters: Sequence[Parameter],
    name: str,
    options: Mapping[str, Any],
) -> Any:
    """Register `launch` as the operator `name`, ``namespace::operator``; see :meth:`Kernel.torch_op`."""
    import torch

    if unfit := [p.name for p in parameters if not p.name.isidentifier()]:
        raise ArgumentError(
            f"{signature}: PyTorch does not take the name {unfit[0]!r} for a parameter; rename it"
        )
    positions = {parameter.name: number for number, parameter in enumerate(parameters)}
    for option, value in options.items():
        if isinstance(value, str) and value not in positions:
            raise ArgumentError(f"{option}: expected the name of a parameter of {signature}, found {value!r}")
    schema = ", ".join(_declared(number, parameter) for number, parameter in enumerate(parameters))
    torch.library.define(name, f"({schema}) -> ()")

    def run(*arguments: Any) -> None:
        launch(*arguments, **{key: _value(value, arguments, positions) for key, value in options.items()})

    torch.library.impl(name, "cuda")(run)
    torch.library.register_fake(name)(lambda *_: None)
    namespace, _, operator = name.partition("::")
    return getattr(getattr(torch.ops, namespace), operator).default


def _declared(number: int, parameter: Parameter) -> str:
    """A parameter as a schema declares it: what is not ``const`` is written to, and aliases nothing else."""
    if parameter.kind == "pointer":
        type_ = "Tensor?" if parameter.const else f"Tensor(a{number}!)?"
    elif parameter.type in _HALVES:
        type_ = "float"
    elif parameter.kind in _TYPES:
        type_ = _TYPES[parameter.kind]
    else:
        raise ArgumentError(
            f"{parameter}: PyTorch's operators take tensors, integers, bools and floats only; launch the "
            "kernel without one"
        )
    return f"{type_} {parameter.name}"


def _value(value: Any, arguments: Sequence[Any], positions: Mapping[str, int]) -> Any:
    if isinstance(value, str):
        return arguments[positions[value]]
    return value(*arguments) if callable(value) else value
