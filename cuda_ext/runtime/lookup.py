"""Look up kernels and symbols: attributes follow C++ namespaces, brackets take name expressions."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from cuda_ext.errors import (
    ArgumentError,
    DriverError,
    KernelNotFoundError,
    ToolchainError,
    escape_controls,
    join_names,
    without_frames,
)
from cuda_ext.runtime.created_kernels import create_kernel, kernel_of, variants_of
from cuda_ext.runtime.demanded_calls import DemandingOverloads, has_python
from cuda_ext.runtime.driver.driver import open_driver
from cuda_ext.runtime.kernel import Documentation, Kernel
from cuda_ext.runtime.launch.fast_launch import GridLaunch
from cuda_ext.runtime.loaded_library import Library

if TYPE_CHECKING:
    from cuda_ext.runtime.jit.preparation import Preparation
    from cuda_ext.runtime.overloads import NotBuiltError, OverloadIndex
    from cuda_ext.runtime.symbol import Symbol

    Entity: TypeAlias = "Kernel | Symbol | Namespace"

TemplateArguments = str | int | tuple[str | int, ...]


class Namespace:
    """A C++ namespace: its attributes are the kernels, symbols and namespaces in it.

    The global namespace, whose name is empty, is a module.
    """

    def __init__(self, library: Library, name: str) -> None:
        # C++ reserves names with two underscores, so these names hide no kernel.
        self.__library__ = library
        self.__qualified__ = name

    if not TYPE_CHECKING:  # stubs declare the attributes

        @without_frames
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") and name.endswith("__"):
                raise AttributeError(name)
            if self.__qualified__ not in self.__library__.names.members:
                raise AttributeError(f"kernel {self.__qualified__} has no attribute {name!r}")
            value = vars(self)[name] = _look_up(self.__library__, _qualify(self, name))
            return value

    __iter__ = None  # otherwise Python iterates over the items 0, 1, 2, ...

    @without_frames
    def __getitem__(self, expression: str, /) -> Any:
        if not isinstance(expression, str):
            raise TypeError(f"expected a C++ name expression, found {expression!r}")
        library, name = self.__library__, _qualify(self, expression)
        if not library.names.has_kernel(name):
            from cuda_ext.formats.spelling import normalise  # the names of the manifest do not need it

            name = _qualify(self, normalise(expression))
        return kernel_of(library, name) if library.names.has_kernel(name) else _look_up(library, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.getitem, (self.__library__.module, self.__qualified__)

    def __dir__(self) -> list[str]:
        library = self.__library__
        names = library.names.members.get(self.__qualified__, ())
        return sorted(names or (library.on_demand.kernels if not self.__qualified__ else ()))

    def _ipython_key_completions_(self) -> list[str]:
        from cuda_ext.runtime.notebook import complete_brackets

        return complete_brackets(self.__library__, self.__qualified__)

    def __repr__(self) -> str:
        return f"<namespace {self.__qualified__}: {', '.join(dir(self))}>"


def _describe(template: KernelTemplate) -> str:
    from cuda_ext.runtime.notebook import describe_name  # launches do not need it

    return describe_name(template.__library__, template.__qualified__, template.__names__)


class KernelTemplate(DemandingOverloads, Namespace):
    """A kernel template, or overloaded kernels; brackets select an instantiation or an overload.

    A call launches the kernel that fits the types of the arguments. Attributes are those of a namespace of
    the same name.
    """

    __doc__ = Documentation(__doc__, lambda own: _describe(own))

    __items__: dict[object, Any]
    __own__: dict[str, Kernel]

    def __new__(cls, library: Library, name: str, kernels: Sequence[str]) -> Self:  # noqa: ARG004
        create = create_kernel if has_python(library) else kernel_of
        own = {kernels[0]: create(library, kernels[0])} if len(kernels) == 1 else {}
        only = tuple(own.values())
        template = super().__new__(cls, only, tuple(only[0]._learned) if only else ())
        template.__names__ = kernels
        template.__items__ = {}
        template.__own__ = own
        if only and create is create_kernel:
            only[0]._on_refusal = template.__refuse__
        return template

    def __init__(self, library: Library, name: str, kernels: Sequence[str]) -> None:  # noqa: ARG002
        super().__init__(library, name)

    @property
    def __kernels__(self) -> tuple[Kernel, ...]:
        """The kernels of this name; those of a front-end have names that brackets do not take."""
        return tuple(kernel_of(self.__library__, name) for name in self.__names__)

    def __missing__(self, remedy: str = "") -> ArgumentError:
        return ArgumentError("none was built ahead", where=self.__qualified__, remedy=remedy)

    def __check_names__(self) -> None:
        if not self.__names__:
            raise self.__missing__(f'choose one as in {self.__qualified__}["float"]')

    @cached_property
    def __is_fixed__(self) -> bool:
        """True if images fix the launches. All kernels of a front-end's function are alike in this."""
        if not self.__names__:
            return self.__demand__ is not None
        return any(kernel_of(self.__library__, name)._is_fixed for name in self.__names__[:1])

    @cached_property
    def __overloads__(self) -> OverloadIndex:
        from cuda_ext.formats.lowered_names.meanings import merge_meanings
        from cuda_ext.runtime.overloads import OverloadIndex  # known calls need none

        kernels = [self.__library__.names.kernel(name) for name in self.__names__]
        units = self.__library__.manifest.units
        meanings = merge_meanings(units[number].meanings for number in {kernel.unit for kernel in kernels})
        index = OverloadIndex(kernels, meanings)
        self.__choose_by__(index.constants, index.order, index.fewest)
        return index

    @without_frames
    def __select_carefully__(self, arguments: TemplateArguments, /) -> Any:
        """Return the instantiation with these template arguments, ``"double, 256"`` or ``"double", 256``.

        For overloaded kernels, ``"(int, float*)"`` selects the kernel with these parameters. If images fix
        the launches, numbers that are no template arguments are a grid, and so is a function.
        """
        # True and 1 are equal in Python, but different template arguments.
        key = arguments if isinstance(arguments, str) else (arguments, *map(type, _each(arguments)))
        try:
            return self.__items__[key]
        except (KeyError, TypeError):  # not looked up before, or not template arguments
            pass
        if not isinstance(arguments, str) and self.__is_fixed__:
            from cuda_ext.runtime.grid_brackets import is_grid, is_launch, takes_numbers

            names = self.__names__ or (self.__qualified__,)  # of a Python function that was not built
            if is_grid(arguments) and is_launch(arguments, names):
                self.__takes_grid__ = not takes_numbers(names)  # C takes the next one
                return GridLaunch(self, arguments)
        try:
            kernel = Namespace(self.__library__, "")[_expression(self, arguments)]
        except (KernelNotFoundError, TypeError):
            from cuda_ext.runtime.grid_brackets import advise_keywords, is_launch

            if is_launch(arguments, self.__names__):
                raise KernelNotFoundError(
                    "brackets choose a kernel by its template arguments",
                    where=self.__qualified__,
                    remedy=advise_keywords(arguments, self.__is_fixed__),
                ) from None
            raise
        self.__items__[key] = kernel
        return kernel

    @without_frames
    def __choose_carefully__(self, /, **constants: Any) -> Kernel | KernelTemplate:
        """Return the kernel with these `constants`, or the kernels, among which a call chooses.

        Raises :class:`~cuda_ext.errors.ArgumentError` without one.
        """
        from cuda_ext.runtime.overloads import NotBuiltError  # known choices need none

        self.__check_names__()
        try:
            chosen = self.__overloads__.choose_by_constants(constants)
        except NotBuiltError as error:
            return self.__compile__(error, constants)
        if len(chosen) == 1:
            return kernel_of(self.__library__, chosen[0].expression)
        template = KernelTemplate(self.__library__, self.__qualified__, [each.expression for each in chosen])
        template.__chosen__ = {**self.__chosen__, **constants}
        return template

    def __compile__(self, error: NotBuiltError, constants: Mapping[str, object]) -> Kernel:
        """Compile the kernel that was not built for `constants` on demand, or raise `error`, completed."""
        from cuda_ext.runtime.launch.python_arguments import is_meant
        from cuda_ext.runtime.missing_kernel import advise_line

        library = self.__library__
        remedies = [error.remedy, *(advise_line(library, name) for name in error.alike[:1])]
        if len(error.alike) == 1:
            try:
                kernel: Kernel = Namespace(library, "")[error.alike[0]]
                known = constants.keys() & kernel.constants.keys()
                meanings = library.manifest.units[kernel._kernel.unit].meanings
                if all(
                    is_meant(constants[n], kernel.constants[n], self.__qualified__, meanings) for n in known
                ):
                    for name in known:  # other values that are not built have other kernels
                        self.__overloads__.learn(name, constants[name])
                    return kernel
            except KernelNotFoundError as missing:
                remedies[1] = missing.remedy  # with the reason why it is not compiled
        raise ArgumentError(error.problem, remedy="; ".join(remedies)) from None

    def prepare(
        self, instantiations: Iterable[TemplateArguments], *, architectures: Sequence[str] | None = None
    ) -> Preparation:
        """Compile `instantiations`, spelled as in brackets, together, as :func:`cuda_ext.prepare` does.

        >>> kernels.axpy.prepare(["__half", "double"], architectures=["sm_90"])  # doctest: +SKIP
        Preparation(compiled=('axpy<__half> for sm_90', 'axpy<double> for sm_90'), known=())
        """
        from cuda_ext.runtime.jit.preparation import prepare_entries  # rarely used
        from cuda_ext.runtime.text_arguments import read_items, read_texts

        chosen = read_items("instantiations", instantiations, "a list of template arguments")
        expressions = read_texts("instantiations", [_expression(self, arguments) for arguments in chosen])
        targets = None if architectures is None else read_texts("architectures", architectures)
        return prepare_entries(self.__library__.on_demand, expressions, targets)

    @without_frames
    def __launch_carefully__(self, /, *arguments: Any, **keywords: Any) -> Any:
        """Launch the kernel with this name that fits the arguments.

        Raises :class:`~cuda_ext.errors.ArgumentError` if none or several fit.
        """
        if not self.__names__ and self.__demand__:
            return self.__compile_call__(self.__missing__(), arguments, keywords)
        self.__check_names__()
        # Calls with known types do not need these.
        from cuda_ext.runtime.launch.python_arguments import flatten_tuples, name_arguments

        index = self.__overloads__
        if flat := flatten_tuples(index.shapes, arguments, keywords):
            return self(*flat[0], **flat[1])
        # If constants are given by position, name each argument as the function names it.
        named = name_arguments(index.shapes, arguments, keywords)
        if named and 0 < len(arguments) <= index.fewest:
            return self(**named)
        by_position = () if named else arguments
        kernel = self.__choose_kernel__(by_position, named or keywords)
        if isinstance(kernel, ArgumentError):
            return self.__compile_call__(kernel, arguments, keywords)
        result = kernel(*arguments, **keywords)
        # Do not let types whose values were refused choose a kernel for the next call.
        if index.is_remembered(len(arguments)):
            self.__remember__(kernel, *arguments, **keywords)
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        whole = super().__reduce__()
        return (_choose, (*whole[1], self.__chosen__)) if self.__chosen__ else whole

    def __repr__(self) -> str:
        return f"<kernel template {self.__qualified__}: {join_names(self.__names__)}>"


def _choose(module: Any, name: str, constants: Mapping[str, object]) -> Any:
    return module[name].choose(**constants)


def _qualify(namespace: Namespace, name: str) -> str:
    return f"{namespace.__qualified__}::{name}" if namespace.__qualified__ else name


def _expression(template: KernelTemplate, arguments: TemplateArguments) -> str:
    """Return the name expression of the instantiation or overload that these brackets select."""
    text = ", ".join(map(_spell, _each(arguments)))
    return template.__qualified__ + (text if text.startswith("(") else f"<{text}>")


def _each(arguments: TemplateArguments) -> tuple[str | int, ...]:
    return arguments if isinstance(arguments, tuple) else (arguments,)


def _spell(argument: str | int) -> str:
    if isinstance(argument, bool):
        return str(argument).lower()
    if isinstance(argument, str):
        return argument
    try:
        return str(operator.index(argument))
    except TypeError:
        raise TypeError(f"expected a template argument as C++ spells it, found {argument!r}") from None


def _look_up(library: Library, name: str) -> Entity:
    """Find the object with the normalised `name`. Raises :class:`KernelNotFoundError`."""
    if name not in library.objects:
        # If two threads get here, one of them stores its object.
        library.objects.setdefault(name, _create(library, name))
    entity: Entity = library.objects[name]
    return entity


def _create(library: Library, name: str) -> Entity:
    names = library.names
    if overloads := names.overloads(name):
        is_alone = len(overloads) == 1 and overloads[0] == name
        if is_alone and (name in names.specialised or name not in names.members):
            return kernel_of(library, name)
        return KernelTemplate(library, name, overloads)
    if variants := names.variants(name):
        return variants_of(library, variants)
    if symbols := names.symbols(name):
        if len(symbols) == 1:
            from cuda_ext.runtime.symbol import Symbol  # not needed for kernels

            return Symbol(library, symbols[0])
        sources = (library.manifest.units[symbol.unit].sources[0].name for symbol in symbols)
        raise KernelNotFoundError(
            f"{' and '.join(sources)} each have a variable {name} of their own",
            where=library.manifest.module,
            remedy="rename them, or link the units into one library with link = true",
        )
    if len(library.manifest.structures) or "structures" in vars(library):  # some are compiled on demand
        structure: Any = library.structures.find(name)
        if structure is not None:
            return structure  # type: ignore[no-any-return]
    if name == "constants" and len(library.manifest.constants):
        from cuda_ext.runtime.constants_lookup import Constants  # few modules have constants

        return Constants(library)  # type: ignore[return-value]
    if name and name in names.members:
        return Namespace(library, name)
    if escape_controls(name) != name:  # a cache key cannot contain it
        raise _not_found(library, name)
    if meant := _spelled_otherwise(library, name):
        return _look_up(library, meant)
    if "<" in name:
        return _instantiate(library, name)
    on_demand = library.on_demand if library.manifest.embedded else None
    if on_demand and (on_demand.owner(name) or on_demand.python_owner(name)):
        return KernelTemplate(library, name, ())
    raise _not_found(library, name)


def _spelled_otherwise(library: Library, name: str) -> str | None:
    """Find a built kernel that `name` spells with typedefs, constants or other literals; return its name."""
    from cuda_ext.formats.lowered_names.meanings import find_meant  # the manifest's own names do not need it

    names, units = library.names, library.manifest.units
    return find_meant(name, names.looked_up, lambda each: names.kernel(names.overloads(each)[0]), units)


def _instantiate(library: Library, name: str) -> Kernel:
    """Compile the instantiation `name` on demand for the current GPU."""
    from cuda_ext.formats.spelling import plain_name  # kernels that were built do not need it

    on_demand = library.on_demand
    obstacle = on_demand.obstacle()
    if not obstacle:
        owner = on_demand.owner(name)
        if owner is None:
            raise _not_found(library, name)
        try:
            device = open_driver().current_device()
            unit = library.manifest.units[owner.unit]
            obstacle = on_demand.obstacle(unit, device.driver.version)
            if not obstacle:
                compiled = library.instantiate(name, owner, device)
                # NVRTC knows more spellings of built kernels than the manifest.
                for built in library.names.overloads(plain_name(name)):
                    if library.names.kernel(built).lowered == compiled.lowered:
                        return kernel_of(library, built)
                kernel: Kernel = library.kernels.setdefault(name, Kernel.of(library, compiled))
                return kernel
        except (DriverError, ToolchainError) as error:
            obstacle = str(error)
    raise _not_found(library, name, obstacle)


def _not_found(library: Library, name: str, obstacle: str = "") -> KernelNotFoundError:
    from cuda_ext.runtime.missing_kernel import explain_missing_kernel  # rarely needed

    return explain_missing_kernel(library, name, obstacle)
