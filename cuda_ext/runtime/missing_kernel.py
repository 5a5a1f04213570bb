"""Explain why a module has no kernel of a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest

from cuda_ext.errors import KernelNotFoundError, did_you_mean, join_names
from cuda_ext.facts.kernels import SIZES, Kernel
from cuda_ext.formats.lowered_names.lowered_types import LoweredType, LoweredValue
from cuda_ext.formats.lowered_names.mangling import read_lowered_name
from cuda_ext.formats.spelling import normalise, plain_name
from cuda_ext.runtime.arrays.dtypes import type_of_dtype
from cuda_ext.runtime.launch.python_arguments import plain_value
from cuda_ext.runtime.loaded_library import Library
from cuda_ext.text.brackets import closing_bracket, split_arguments

# The most kernels that a message lists.
MOST_NEAREST = 5


def explain_missing_kernel(library: Library, name: str, obstacle: str = "") -> KernelNotFoundError:
    """Return the error for `name`; `obstacle` is the reason why it is not compiled on demand."""
    module = library.manifest.module
    plain = plain_name(name)
    if alike := _kernels_with_arguments(library, name):
        arguments = alike[0][len(plain) + 1 :].rpartition(">")[0]
        return KernelNotFoundError(
            f"no kernel is called {name}; kernels with these arguments: {join_names(alike)}",
            where=module,
            remedy=f'choose one with all its arguments, as in {plain}["{arguments}"]',
        )
    if _line_of_function(library, name):
        return KernelNotFoundError(
            f"{name} was not built ahead; built: {_join_nearest(name, library.names.overloads(plain))}",
            where=module,
            remedy=advise_line(library, name),
        )
    kernels = library.names.overloads(plain)
    if kernels or (obstacle and library.on_demand.owner(name)):
        built = _join_nearest(name, kernels) or "none"
        if kernels and "<" in name and not any("<" in kernel for kernel in kernels):
            return KernelNotFoundError(f"{plain} is not a template; built: {built}", where=module)
        jit = f"jit: {obstacle}; " if obstacle else ""
        return KernelNotFoundError(
            f"{name} was not built ahead; built: {built}",
            where=module,
            remedy=f'{jit}add "{name}" to `instantiate` and build again',
        )
    hint = did_you_mean(name, library.names.looked_up)
    names = join_names(dict.fromkeys(library.names.everything))
    return KernelNotFoundError(
        f"{module} has no kernel or symbol {name!r}",
        remedy="; ".join(filter(None, [hint, f"it has: {names}"])),
    )


def spell_alike(kernel: Kernel, wanted: Mapping[str, object], meanings: Mapping[str, str]) -> str:
    """Write the name expression of a kernel like `kernel` with the constants `wanted`; nothing if unclear.

    `meanings` are those of names in its source.
    """
    plain = plain_name(kernel.expression)
    end = closing_bracket(kernel.expression, len(plain) + 1, "<>")
    arguments = list(split_arguments(kernel.expression[len(plain) + 1 : end]))
    if wanted.keys() - kernel.constants.keys():
        return ""
    names = list(kernel.constants)
    mangled = read_lowered_name(kernel.lowered)
    if mangled is None or not mangled.arguments:  # of a front-end
        plain_values = {name: plain_value(value) for name, value in wanted.items()}
        if any(type(value).__module__ != "builtins" for value in plain_values.values()):
            return ""  # such as an array
        given = {name: f"{name}={value!r}" for name, value in plain_values.items()}
        return f"{plain}<{', '.join(given.get(each.partition('=')[0], each) for each in arguments)}>"
    # Without the arguments of parameters without names, the positions are not known.
    own = mangled.arguments[: len(names)]
    if any(text not in _spellings(each) for text, each in zip_longest(kernel.constants.values(), own)):
        return ""
    # Defaults may be left out behind the last argument that differs.
    needed = max([len(arguments), *(names.index(name) + 1 for name in wanted)])
    rest = mangled.arguments[len(arguments) : needed]
    arguments += [each.literal if isinstance(each, LoweredValue) else each.spelling for each in rest]
    for name, value in wanted.items():
        position = names.index(name)
        arguments[position] = _spell(plain_value(value), mangled.arguments[position], meanings)
    return f"{plain}<{', '.join(arguments)}{kernel.expression[end:]}" if all(arguments) else ""


def _spellings(argument: LoweredType | LoweredValue | None) -> set[str]:
    """Return the texts that a constant may have for a template `argument`."""
    if isinstance(argument, LoweredValue):
        return {argument.spelling, argument.spelling.title(), argument.literal}
    return {normalise(argument.spelling)} if argument else set()


def _spell(value: object, like: LoweredType | LoweredValue, meanings: Mapping[str, str]) -> str:
    """Spell `value` in C++ as a template argument in place of `like`; nothing if that is not possible."""
    if isinstance(like, LoweredType):
        return type_of_dtype(value) or value if isinstance(value, str) else ""
    if value in ("True", "False"):
        return str(value).lower()
    if isinstance(value, str):
        named = [known for known in meanings if like.is_enumerator and known.endswith(f"::{value}")]
        if like.type == "char" and len(value) == 1 and value.isascii() and value.isprintable():
            return f"'\\{value}'" if value in "'\\" else f"'{value}'"
        return [*named, value][0]
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, int):
        return ""
    if like.is_enumerator:
        type_ = like.spelling.partition(")")[0] + ")"
        known = {meaning: name for name, meaning in meanings.items() if meaning.startswith(type_)}
        is_possible = value >= 0 or any(meaning.startswith(f"{type_}-") for meaning in known)
        return known.get(f"{type_}{value}", f"{type_}{value}" if is_possible else "")
    if like.type == "bool":
        return str(bool(value)).lower() if value in (0, 1) else ""
    bits = 8 * SIZES.get(like.type, 8)
    lowest, highest = (0, 1 << bits) if "unsigned" in like.type else (-1 << bits - 1, 1 << bits - 1)
    return str(value) if lowest <= value < highest else ""


def advise_line(library: Library, name: str) -> str:
    """Say which line builds the kernel `name`."""
    return f'add "{_line_of_function(library, name) or name}" to `instantiate` and build again'


def _kernels_with_arguments(library: Library, name: str) -> list[str]:
    """List the kernels of a template, or a Python function, whose arguments include those of `name`.

    The order must be that of `name`, which may leave out the prefix of a value: ``BLOCK=``.
    """

    def holds(built: str) -> bool:
        rest = iter(_arguments(built))
        return all(
            any(given in (each, each.partition("=")[2]) for each in rest) for given in _arguments(name)
        )

    built = [each for each in library.names.overloads(plain_name(name)) if "<" in each]
    return [each for each in built if holds(each)] if name.endswith(">") else []


def _arguments(expression: str) -> list[str]:
    return [*split_arguments(expression.partition("<")[2].rpartition(">")[0])]


def _join_nearest(name: str, kernels: Iterable[str]) -> str:
    """Join the `kernels` whose arguments are most like those of `name`."""
    wanted = {*_arguments(name)}
    return join_names(sorted(kernels, key=lambda each: -len(wanted & {*_arguments(each)})), MOST_NEAREST)


def _line_of_function(library: Library, name: str) -> str:
    """Write the instantiation for the kernel `name` of a Python function like another one; or nothing."""
    for kernel in library.manifest.kernels:
        source = library.manifest.units[kernel.unit].sources[0]
        built = kernel.expression.partition(" if ")[0]
        if plain_name(built) == plain_name(name) and source.name.endswith(".py") and source.instantiate:
            from cuda_ext.compiler.front_ends.instantiation import instantiate_alike

            try:
                return instantiate_alike(source.instantiate[0], built, name)
            except ValueError:
                continue  # the manifest is damaged
    return ""
