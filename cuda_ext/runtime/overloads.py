"""Overload resolution: choose the kernel of a name that fits the types of a call's arguments."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from cuda_ext.errors import ArgumentError, did_you_mean
from cuda_ext.manifest import Parameter
from cuda_ext.runtime.arrays.device_memory import device_memory
from cuda_ext.runtime.arrays.dtypes import accepted_dtypes, dtype_of_typestr
from cuda_ext.runtime.arrays.host_arrays import Out, is_host_array
from cuda_ext.runtime.kernel import Kernel
from cuda_ext.runtime.launch.arguments import describe_value, is_numpy_bool, suggest_array
from cuda_ext.runtime.launch.launcher import LAUNCH_KEYWORDS
from cuda_ext.runtime.launch.python_arguments import is_constant

__all__ = ["choose_by_constants", "choose_overload", "choosing_keywords"]

# Keywords of these types choose a kernel by their values.
_COMPARED = (bool, float, int, str, tuple, type(None))

# How well an argument fits: exactly, or after a conversion.
_EXACT, _CONVERTED = 0, 1


def choose_by_constants(kernels: tuple[Kernel, ...], keywords: Mapping[str, object]) -> tuple[Kernel, ...]:
    """Choose the kernels that were compiled for those `keywords` that are constants of theirs.

    What is a constant of one kernel may be a parameter of another. Raises :class:`ArgumentError` if none was.
    """
    chosen = tuple(
        kernel
        for kernel in kernels
        if all(is_constant(keywords[n], text) for n, text in kernel.constants.items() if n in keywords)
    )
    if not chosen:
        names = {name for kernel in kernels for name in kernel.constants}
        wanted = ", ".join(f"{n}={describe_value(value)}" for n, value in keywords.items() if n in names)
        raise ArgumentError(
            f"no kernel was built for {wanted}",
            remedy="built: " + "; ".join(kernel.expression for kernel in kernels),
        )
    return chosen


def choosing_keywords(kernel: Kernel, keywords: Mapping[str, object]) -> dict[str, object] | None:
    """Those of `keywords` that choose `kernel` in C: constants by their values, arguments by their types.

    ``None`` if an argument would choose by its value there.
    """
    named = {name: value for name, value in keywords.items() if name not in LAUNCH_KEYWORDS}
    by_value = (name for name, value in named.items() if type(value) in _COMPARED)
    return named if kernel.constants.keys() >= {*by_value} else None


def choose_overload(
    kernels: Sequence[Kernel], arguments: Sequence[object], keywords: Mapping[str, object]
) -> Kernel:
    """Choose the kernel that fits the types of the arguments best. Their values do not matter.

    Raises :class:`ArgumentError` if none fits, or if several fit and none is at least as good as all others
    in each argument.
    """
    named = {name: value for name, value in keywords.items() if name not in LAUNCH_KEYWORDS}
    fits = {kernel: fit for kernel in kernels if (fit := _fits_of(kernel, arguments, named)) is not None}
    best = [
        kernel
        for kernel, fit in fits.items()
        if all(all(a <= b for a, b in zip(fit, other, strict=True)) for other in fits.values())
    ]
    if len(best) == 1:
        return best[0]
    # With the names, which may be misspelt.
    spelled = (f"{name}={_describe_type(argument)}" for name, argument in named.items())
    types = ", ".join([*map(_describe_type, arguments), *spelled])
    candidates = "".join(f"\n  {kernel.signature}" for kernel in (fits or kernels))
    if fits:
        raise ArgumentError(
            f"({types}) fits several kernels",
            remedy=f'choose one with brackets, as in kernels["{next(iter(fits)).expression}"]:{candidates}',
        )
    names = {p.name for kernel in kernels for p in kernel.parameters}
    known = {*names, *LAUNCH_KEYWORDS, *(name for kernel in kernels for name in kernel.constants)}
    remedies = [
        *(did_you_mean(name, known) for name in named if name not in known),
        *map(suggest_array, (*arguments, *named.values())),
    ]
    raise ArgumentError(f"({types}) fits none of:{candidates}", remedy=next(filter(None, remedies), ""))


def _fits_of(kernel: Kernel, arguments: Sequence[object], named: Mapping[str, object]) -> list[int] | None:
    parameters = kernel.parameters
    rest = {parameter.name: parameter for parameter in parameters[len(arguments) :]}
    if len(arguments) > len(parameters) or named.keys() - kernel.constants.keys() != rest.keys():
        return None
    given = [*zip(parameters, arguments, strict=False), *((rest.get(n), value) for n, value in named.items())]
    fits = []
    for parameter, argument in given:
        fit = _fit_of(parameter, argument) if parameter else _EXACT  # a constant
        if fit is None:
            return None
        fits.append(fit)
    return fits


def _fit_of(parameter: Parameter, argument: Any) -> int | None:
    match parameter.kind:
        case "pointer":
            return _fit_of_pointer(parameter, argument)
        case "integer" | "unsigned" | "enum" | "bool":
            if not isinstance(argument, numbers.Integral) and not is_numpy_bool(argument):
                return None
            return _fit_of_number(
                parameter, argument, isinstance(argument, bool) == (parameter.kind == "bool")
            )
        case "float":
            if not isinstance(argument, numbers.Real):
                return None
            return _fit_of_number(parameter, argument, not isinstance(argument, numbers.Integral))
    if parameter.element and (fit := _fit_of_pointer(parameter, argument)) is not None:
        return fit  # of a tensor map
    if isinstance(argument, numbers.Real):
        # The compiler describes half types as structures.
        return _CONVERTED if parameter.type in ("__half", "__nv_bfloat16") else None
    return _EXACT


def _fit_of_number(parameter: Parameter, argument: Any, of_that_kind: bool) -> int:
    """The fit of a number: Python's have no width, numpy's do."""
    dtype = getattr(argument, "dtype", None)
    if dtype is None:
        return _EXACT if of_that_kind else _CONVERTED
    return _EXACT if dtype_of_typestr(dtype.str) in accepted_dtypes(parameter.type) else _CONVERTED


def _fit_of_pointer(parameter: Parameter, argument: Any) -> int | None:
    if argument is None or type(argument) is int:
        return _CONVERTED
    if is_host_array(argument) or isinstance(argument, Out):
        dtype = dtype_of_typestr(argument.dtype.str)
    else:
        try:
            memory = device_memory(argument)
        except ArgumentError:
            return _CONVERTED  # the launch reports what is wrong with it
        if memory is None:
            return None
        dtype = memory.dtype
    accepted = accepted_dtypes(parameter.element or "void")
    if not accepted or not dtype:
        return _CONVERTED
    return _EXACT if dtype in accepted else None


def _describe_type(argument: Any) -> str:
    dtype = getattr(argument, "dtype", None)
    if dtype is None:
        return describe_value(argument) if argument is None else type(argument).__name__
    return f"{type(argument).__name__} of {str(dtype).removeprefix('torch.')}"
