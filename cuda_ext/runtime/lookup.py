"""Look up kernels and symbols: attributes follow C++ namespaces, brackets take name expressions."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from cuda_ext import manifest
from cuda_ext.compiler.name_expressions import normalise, plain_name
from cuda_ext.errors import ArgumentError, DriverError, KernelNotFoundError, ToolchainError, did_you_mean
from cuda_ext.runtime.driver.driver import open_driver
from cuda_ext.runtime.kernel import Kernel
from cuda_ext.runtime.launch.launcher import LAUNCH_KEYWORDS, Launcher
from cuda_ext.runtime.loaded_library import Library
from cuda_ext.runtime.overloads import choose_overload, dispatch_types
from cuda_ext.runtime.symbol import Symbol

if TYPE_CHECKING:
    from cuda_ext.runtime.jit.preparation import Preparation

__all__ = [
    "KernelTemplate",
    "Namespace",
    "TemplateArguments",
    "look_up_expression",
    "look_up_name",
    "members",
]

TemplateArguments: TypeAlias = str | int | tuple[str | int, ...]
Entity: TypeAlias = "Kernel | KernelTemplate | Symbol | Namespace"


def look_up_name(library: Library, namespace: str, name: str) -> Entity:
    """Look up `name`, without template arguments, in `namespace` (``""`` is the global one).

    Raises :class:`KernelNotFoundError`.
    """
    return _named(library, _qualified(namespace, name))


def look_up_expression(library: Library, namespace: str, expression: str) -> Entity:
    """Look up a name expression in `namespace`; a template instantiation is compiled if it was not built.

    Raises :class:`KernelNotFoundError`.
    """
    if not isinstance(expression, str):
        raise TypeError(f"expected a C++ name expression, found {expression!r}")
    name = _qualified(namespace, normalise(expression))
    if kernel := library.index.expressions.get(name):
        return _kernel(library, kernel)
    if overloads := [
        k for e, k in library.index.expressions.items() if e.startswith(f"{name}(") and "<" in name
    ]:
        return KernelTemplate(library, name, overloads, None)
    if "<" in name:
        return _instantiation(library, name)
    return _named(library, name)


def members(library: Library, namespace: str) -> list[str]:
    """The names of the kernels, symbols, variants and namespaces in `namespace`."""
    return list(library.index.members.get(namespace, ()))


def _qualified(namespace: str, name: str) -> str:
    return f"{namespace}::{name}" if namespace else name


def _named(library: Library, name: str) -> Entity:
    key = "name", name
    if key not in library.objects:
        # Of two threads that get here, one stores its object.
        library.objects.setdefault(key, _create(library, name))
    entity: Entity = library.objects[key]
    return entity


def _create(library: Library, name: str) -> Entity:
    index = library.index
    namespace = Namespace(library, name) if name in index.members and name else None
    match index.kernels.get(name, ()):
        case [kernel] if kernel.expression == name and namespace is None:
            return _kernel(library, kernel)
        case []:
            if variants := index.variants.get(name):
                return _variants(library, variants)
            if symbols := index.symbols.get(name):
                return Symbol(library, _only(library, symbols))
            if namespace is not None:
                return namespace
            if library.manifest.embedded and "<" not in name and library.on_demand.owner(name):
                return KernelTemplate(library, name, (), None)
            raise _not_found(library, name)
        case kernels:
            return KernelTemplate(library, name, kernels, namespace)


def _kernel(library: Library, kernel: manifest.Kernel) -> Kernel:
    key = "kernel", kernel.expression
    if key not in library.objects:
        launcher = Launcher(kernel, partial(library.kernel, kernel))
        library.objects.setdefault(key, Kernel.of(library, launcher))
    entity: Kernel = library.objects[key]
    return entity


def _instantiation(library: Library, name: str) -> Kernel:
    """The instantiation `name`, compiled on demand for the current GPU."""
    if kernel := library.objects.get(("kernel", name)):
        instantiation: Kernel = kernel
        return instantiation
    return _kernel(library, _compile(library, name))


def _compile(library: Library, name: str) -> manifest.Kernel:
    if reason := library.on_demand.obstacle():
        raise _not_found(library, name, reason)
    owner = library.on_demand.owner(name)
    if owner is None:
        raise _not_found(library, name)
    try:
        device = open_driver().current_device()
    except DriverError as error:
        raise _not_found(library, name, str(error)) from None
    unit = library.manifest.units[owner.unit]
    if reason := library.on_demand.obstacle(unit, device.driver.version):
        raise _not_found(library, name, reason)
    try:
        return library.instantiate(name, owner, device)
    except ToolchainError as error:
        raise _not_found(library, name, str(error)) from None


def _variants(library: Library, variants: manifest.Variants) -> Kernel:
    from cuda_ext.runtime.variants import Variants  # few modules have any

    kernels = {kernel.expression: kernel for kernel in library.manifest.kernels}
    candidates = [_kernel(library, kernels[candidate.kernel]) for candidate in variants.candidates]
    return Variants.among(library, candidates, variants)


def _only(library: Library, symbols: tuple[manifest.Symbol, ...]) -> manifest.Symbol:
    if len(symbols) > 1:
        units = (library.manifest.units[symbol.unit].sources[0].name for symbol in symbols)
        raise KernelNotFoundError(
            f"{' and '.join(units)} each have a variable {symbols[0].name} of their own",
            where=library.manifest.module,
            remedy="rename them, or link the units into one library with link = true",
        )
    return symbols[0]


# The number of combinations of argument types for which a template caches the overload.
_MOST_CHOSEN = 1000


class Namespace:
    """A C++ namespace: its attributes are the kernels, symbols and namespaces in it."""

    # C++ reserves names with two underscores, so these hide no kernel.
    __slots__ = ("__library", "__name")

    def __init__(self, library: Library, name: str) -> None:
        self.__library = library
        self.__name = name

    if not TYPE_CHECKING:  # stubs declare the attributes

        def __getattr__(self, name: str) -> Any:
            if _is_dunder(name):
                raise AttributeError(name)
            return look_up_name(self.__library, self.__name, name)

    __iter__ = None  # otherwise Python iterates over the items 0, 1, 2, ...

    def __getitem__(self, expression: str) -> Any:
        return look_up_expression(self.__library, self.__name, expression)

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.getitem, (self.__library.module, self.__name)

    def __dir__(self) -> list[str]:
        return members(self.__library, self.__name)

    def __repr__(self) -> str:
        return f"<namespace {self.__name}: {', '.join(dir(self))}>"


class KernelTemplate:
    """A kernel template, or overloaded kernels; brackets select an instantiation or an overload.

    A call launches the kernel that fits the types of the arguments. Attributes are those of a namespace of
    the same name.
    """

    __slots__ = ("__chosen", "__items", "__kernels", "__library", "__name", "__namespace")

    def __init__(
        self,
        library: Library,
        name: str,
        kernels: Iterable[manifest.Kernel],
        namespace: Namespace | None,
    ) -> None:
        self.__library = library
        self.__name = name
        self.__kernels = tuple(_kernel(library, kernel) for kernel in kernels)
        self.__namespace = namespace
        self.__items: dict[str, Any] = {}
        self.__chosen: dict[tuple[object, ...], Kernel] = {}

    __iter__ = None  # otherwise Python compiles the instantiations for 0, 1, 2, ...

    def __getitem__(self, arguments: TemplateArguments, /) -> Any:
        """The instantiation with these template arguments, ``"double, 256"`` or ``"double", 256``.

        Of overloaded kernels, ``"(int, float*)"`` selects the one with these parameters.
        """
        try:
            return self.__items[arguments]  # type: ignore[index]
        except (KeyError, TypeError):  # not looked up before, or not a string
            pass
        kernel = look_up_expression(self.__library, "", self.__expression(arguments))
        if isinstance(arguments, str):
            self.__items[arguments] = kernel
        return kernel

    def prepare(
        self, instantiations: Iterable[TemplateArguments], *, architectures: Sequence[str] | None = None
    ) -> Preparation:
        """Compile `instantiations`, spelled as in brackets, in one go, as :func:`cuda_ext.prepare` does.

        >>> kernels.axpy.prepare(["__half", "double"], architectures=["sm_90"])  # doctest: +SKIP
        Preparation(compiled=('axpy<__half> for sm_90', 'axpy<double> for sm_90'), known=())
        """
        from cuda_ext.runtime.jit.preparation import prepare_entries  # rarely used

        if isinstance(instantiations, str):
            raise TypeError(f'expected a list; write ["{instantiations}"]')
        expressions = list(map(self.__expression, instantiations))
        return prepare_entries(self.__library.on_demand, expressions, architectures)

    def __expression(self, arguments: TemplateArguments) -> str:
        spelled = ", ".join(map(_spelled, arguments if isinstance(arguments, tuple) else (arguments,)))
        return self.__name + (spelled if spelled.startswith("(") else f"<{spelled}>")

    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any:
        """Launch the kernel of this name that fits the arguments.

        Raises :class:`~cuda_ext.errors.ArgumentError` if none or several fit.
        """
        if len(self.__kernels) == 1:
            return self.__kernels[0](*arguments, **keywords)
        if not self.__kernels:
            raise ArgumentError(
                "none was built ahead", where=self.__name, remedy=f'choose one as in {self.__name}["float"]'
            )
        # Arguments by name select by the names of the parameters, too.
        types = dispatch_types(arguments) if keywords.keys() <= LAUNCH_KEYWORDS else None
        kernel = self.__chosen.get(types) if types else None
        if kernel is None or len(kernel.parameters) != len(arguments):
            kernel = choose_overload(self.__kernels, arguments, keywords)
            if types and len(self.__chosen) < _MOST_CHOSEN:
                self.__chosen[types] = kernel
        return kernel(*arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        if _is_dunder(name):
            raise AttributeError(name)
        if self.__namespace is None:
            raise AttributeError(f"kernel {self.__name} has no attribute {name!r}")
        return getattr(self.__namespace, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.getitem, (self.__library.module, self.__name)

    def __dir__(self) -> list[str]:
        return dir(self.__namespace) if self.__namespace is not None else []

    def __repr__(self) -> str:
        return f"<kernel template {self.__name}: {_join(k.expression for k in self.__kernels)}>"


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _spelled(argument: str | int) -> str:
    if isinstance(argument, bool):
        return str(argument).lower()
    if isinstance(argument, str):
        return argument
    try:
        return str(operator.index(argument))
    except TypeError:
        raise TypeError(f"expected a template argument as C++ spells it, found {argument!r}") from None


def _not_found(library: Library, name: str, obstacle: str = "") -> KernelNotFoundError:
    """The error for `name`; `obstacle` is the reason why it is not compiled on demand."""
    index = library.index
    module = library.manifest.module
    plain = plain_name(name)
    kernels = index.kernels.get(plain, ())
    if kernels or (obstacle and library.on_demand.owner(name)):
        built = _join(kernel.expression for kernel in kernels) or "none"
        if kernels and "<" in name and not any("<" in kernel.expression for kernel in kernels):
            return KernelNotFoundError(f"{plain} is not a template; built: {built}", where=module)
        jit = f"jit: {obstacle}; " if obstacle else ""
        return KernelNotFoundError(
            f"{name} was not built ahead; built: {built}",
            where=module,
            remedy=f'{jit}add "{name}" to `instantiate` and build again',
        )
    names = [*index.expressions, *index.symbols, *index.variants]
    hint = did_you_mean(name, [*names, *index.kernels, *filter(None, index.members)])
    return KernelNotFoundError(
        f"{module} has no kernel or symbol {name!r}",
        remedy="; ".join(filter(None, [hint, f"it has: {_join(names)}"])),
    )


def _join(names: Iterable[str], most: int = 20) -> str:
    first = list(names)
    more = f" and {len(first) - most} more" if len(first) > most else ""
    return ", ".join(first[:most]) + more
