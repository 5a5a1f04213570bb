"""From names to kernels and symbols: attributes follow C++ namespaces, brackets take name expressions."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from cuda_ext import manifest
from cuda_ext.compiler.name_expressions import normalise, plain_name
from cuda_ext.errors import ArgumentError, DriverError, KernelNotFoundError, ToolchainError
from cuda_ext.runtime.driver.driver import open_driver
from cuda_ext.runtime.driver.loaded_library import Library
from cuda_ext.runtime.kernel import Kernel
from cuda_ext.runtime.launch.launcher import LAUNCH_KEYWORDS, Launcher
from cuda_ext.runtime.overloads import choose, types_of
from cuda_ext.runtime.suggestions import did_you_mean
from cuda_ext.runtime.symbol import Symbol

if TYPE_CHECKING:
    from cuda_ext.runtime.jit.preparation import Preparation

__all__ = ["KernelTemplate", "Namespace", "TemplateArguments", "attribute", "item", "members"]

TemplateArguments: TypeAlias = str | int | tuple[str | int, ...]
Found: TypeAlias = "Kernel | KernelTemplate | Symbol | Namespace"


def attribute(library: Library, namespace: str, name: str) -> Found:
    """What is called `name`, without template arguments, in `namespace`, which is empty for the global one.

    Raises :class:`KernelNotFoundError`.
    """
    return _named(library, _qualified(namespace, name))


def item(library: Library, namespace: str, expression: str) -> Found:
    """The kernel or symbol that `expression` spells, relative to `namespace`, or what is of that name.

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
        return _instantiated(library, name)
    return _named(library, name)


def members(library: Library, namespace: str) -> list[str]:
    """The names of the kernels, symbols and namespaces in `namespace`."""
    return list(library.index.members.get(namespace, ()))


def _qualified(namespace: str, name: str) -> str:
    return f"{namespace}::{name}" if namespace else name


def _named(library: Library, name: str) -> Found:
    key = "name", name
    if key not in library.objects:
        # Two threads may both come here; one of the two stays.
        library.objects.setdefault(key, _found(library, name))
    found: Found = library.objects[key]
    return found


def _found(library: Library, name: str) -> Found:
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
        library.objects.setdefault(key, Kernel.of(Launcher(library, kernel)))
    found: Kernel = library.objects[key]
    return found


def _instantiated(library: Library, name: str) -> Kernel:
    """The instantiation that `name` spells, compiled for the GPU in use if it was not before."""
    key = "kernel", name
    if key not in library.objects:
        kernel = _compiled(library, name)
        library.objects.setdefault(key, Kernel.of(Launcher(library, kernel)))
    found: Kernel = library.objects[key]
    return found


def _compiled(library: Library, name: str) -> manifest.Kernel:
    if reason := library.on_demand.why_not():
        raise _not_found(library, name, reason)
    owner = library.on_demand.owner(name)
    if owner is None:
        raise _not_found(library, name)
    try:
        device = open_driver().current_device()
    except DriverError as error:
        raise _not_found(library, name, str(error)) from None
    unit = library.manifest.units[owner.unit]
    if reason := library.on_demand.why_not(unit, device.driver.version):
        raise _not_found(library, name, reason)
    try:
        return library.instantiation(name, owner, device)
    except ToolchainError as error:
        raise _not_found(library, name, str(error)) from None


def _variants(library: Library, variants: manifest.Variants) -> Kernel:
    from cuda_ext.runtime.variants import Variants  # few modules have any

    kernels = {kernel.expression: kernel for kernel in library.manifest.kernels}
    return Variants.among([_kernel(library, kernels[c.kernel]) for c in variants.candidates], variants)


def _only(library: Library, symbols: tuple[manifest.Symbol, ...]) -> manifest.Symbol:
    if len(symbols) > 1:
        units = (library.manifest.units[symbol.unit].sources[0].name for symbol in symbols)
        raise KernelNotFoundError(
            f"{library.manifest.module}: {' and '.join(units)} each have a variable {symbols[0].name} of "
            "their own; rename them, or link the units into one library with link = true"
        )
    return symbols[0]


# So many combinations of types a template remembers.
_MOST_CHOSEN = 1000


class Namespace:
    """A C++ namespace: its attributes are the kernels, symbols and namespaces in it."""

    # Private names of this form cannot be those of a kernel.
    __slots__ = ("__library", "__name")

    def __init__(self, library: Library, name: str) -> None:
        self.__library = library
        self.__name = name

    if not TYPE_CHECKING:  # stubs name the attributes that there are

        def __getattr__(self, name: str) -> Any:
            if _is_dunder(name):  # perhaps asked of a copy in the making, which has no attributes yet
                raise AttributeError(name)
            return attribute(self.__library, self.__name, name)

    __iter__ = None  # or Python would ask for 0, 1, 2, ...

    def __getitem__(self, expression: str) -> Any:
        return item(self.__library, self.__name, expression)

    def __reduce__(self) -> tuple[Any, ...]:
        return Namespace, (self.__library, self.__name)

    def __dir__(self) -> list[str]:
        return members(self.__library, self.__name)

    def __repr__(self) -> str:
        return f"<namespace {self.__name}: {', '.join(dir(self))}>"


class KernelTemplate:
    """A kernel template, of which brackets choose an instantiation, or overloaded kernels.

    Called as it is, it is the one that fits the types of the arguments. Attributes are those of a namespace
    of the same name.
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

    __iter__ = None  # or Python would compile the instantiations for 0, 1, 2, ...

    def __getitem__(self, arguments: TemplateArguments, /) -> Any:
        """The instantiation with these template arguments, ``"double, 256"`` or ``"double", 256``.

        Of overloaded kernels ``"(int, float*)"`` chooses one by its parameters.
        """
        try:
            return self.__items[arguments]  # type: ignore[index]
        except (KeyError, TypeError):  # it is the first time, or no string
            pass
        found = item(self.__library, "", self.__expression(arguments))
        if isinstance(arguments, str):
            self.__items[arguments] = found
        return found

    def prepare(
        self, instantiations: Iterable[TemplateArguments], *, architectures: Sequence[str] | None = None
    ) -> Preparation:
        """Compile `instantiations`, each as in brackets, all in one go, as :func:`cuda_ext.prepare` does.

        >>> kernels.axpy.prepare(["__half", "double"], architectures=["sm_90"])  # doctest: +SKIP
        Preparation(compiled=('axpy<__half> for sm_90', 'axpy<double> for sm_90'), known=())
        """
        from cuda_ext.runtime.jit.preparation import prepare_library  # few programs do

        if isinstance(instantiations, str):
            raise TypeError(f'expected a list; write ["{instantiations}"]')
        return prepare_library(self.__library, list(map(self.__expression, instantiations)), architectures)

    def __expression(self, arguments: TemplateArguments) -> str:
        spelled = ", ".join(map(_spelled, arguments if isinstance(arguments, tuple) else (arguments,)))
        return self.__name + (spelled if spelled.startswith("(") else f"<{spelled}>")

    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any:
        """Launch the kernel of this name that fits the arguments, as calling it does.

        Raises :class:`~cuda_ext.errors.ArgumentError` if none does, or several.
        """
        if len(self.__kernels) == 1:
            return self.__kernels[0](*arguments, **keywords)
        if not self.__kernels:
            raise ArgumentError(
                f'{self.__name}: none was built ahead; choose one as in {self.__name}["float"]'
            )
        # Names of parameters choose, too.
        types = types_of(arguments) if keywords.keys() <= LAUNCH_KEYWORDS else None
        kernel = self.__chosen.get(types) if types else None
        if kernel is None or len(kernel.parameters) != len(arguments):
            kernel = choose(self.__kernels, arguments, keywords)
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
        return item, (self.__library, "", self.__name)

    def __dir__(self) -> list[str]:
        return dir(self.__namespace) if self.__namespace is not None else []

    def __repr__(self) -> str:
        return f"<kernel template {self.__name}: {_listed(k.expression for k in self.__kernels)}>"


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


def _not_found(library: Library, name: str, why_not_compiled: str = "") -> KernelNotFoundError:
    index = library.index
    module = library.manifest.module
    plain = plain_name(name)
    kernels = index.kernels.get(plain, ())
    if kernels or (why_not_compiled and library.on_demand.owner(name)):
        built = _listed(kernel.expression for kernel in kernels) or "none"
        if kernels and "<" in name and not any("<" in kernel.expression for kernel in kernels):
            return KernelNotFoundError(f"{module}: {plain} is not a template; built: {built}")
        jit = f"jit: {why_not_compiled}; " if why_not_compiled else ""
        return KernelNotFoundError(
            f"{module}: {name} was not built ahead; built: {built}; {jit}"
            f'add "{name}" to `instantiate` and build again'
        )
    listed = [*index.expressions, *index.symbols, *index.variants]
    known = [*listed, *index.kernels, *filter(None, index.members)]
    return KernelNotFoundError(
        f"{module} has no kernel or symbol {name!r}{did_you_mean(name, known)}; it has: {_listed(listed)}"
    )


def _listed(names: Iterable[str], most: int = 20) -> str:
    found = list(names)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
