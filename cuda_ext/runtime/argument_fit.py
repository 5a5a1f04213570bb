"""Decide by their types if an argument fits a parameter."""

from __future__ import annotations

import numbers
from typing import Any

from cuda_ext.errors import ArgumentError
from cuda_ext.facts.kernels import Parameter
from cuda_ext.runtime.arrays.device_memory import device_memory
from cuda_ext.runtime.arrays.dtypes import accepted_dtypes, dtype_of_typestr
from cuda_ext.runtime.arrays.host_arrays import Out, is_host_array
from cuda_ext.runtime.launch.arguments import is_numpy_bool


def fits_exactly(parameter: Parameter, argument: Any) -> bool | None:
    """Return True if `argument` fits exactly, False if it fits after a conversion; ``None`` if not at all."""
    match parameter.kind:
        case "pointer":
            return _fits_pointer(parameter, argument)
        case "integer" | "unsigned" | "enum" | "bool":
            if not isinstance(argument, numbers.Integral) and not is_numpy_bool(argument):
                return None
            return _fits_number(parameter, argument, isinstance(argument, bool) == (parameter.kind == "bool"))
        case "float":
            if not isinstance(argument, numbers.Real):
                return None
            return _fits_number(parameter, argument, not isinstance(argument, numbers.Integral))
    if parameter.element and (fits := _fits_pointer(parameter, argument)) is not None:
        return fits  # of a tensor map
    if structure := getattr(type(argument), "__structure__", None):
        return True if structure.name == parameter.type else None
    if isinstance(argument, numbers.Real):
        # The compiler describes half types as structures.
        return False if parameter.type in ("__half", "__nv_bfloat16") else None
    return True


def _fits_number(parameter: Parameter, argument: Any, of_that_kind: bool) -> bool:
    """Return how a number fits: numbers of Python have no width, those of numpy do."""
    dtype = getattr(argument, "dtype", None)
    return of_that_kind if dtype is None else dtype_of_typestr(dtype.str) in accepted_dtypes(parameter.type)


def _fits_pointer(parameter: Parameter, argument: Any) -> bool | None:
    if argument is None or type(argument) is int:
        return False
    if is_host_array(argument) or isinstance(argument, Out):
        dtype = dtype_of_typestr(argument.dtype.str)
    else:
        try:
            memory = device_memory(argument)
        except ArgumentError:
            return False  # the launch reports the error
        if memory is None:
            return None
        dtype = memory.dtype
    accepted = accepted_dtypes(parameter.element or "void")
    if not accepted or not dtype:
        return False
    return True if dtype in accepted else None
