"""Launches in C, by ``_launch``, and the facts that they need.

The careful launcher handles the first launch and every uncommon one. Its results are passed to C, and later
launches of the same form run no Python. If ``_launch`` was not compiled, all launches are careful.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Self

from cuda_ext.errors import without_frames
from cuda_ext.facts.kernels import Kernel, Parameter
from cuda_ext.runtime.arrays.dtypes import accepted_dtypes, is_complex, may_hold_address
from cuda_ext.runtime.driver.driver import Driver
from cuda_ext.runtime.driver.loaded_kernel import LoadedKernel
from cuda_ext.runtime.launch import is_debugging

if TYPE_CHECKING:
    from cuda_ext.facts.launches import HiddenParameter
    from cuda_ext.runtime.launch import _launch as compiled
    from cuda_ext.runtime.launch._launch import Description, Hidden, Launch
    from cuda_ext.runtime.launch._launch import GridLaunch as GridLaunch
    from cuda_ext.runtime.launch._launch import Overloads as Overloads
    from cuda_ext.runtime.launch.configuration import LaunchConfiguration, LaunchOptions
    from cuda_ext.runtime.launch.launcher import Launched, Launcher
else:
    try:
        from cuda_ext.runtime.launch import _launch as compiled
        from cuda_ext.runtime.launch._launch import GridLaunch, Launch
        from cuda_ext.runtime.launch._launch import Overloads as Overloads
    except ImportError:  # every launch is a careful one
        compiled = None

        class Launch:
            def __new__(cls, *_arguments, **_keywords):
                return super().__new__(cls)

            def __call__(self, /, *arguments, **keywords):
                return self.__launch_carefully__(*arguments, **keywords)

            def __getitem__(self, item, /):
                return self.__select_carefully__(item)

        class GridLaunch:
            def __init__(self, kernel, grid):
                self._kernel, self._grid = kernel, grid

            def __call__(self, /, *arguments, **keywords):
                return self._kernel(*arguments, **keywords, grid=self._grid)

        class Overloads(Launch):
            def choose(self, /, **constants):
                return self.__choose_carefully__(**constants)

            def __choose_by__(self, *_):
                pass

            def __remember__(self, *_, **named):
                pass


# The values that parameters of a kind take, as native/arguments.h spells them, and the sizes.
_KINDS = {
    "pointer": "p",
    "integer": "i",
    "unsigned": "u",
    "enum": "e",
    "bool": "b",
    "float": "f",
    "struct": "s",
    "opaque": "s",
}
_WHOLE = (1, 2, 4, 8)
_SIZES = {"p": (8,), "i": _WHOLE, "u": _WHOLE, "e": _WHOLE, "c": (8, 16)}
# The sources of hidden parameters, as native/hidden.h spells them.
_SOURCES = {"zero": "z", "scratch": "m", "shape": "s", "stride": "d"}
_MOST_AXES = 16
# The driver's functions in the order in which `connect` takes them.
_FUNCTIONS = (
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuStreamGetCtx",
    "cuCtxPushCurrent",
    "cuCtxPopCurrent",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
)

# Types of arguments that C always takes.
_PLAIN = {bool, complex, float, int, type(None)}

_connected = False
# Called with each launch and its kernel, if launches are recorded: none of them runs in C then.
observe: Callable[[FastLaunch, Launched], None] | None = None


class FastLaunch(Launch):
    """A launch of `kernel` in C, or by the launcher in uncommon cases.

    For a name with variants, `candidates` are launches of the launcher's candidates, in their order. With
    `bound` options, all launches on a device have the configuration of the first one.
    """

    _kernel: Kernel
    _structures: tuple[type[Any] | None, ...]  # the class of each parameter that is a known structure
    _learned: dict[str, dict[object, object]]  # arguments that mean the constant of this name, for C
    _candidates: tuple[FastLaunch, ...]
    _is_bound: bool

    def __new__(
        cls,
        kernel: Kernel,
        candidates: tuple[FastLaunch, ...] = (),
        bound: LaunchOptions | None = None,
        structures: tuple[type[Any] | None, ...] = (),
    ) -> Self:
        can_derive = all(map(_can_derive, kernel.hidden))
        parameters = _describe(kernel.parameters, structures) if can_derive else None
        hidden = tuple(_describe_hidden(kernel)) if parameters is not None else ()
        names = (*kernel.constants, *kernel.derived)
        learned: dict[str, dict[object, object]] = {sys.intern(name): {} for name in names}
        repeated, given = _constants(kernel)
        constants = (*repeated, *learned.items())
        # Constants by position have the positions of the Python function's arguments.
        order = tuple(map(sys.intern, kernel.order)) if learned else ()
        is_bound = bound is not None
        place = bound.place if bound else {}
        described = parameters, candidates, is_bound, hidden, constants, order, given
        in_order = kernel.is_in_order and bound is None  # a bound launch takes no constants
        launch = super().__new__(cls, *described, is_in_order=in_order, **place)
        launch._kernel = kernel
        launch._structures = structures
        launch._learned = learned
        launch._candidates = candidates
        launch._is_bound = is_bound
        return launch

    @property
    def _launcher(self) -> Launcher:
        raise NotImplementedError

    def _launch(
        self, arguments: Sequence[object], named: Mapping[str, object], options: LaunchOptions
    ) -> Any:
        """Launch carefully, and make launches like this one fast from now on."""
        launched = self._launcher.launch(arguments, named, options)
        if observe is not None:
            observe(self, launched)
        is_common = options.wait and not launched.arguments.has_host_arrays
        if is_common and 0 not in launched.configuration.grid and self._can_be_fast():
            self._learn(launched, options.like)
        return launched.pending

    @staticmethod
    def _can_be_fast() -> bool:
        return compiled is not None and observe is None and not is_debugging()

    def _learn(self, launched: Launched, like: object) -> None:
        kernel, configuration = launched.kernel, launched.configuration
        device = kernel.device
        launch: FastLaunch = self
        if self._candidates:
            number, choice = self._launcher.find_choice(launched.launcher, device)
            launch = self._candidates[number]
            self._set_choice(device.ordinal, choice)
        launch._set_kernel(kernel, (*launched.arguments.ordered, like))
        if self._is_bound:
            launch._set_configuration(kernel, configuration)

    def _set_kernel(self, kernel: LoadedKernel, arguments: Iterable[object]) -> None:
        """Launch `kernel` on its device from now on, with arguments of the same types as these."""
        device = kernel.device
        _connect(device.driver)
        if kernel.fixed and not self._is_bound:
            from cuda_ext.runtime.launch.configuration import LaunchConfiguration  # most images fix nothing

            # Set this before the kernel: without a configuration, C takes that of a call.
            if not self._set_configuration(kernel, LaunchConfiguration.fixed(kernel.fixed)):
                return
        self._set_loaded(
            device.ordinal,
            kernel.function,
            device.context,
            device.largest_grid,
            device.largest_block,
            kernel.most_threads,
            kernel.allowed,
            *kernel.latest_best_block,
        )
        # The hash of a type may run code of its metaclass.
        others = [kind for kind in map(type, arguments) if type(kind) is not type or kind not in _PLAIN]
        if others:
            from cuda_ext.runtime.launch import known_types

            known_types.register(others)

    def _set_configuration(self, kernel: LoadedKernel, configuration: LaunchConfiguration) -> bool:
        """Launch `kernel` in this configuration from now on; return True if C can."""
        pool: int | None = 0
        if configuration.scratch:
            from cuda_ext.runtime.arrays.staging import staging_of  # a slow import

            with kernel.device.current():
                pool = staging_of(kernel.device).pool
        if pool is None:  # the careful launcher allocates memory
            return False
        shape = configuration.grid, configuration.block, configuration.shared
        memory = configuration.scratch, pool
        self._set_prepared(kernel.device.ordinal, *shape, configuration.attributes, *memory)
        return True


class BoundLaunch(FastLaunch):
    """The result of ``Kernel.bind``: launches of a kernel with a fixed configuration."""

    _bound: FastLaunch
    _options: LaunchOptions

    @classmethod
    def of(cls, bound: FastLaunch, options: LaunchOptions) -> Self:
        """Bind the launch `bound` to `options`."""
        options = options.freeze()
        candidates = tuple(cls.of(each, options) for each in bound._candidates)
        launch = cls(bound._kernel, candidates, options, bound._structures)
        launch._bound = bound
        launch._options = options
        return launch

    @property
    def _launcher(self) -> Launcher:
        return self._bound._launcher

    @without_frames
    def __launch_carefully__(self, /, *arguments: Any, **named: Any) -> Any:
        return self._launch(arguments, named, self._options)

    def __select_carefully__(self, item: object, /) -> Any:
        raise TypeError(f"{self!r} takes no brackets, found {item!r}")

    def __repr__(self) -> str:
        return f"<bound launch of {self._bound!r}>"


def _constants(kernel: Kernel) -> tuple[list[tuple[str, object]], dict[str, object]]:
    """List what a call may repeat, once for each value that C takes, and what functions of a grid take."""
    repeated: list[tuple[str, object]] = []
    given: dict[str, object] = {}
    for constants in (kernel.configuration, kernel.defaults, kernel.options, kernel.constants):
        for name, text in constants.items():
            from cuda_ext.runtime.launch.python_arguments import values_of_constant  # few kernels have any

            values = values_of_constant(text)
            given[name] = values[0]
            if constants is kernel.options or constants is kernel.constants:
                name = sys.intern(name)
                repeated += [(name, value) for value in values]
    return repeated, given


def _describe(
    parameters: Sequence[Parameter], structures: Sequence[type[Any] | None] = ()
) -> tuple[Description, ...] | None:
    """Describe `parameters` for C; return ``None`` if C does not take one of them."""
    described = []
    for parameter, structure in zip_longest(parameters, structures):
        one = describe(parameter, structure)
        if one is None:
            return None
        described.append(one)
    return tuple(described)


def describe(parameter: Parameter, structure: type[Any] | None = None) -> Description | None:
    """Describe one parameter, whose values are of the class `structure`; ``None`` if C does not take it."""
    kind = _kind(parameter)
    if kind in "sv" and parameter.element:
        return None  # C makes no tensor maps
    if parameter.size not in _SIZES.get(kind, (parameter.size,)):
        return None
    dtypes = accepted_dtypes(parameter.element) if parameter.element else ()
    if structure is None:
        return parameter.name, kind, parameter.size, dtypes
    return parameter.name, "s" if structure.__is_opaque__ else "v", parameter.size, dtypes, structure


def learn(array: object) -> None:
    """Let C read arrays of this type."""
    if compiled is not None and type(array) not in _PLAIN:
        from cuda_ext.runtime.launch import known_types

        known_types.register([type(array)])


def _can_derive(parameter: HiddenParameter) -> bool:
    """Return True if C derives the value of `parameter`."""
    extent = parameter.extent
    return extent is None or (extent[2] < _MOST_AXES and parameter.size in _WHOLE)


def _describe_hidden(kernel: Kernel) -> Iterator[Hidden]:
    """Describe the hidden parameters of `kernel` for C."""
    terms = extent_terms(kernel)
    for hidden in kernel.hidden:
        position, part, axis = terms.get(hidden.source) or (0, _SOURCES[hidden.source], 0)
        yield hidden.position, hidden.size, part, position, axis


def extent_terms(kernel: Kernel) -> dict[str, tuple[int, str, int]]:
    """List the shapes and strides that `kernel` takes, by source; for C, the argument, part and axis."""
    positions = {parameter.name: i for i, parameter in enumerate(kernel.parameters)}
    extents = {hidden.source: extent for hidden in kernel.hidden if (extent := hidden.extent)}
    return {source: (positions[name], _SOURCES[what], axis) for source, (name, what, axis) in extents.items()}


def _kind(parameter: Parameter) -> str:
    if parameter.type == "__half":
        return "f"
    if parameter.type == "__nv_bfloat16":
        return "g"
    if is_complex(parameter.type):
        return "c"
    kind = _KINDS[parameter.kind]
    return "v" if kind == "s" and not may_hold_address(parameter.type, parameter.size) else kind


def _connect(driver: Driver) -> None:
    """Pass the functions of `driver` to C."""
    global _connected
    if _connected:
        return
    compiled.connect(driver.count, *map(driver.functions.address, _FUNCTIONS))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=compiled.disconnect)
    _connected = True
