"""PyTorch operators that launch kernels, for ``torch.compile`` and the dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
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


def torch_op(
    name: str,
    function: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: Sequence[str] = (),
    schema: str | None = None,
    fake: Callable[..., Any] | None = None,
) -> Any:
    """Register `function`, which launches kernels, as the PyTorch operator `name`, and return the operator.

    `name` is ``"namespace::operator"``. The schema follows from the annotations of the function, and
    `mutates_args` names the tensors that it writes to. Or give `schema`, such as
    ``"(Tensor x, Tensor(a!) y) -> ()"``. If the function returns tensors, ``torch.compile`` needs `fake`: a
    function of the same arguments that returns empty tensors of the same shapes and dtypes. The function
    runs for tensors on a GPU, and without autograd. Without `function`, the result is a decorator.

    >>> @cuda_ext.torch_op("mylib::gelu", fake=torch.empty_like)  # doctest: +SKIP
    ... def gelu(x: torch.Tensor) -> torch.Tensor:
    ...     y = torch.empty_like(x)
    ...     kernels.gelu(x.numel(), x, y, threads=x.numel())
    ...     return y

    Raises :class:`~cuda_ext.errors.ArgumentError` if PyTorch has no schema for the annotations.
    """
    if function is None:
        return partial(torch_op, name, mutates_args=mutates_args, schema=schema, fake=fake)
    import torch

    launch = function
    if schema is None:
        try:
            schema = torch.library.infer_schema(launch, mutates_args=mutates_args)
        except ValueError as error:
            raise ArgumentError(
                f"PyTorch finds no schema: {error}",
                where=f"the operator {name}",
                remedy="annotate all arguments and the result, or give `schema`",
            ) from None
    elif mutates_args:
        raise ArgumentError("`schema` says which tensors the function writes to", where="mutates_args")
    if fake is None and schema.rpartition("->")[2].strip() != "()":
        raise ArgumentError(
            f"the operator {name} returns values, and torch.compile does not know of which shapes",
            where="fake",
            remedy="give a function that returns empty tensors, such as torch.empty_like",
        )
    operator = _define(name, schema)
    declared = enumerate(operator._schema.arguments)
    mutated = [(i, a.name) for i, a in declared if a.alias_info is not None and a.alias_info.is_write]
    increment_version = torch.autograd.graph.increment_version

    def run(*arguments: Any, **keywords: Any) -> Any:
        if torch.is_grad_enabled():  # otherwise a tensor may get the gradient of a part of the function
            with torch.no_grad():
                return run(*arguments, **keywords)
        result = launch(*arguments, **keywords)
        for position, argument in mutated:
            # PyTorch passes neither trailing arguments that have their default value, nor these by keyword.
            tensor = arguments[position] if position < len(arguments) else keywords.get(argument)
            if tensor is not None:
                increment_version(tensor)
        return result

    _implement(name, run, fake)
    return operator


def register_kernel(
    launch: Callable[..., object],
    bind: Callable[..., Callable[..., object]],
    signature: str,
    parameters: Sequence[Parameter],
    name: str,
    options: Mapping[str, Any],
) -> Any:
    """Register `launch` as the operator `name` for :meth:`Kernel.torch_op`; `bind` binds constant options."""
    if unfit := [p.name for p in parameters if not p.name.isidentifier()]:
        raise ArgumentError(
            f"PyTorch does not take the name {unfit[0]!r} for a parameter",
            where=signature,
            remedy="rename it",
        )
    names = [parameter.name for parameter in parameters]
    for option, value in options.items():
        if isinstance(value, str) and value not in names:
            raise ArgumentError(
                f"expected the name of a parameter of {signature}, found {value!r}", where=option
            )
    schema = ", ".join(_declare(number, parameter) for number, parameter in enumerate(parameters))
    mutated = [number for number, parameter in enumerate(parameters) if _is_mutated(parameter)]
    if not any(isinstance(value, str) or callable(value) for value in options.values()):
        launch, options = bind(**options), {}
    run = _compile(launch, names, options, mutated)
    operator = _define(name, f"({schema}) -> ()")
    _implement(name, run, None)
    return operator


def _define(name: str, schema: str) -> Any:
    import torch

    torch.library.define(name, schema)
    namespace, _, operator = name.partition("::")
    return getattr(getattr(torch.ops, namespace), operator).default


def _implement(name: str, run: Callable[..., Any], fake: Callable[..., Any] | None) -> None:
    import torch

    torch.library.impl(name, "cuda")(run)
    torch.library.register_fake(name)(fake or (lambda *_, **__: None))


def _compile(
    launch: Callable[..., object], names: Sequence[str], options: Mapping[str, Any], mutated: Iterable[int]
) -> Any:
    """Make the function of the arguments `names` that launches, and tells autograd of `mutated` ones.

    It is one function with a statement for each. Closures, keywords in a dictionary, and a loop would take
    half as long as the dispatcher, which takes as long as a launch.
    """
    places = {name: f"a{number}" for number, name in enumerate(names)}
    arguments = ", ".join(places.values())

    def keywords() -> Iterator[str]:
        for option, value in options.items():
            if isinstance(value, str):
                yield f"{option}={places[value]}"
            else:
                yield f"{option}={option}({arguments})" if callable(value) else f"{option}={option}"

    lines = [f"def run({arguments}):", f"    launch({', '.join([*places.values(), *keywords()])})"]
    lines += [f"    if a{number} is not None: increment_versions((a{number},))" for number in mutated]
    namespace = {**options, "launch": launch, "increment_versions": _increment_versions()}
    exec("\n".join(lines), namespace)  # noqa: S102 - only names that are given here
    return namespace["run"]


def _increment_versions() -> Callable[[Any], object]:
    """Return the function that increments the versions of tensors, by which autograd notices a change.

    The public function is one in Python, and takes a tenth of a launch longer than the one that it calls.
    """
    import torch

    with suppress(Exception):  # older versions of PyTorch take one tensor
        torch._C._increment_version((torch.empty(0),))
        return torch._C._increment_version  # type: ignore[no-any-return]
    return lambda tensors: torch.autograd.graph.increment_version(*tensors)


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
            remedy="register a function that makes this argument and launches, with cuda_ext.torch_op",
        )
    return f"{type_} {parameter.name}"
