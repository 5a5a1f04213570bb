"""Look up kernels and symbols: attributes follow C++ namespaces, brackets take name expressions."""

from __future__ import annotations

import operator

from cuda_ext import manifest
from cuda_ext.errors import (
    ArgumentError,
    DriverError,
    KernelNotFoundError,
    ToolchainError,
    did_you_mean,
    escape_controls,
)
from cuda_ext.formats.spelling import normalise, plain_name
from cuda_ext.runtime.driver.driver import open_driver
from cuda_ext.runtime.kernel import Kernel, advise_keywords
from cuda_ext.runtime.launch.fast_launch import Overloads
from cuda_ext.runtime.loaded_library import Library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Self, TypeAlias

    from cuda_ext.runtime.jit.preparation import Preparation
    from cuda_ext.runtime.symbol import Symbol

    Entity: TypeAlias = "Kernel | Symbol | Namespace"
    _Launchable: TypeAlias = manifest.Kernel | manifest.Variants

__all__ = ["KernelTemplate", "Namespace", "TemplateArguments"]

TemplateArguments = str | int | tuple[str | int, ...]


class Namespace:
    """A C++ namespace: its attributes are the kernels, symbols and namespaces in it.

    The global namespace, whose name is empty, is a module.
    """

    def __init__(self, library: Library, name: str) -> None:
        # C++ reserves names with two underscores, so these hide no kernel.
        self.__library__ = library
        self.__qualified__ = name

    if not TYPE_CHECKING:  # stubs declare the attributes

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") and name.endswith("__"):
                raise AttributeError(name)
            if self.__qualified__ not in self.__library__.members:
                raise AttributeError(f"kernel {self.__qualified__} has no attribute {name!r}")
            return _look_up(self.__library__, _qualify(self, name))

    __iter__ = None  # otherwise Python iterates over the items 0, 1, 2, ...

    def __getitem__(self, expression: str, /) -> Any:
        if not isinstance(expression, str):
            raise TypeError(f"expected a C++ name expression, found {expression!r}")
        library, name = self.__library__, _qualify(self, normalise(expression))
        if kernel := library.expressions.get(name):
            return _kernel(library, kernel)
        return _look_up(library, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.getitem, (self.__library__.module, self.__qualified__)

    def __dir__(self) -> list[str]:
        return sorted(self.__library__.members.get(self.__qualified__, ()))

    def __repr__(self) -> str:
        return f"<namespace {self.__qualified__}: {', '.join(dir(self))}>"


class KernelTemplate(Overloads, Namespace):
    """A kernel template, or overloaded kernels; brackets select an instantiation or an overload.

    A call launches the kernel that fits the types of the arguments. Attributes are those of a namespace of
    the same name.
    """

    __kernels__: tuple[Kernel, ...]
    __items__: dict[str, Any]

    def __new__(cls, library: Library, name: str, kernels: Iterable[_Launchable]) -> Self:  # noqa: ARG004
        known = tuple(_launchable(library, kernel) for kernel in kernels)
        template = super().__new__(cls, known)
        template.__kernels__ = known
        template.__items__ = {}
        return template

    def __init__(self, library: Library, name: str, kernels: Iterable[_Launchable]) -> None:  # noqa: ARG002
        super().__init__(library, name)

    def __getitem__(self, arguments: TemplateArguments, /) -> Any:
        """The instantiation with these template arguments, ``"double, 256"`` or ``"double", 256``.

        Of overloaded kernels, ``"(int, float*)"`` selects the one with these parameters.
        """
        try:
            return self.__items__[arguments]  # type: ignore[index]
        except (KeyError, TypeError):  # not looked up before, or not a string
            pass
        try:
            kernel = Namespace(self.__library__, "")[_expression(self, arguments)]
        except (KernelNotFoundError, TypeError):
            if _is_launch(self, arguments):
                is_fixed = any(kernel._is_fixed for kernel in self.__kernels__)
                raise KernelNotFoundError(
                    "brackets choose a kernel by its template arguments",
                    where=self.__qualified__,
                    remedy=advise_keywords(arguments, is_fixed),
                ) from None
            raise
        if isinstance(arguments, str):
            self.__items__[arguments] = kernel
        return kernel

    def prepare(
        self, instantiations: Iterable[TemplateArguments], *, architectures: Sequence[str] | None = None
    ) -> Preparation:
        """Compile `instantiations`, spelled as in brackets, in one go, as :func:`cuda_ext.prepare` does.

        >>> kernels.axpy.prepare(["__half", "double"], architectures=["sm_90"])  # doctest: +SKIP
        Preparation(compiled=('axpy<__half> for sm_90', 'axpy<double> for sm_90'), known=())
        """
        from cuda_ext.runtime.jit.preparation import prepare_entries  # rarely used
        from cuda_ext.runtime.text_arguments import read_items, read_texts

        chosen = read_items("instantiations", instantiations, "a list of template arguments")
        expressions = read_texts("instantiations", [_expression(self, arguments) for arguments in chosen])
        targets = None if architectures is None else read_texts("architectures", architectures)
        return prepare_entries(self.__library__.on_demand, expressions, targets)

    def __launch_carefully__(self, /, *arguments: Any, **keywords: Any) -> Any:
        """Launch the kernel of this name that fits the arguments.

        Raises :class:`~cuda_ext.errors.ArgumentError` if none or several fit.
        """
        kernels, name = self.__kernels__, self.__qualified__
        if not kernels:
            raise ArgumentError(
                "none was built ahead", where=name, remedy=f'choose one as in {name}["float"]'
            )
        # Not for known types.
        from cuda_ext.runtime.launch.python_arguments import (
            flatten_tuples,
            name_arguments,
            refuse_compiled_options,
        )
        from cuda_ext.runtime.overloads import choose_by_constants, choose_overload, choosing_keywords

        known = [each._kernel for each in kernels]
        if any(each._is_fixed for each in kernels):
            refuse_compiled_options(known, keywords)
        if flat := flatten_tuples(known, arguments, keywords):
            return self(*flat[0], **flat[1])
        if by_name := name_arguments(known, arguments, keywords):
            return self(**by_name)
        kernels = choose_by_constants(kernels, keywords)
        kernel = kernels[0] if len(kernels) == 1 else choose_overload(kernels, arguments, keywords)
        result = kernel(*arguments, **keywords)
        # Types whose values were refused must not choose a kernel for the next call.
        choosing = choosing_keywords(kernel, keywords)
        if choosing is not None:
            self.__remember__(kernel, *arguments, **choosing)
        return result

    def __repr__(self) -> str:
        return f"<kernel template {self.__qualified__}: {_join(k.expression for k in self.__kernels__)}>"


def _qualify(namespace: Namespace, name: str) -> str:
    return f"{namespace.__qualified__}::{name}" if namespace.__qualified__ else name


def _expression(template: KernelTemplate, arguments: TemplateArguments) -> str:
    """The name expression of the instantiation, or of the overload, that brackets with `arguments` select."""
    each = arguments if isinstance(arguments, tuple) else (arguments,)
    text = ", ".join(map(_spell, each))
    return template.__qualified__ + (text if text.startswith("(") else f"<{text}>")


def _is_launch(template: KernelTemplate, arguments: object) -> bool:
    """Whether brackets hold what can only be a grid: a function, tuples, or numbers where types belong."""
    first = arguments[0] if isinstance(arguments, tuple) and arguments else arguments
    if not isinstance(first, int):
        return isinstance(first, tuple) or (callable(first) and not isinstance(first, type))
    built = [kernel.expression.partition("<")[2].lstrip("-") for kernel in template.__kernels__]
    return bool(built) and not any(each[:1].isdigit() for each in built)


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
    """The object that the normalised `name` stands for.

    Raises :class:`KernelNotFoundError`.
    """
    if name not in library.objects:
        # Of two threads that get here, one stores its object.
        library.objects.setdefault(name, _create(library, name))
    entity: Entity = library.objects[name]
    return entity


def _kernel(library: Library, kernel: manifest.Kernel) -> Kernel:
    if kernel.expression not in library.kernels:
        library.kernels.setdefault(kernel.expression, Kernel.of(library, kernel))
    entity: Kernel = library.kernels[kernel.expression]
    return entity


def _launchable(library: Library, entity: _Launchable) -> Kernel:
    if isinstance(entity, manifest.Kernel):
        return _kernel(library, entity)
    if entity.name not in library.objects:
        library.objects.setdefault(entity.name, _variants(library, entity))
    variants: Kernel = library.objects[entity.name]
    return variants


def _create(library: Library, name: str) -> Entity:
    entities = library.entities.get(name, ())
    if any(isinstance(e, manifest.Variants) and e.specialised and e.name != name for e in entities):
        return KernelTemplate(library, name, [e for e in entities if not isinstance(e, manifest.Symbol)])
    match entities:
        case [manifest.Kernel() as kernel] if kernel.expression == name and name not in library.members:
            return _kernel(library, kernel)
        case [manifest.Kernel(), *_] as entities:
            return KernelTemplate(library, name, [e for e in entities if isinstance(e, manifest.Kernel)])
        case [manifest.Variants() as variants, *_]:
            return _variants(library, variants)
        case [manifest.Symbol() as symbol]:
            from cuda_ext.runtime.symbol import Symbol  # not needed for kernels

            return Symbol(library, symbol)
        case [manifest.Symbol(), *_] as entities:
            indices = (entity.unit for entity in entities if isinstance(entity, manifest.Symbol))
            sources = (library.manifest.units[index].sources[0].name for index in indices)
            raise KernelNotFoundError(
                f"{' and '.join(sources)} each have a variable {name} of their own",
                where=library.manifest.module,
                remedy="rename them, or link the units into one library with link = true",
            )
    if name and name in library.members:
        return Namespace(library, name)
    if escape_controls(name) != name:  # no key of a cache can have it
        raise _not_found(library, name)
    if "<" in name:
        return _kernel(library, _instantiate(library, name))
    if library.manifest.embedded and library.on_demand.owner(name):
        return KernelTemplate(library, name, ())
    raise _not_found(library, name)


def _variants(library: Library, variants: manifest.Variants) -> Kernel:
    from cuda_ext.runtime.variants import Variants  # few modules have any

    kernels = {kernel.expression: kernel for kernel in library.manifest.kernels}
    candidates = [_kernel(library, kernels[candidate.kernel]) for candidate in variants.candidates]
    return Variants.among(library, candidates, variants)


def _instantiate(library: Library, name: str) -> manifest.Kernel:
    """The instantiation `name`, compiled on demand for the current GPU."""
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
                return library.instantiate(name, owner, device)
        except (DriverError, ToolchainError) as error:
            obstacle = str(error)
    raise _not_found(library, name, obstacle)


def _not_found(library: Library, name: str, obstacle: str = "") -> KernelNotFoundError:
    """The error for `name`; `obstacle` is the reason why it is not compiled on demand."""
    module = library.manifest.module
    plain = plain_name(name)
    if alike := _kernels_with_arguments(library, name):
        arguments = alike[0][len(plain) + 1 :].rpartition(">")[0]
        return KernelNotFoundError(
            f"no kernel is called {name}; with these arguments were built: {_join(alike)}",
            where=module,
            remedy=f'choose one with all its arguments, as in {plain}["{arguments}"]',
        )
    if line := _line_of_function(library, name):
        built = _join(each for each, _ in library.named if plain_name(each) == plain)
        return KernelNotFoundError(
            f"{name} was not built ahead; built: {built}",
            where=module,
            remedy=f'add "{line}" to `instantiate` and build again',
        )
    kernels = [e.expression for e in library.entities.get(plain, ()) if isinstance(e, manifest.Kernel)]
    if kernels or (obstacle and library.on_demand.owner(name)):
        built = _join(kernels) or "none"
        if kernels and "<" in name and not any("<" in kernel for kernel in kernels):
            return KernelNotFoundError(f"{plain} is not a template; built: {built}", where=module)
        jit = f"jit: {obstacle}; " if obstacle else ""
        return KernelNotFoundError(
            f"{name} was not built ahead; built: {built}",
            where=module,
            remedy=f'{jit}add "{name}" to `instantiate` and build again',
        )
    hint = did_you_mean(name, [*library.entities, *library.members])
    names = _join(dict.fromkeys(each for each, _ in library.named))
    return KernelNotFoundError(
        f"{module} has no kernel or symbol {name!r}",
        remedy="; ".join(filter(None, [hint, f"it has: {names}"])),
    )


def _kernels_with_arguments(library: Library, name: str) -> list[str]:
    """The kernels of a template, or a Python function, that have the arguments of `name` among others.

    Those are in the order of `name`, which may leave out what stands in front of a value: ``BLOCK=``.
    """
    from cuda_ext.compiler.name_expressions import split_arguments  # not needed for what was built

    def arguments(expression: str) -> list[str]:
        return [*split_arguments(expression.partition("<")[2].rpartition(">")[0])]

    def holds(built: str) -> bool:
        rest = iter(arguments(built))
        return all(any(given in (each, each.partition("=")[2]) for each in rest) for given in arguments(name))

    built = [each for each, _ in library.named if "<" in each and plain_name(each) == plain_name(name)]
    return [each for each in built if holds(each)] if name.endswith(">") else []


def _line_of_function(library: Library, name: str) -> str:
    """The instantiation for the kernel `name` of a Python function, after another of it; or nothing."""
    for kernel in library.manifest.kernels:
        source = library.manifest.units[kernel.unit].sources[0]
        built = kernel.expression.partition(" if ")[0]
        if plain_name(built) == plain_name(name) and source.name.endswith(".py") and source.instantiate:
            from cuda_ext.compiler.front_ends.instantiation import instantiate_alike

            try:
                return instantiate_alike(source.instantiate[0], built, name)
            except ValueError:
                continue  # in a damaged manifest
    return ""


def _join(names: Iterable[str], most: int = 20) -> str:
    first = list(names)
    more = f" and {len(first) - most} more" if len(first) > most else ""
    return ", ".join(first[:most]) + more
