"""Calls of a Python function that no built kernel takes: kernels for them are compiled on demand."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from cuda_ext.errors import ArgumentError
from cuda_ext.runtime.created_kernels import create_kernel, kernel_of
from cuda_ext.runtime.launch.fast_launch import Overloads

if TYPE_CHECKING:
    from cuda_ext.runtime.kernel import Kernel
    from cuda_ext.runtime.loaded_library import Library
    from cuda_ext.runtime.overloads import NotBuiltError, OverloadIndex
    from cuda_ext.runtime.python_demand import PythonDemand


class DemandingOverloads(Overloads):
    """Kernels of one name, of which further ones are compiled on demand if it is a Python function."""

    __library__: Library
    __qualified__: str
    __names__: Sequence[str]
    __own__: dict[str, Kernel]  # those that calls choose
    __chosen__: Mapping[str, object] = {}  # what `choose` was given

    @property
    def __overloads__(self) -> OverloadIndex:
        raise NotImplementedError

    @cached_property
    def __demand__(self) -> PythonDemand | None:
        """The compiler of further kernels; ``None`` if the name is no embedded Python function."""
        if not has_python(self.__library__):
            return None
        from cuda_ext.runtime.python_demand import find_demand  # not needed for what was built

        return find_demand(self.__library__, self.__qualified__)

    @cached_property
    def __constants__(self) -> dict[str, dict[type, dict[object, object]]]:
        """The values of constants that C tells apart, once kernels are compiled on demand."""
        constants = self.__overloads__.constants if self.__names__ else {}
        order = self.__demand__.parameters if self.__demand__ else ()
        self.__choose_by__(constants, tuple(map(sys.intern, order)), 0)
        return constants

    def __choose_kernel__(
        self, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Kernel | ArgumentError:
        """Return the kernel that fits a call, or the error if one may be compiled for it."""
        from cuda_ext.runtime.overloads import NotBuiltError

        try:
            return self.__kernel__(self.__overloads__.choose(arguments, keywords).expression)
        except ArgumentError as error:
            if error.is_missing and self.__demand__:
                return error
            if not isinstance(error, NotBuiltError):
                raise
            missing = error
        return self.__compile__(missing, keywords)

    def __kernel__(self, name: str) -> Kernel:
        """Return a kernel for calls, some of which need another; one in brackets is for its own calls."""
        if not has_python(self.__library__):
            return kernel_of(self.__library__, name)
        if name not in self.__own__:
            self.__own__[name] = create_kernel(self.__library__, name)
            self.__own__[name]._on_refusal = self.__refuse__
        return self.__own__[name]

    def __compile__(self, error: NotBuiltError, constants: Mapping[str, object]) -> Kernel:
        raise NotImplementedError

    def __refuse__(
        self, error: ArgumentError, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> Any:
        """Launch what is compiled for a call that a built kernel refuses; raise `error` if that fits it."""
        if not error.is_missing and self.__names__:
            from cuda_ext.runtime.launch.python_arguments import name_arguments

            index = self.__overloads__
            try:
                named = name_arguments(index.shapes, arguments, keywords)
                index.choose(() if named else arguments, named or keywords)
            except ArgumentError as unfit:
                error.is_missing = unfit.is_missing
        if not error.is_missing:
            raise error
        return self.__compile_call__(error, arguments, keywords)

    def __compile_call__(
        self,
        error: ArgumentError,
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
        refused_by: str = "",
    ) -> Any:
        """Launch the kernel of a Python function for a call that no built kernel takes, or raise `error`.

        The kernel is compiled for the call unless it is known. `refused_by` is the family that refused it.
        """
        from cuda_ext.runtime.missing_kernel import advise_line

        demand = self.__demand__
        call = demand and demand.infer(arguments, {**self.__chosen__, **error.needed, **keywords})
        if not call and (alike := getattr(error, "alike", ())):
            advice = advise_line(self.__library__, alike[0])
            raise ArgumentError(error.problem, remedy=f"{error.remedy}; {advice}")
        if not demand or not call or (call.family == refused_by and demand.knows(call)):
            fields = {"where": error.where, "remedy": error.remedy, "signature": error.signature}
            raise ArgumentError(error.problem, **fields)
        kernel: Kernel = demand.kernel(call, error)
        kernel._on_refusal = partial(self.__compile_call__, refused_by=call.family)
        result = kernel(*arguments, **keywords)
        if error.needed.keys() <= keywords.keys():  # otherwise, values of arguments choose
            self.__learn__(call.values)
            self.__remember__(kernel, *arguments, **keywords)
        return result

    def __learn__(self, values: Mapping[str, object]) -> None:
        """Let C tell these values of constants from all others."""
        for name, value in values.items():
            by_type = self.__constants__.setdefault(sys.intern(name), {})
            if isinstance(value, Hashable):
                by_type.setdefault(type(value), {}).setdefault(value, value)


def has_python(library: Library) -> bool:
    """Return True if Python sources are embedded, from which missing kernels may be compiled on demand."""
    return any(file.endswith(".py") for file in library.manifest.embedded or ())
