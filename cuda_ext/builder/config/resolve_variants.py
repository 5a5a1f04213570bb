"""The variants of the configuration, held against the kernels that were compiled."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cuda_ext.builder.config.kinds import key_path
from cuda_ext.compiler.name_expressions import normalise, plain_name
from cuda_ext.errors import ConfigError
from cuda_ext.formats.variant_conditions import arguments, parse
from cuda_ext.manifest import Candidate, Kernel, Manifest, Variants

__all__ = ["with_variants"]


def with_variants(manifest: Manifest, variants: Sequence[Variants], where: str) -> Manifest:
    """`manifest` with `variants`, which the configuration has at the key path `where`.

    Raises :class:`ConfigError` where they do not fit its kernels.
    """
    kernels = {normalise(kernel.expression): kernel for kernel in manifest.kernels}
    taken = {symbol.name: "a variable" for symbol in manifest.symbols}
    taken |= {plain_name(expression): "a kernel" for expression in kernels}
    namespaces = {scope for name in taken for scope in _scopes(name)}
    found = []
    for each in variants:
        here = key_path(where, each.name)
        for name in (*_scopes(each.name), each.name):
            if name in taken and (name == each.name or name not in namespaces):
                raise ConfigError(f"{here}: {name!r} is {taken[name]} already; choose another name")
        if each.name in namespaces:
            raise ConfigError(f"{here}: {each.name!r} is a namespace already; choose another name")
        taken[each.name] = "variants"
        namespaces.update(_scopes(each.name))
        found.append(Variants(each.name, tuple(_candidates(each, kernels, here))))
    return dataclasses.replace(manifest, variants=tuple(found))


def _scopes(name: str) -> Iterator[str]:
    """``a`` and ``a::b`` for ``a::b::c``."""
    parts = name.split("::")
    return ("::".join(parts[:depth]) for depth in range(1, len(parts)))


def _candidates(variants: Variants, kernels: Mapping[str, Kernel], where: str) -> Iterator[Candidate]:
    """Those of `variants`, with kernels as the manifest spells them."""
    chosen = [_kernel(c, kernels, f"{where}[{i}].kernel") for i, c in enumerate(variants.candidates)]
    _check_parameters(chosen, where)
    for i, (candidate, kernel) in enumerate(zip(variants.candidates, chosen, strict=True)):
        if candidate.when is not None:
            _check_condition(candidate.when, kernel, f"{where}[{i}].when")
        yield dataclasses.replace(candidate, kernel=kernel.expression)


def _kernel(candidate: Candidate, kernels: Mapping[str, Kernel], where: str) -> Kernel:
    wanted = normalise(candidate.kernel).removeprefix("::")
    if wanted in kernels:
        return kernels[wanted]
    same = [expression for expression in kernels if plain_name(expression) == plain_name(wanted)]
    if same and "<" in wanted:
        hint = f'built: {", ".join(same)}; add "{wanted}" to instantiate'
    elif same:
        hint = f"choose one of {', '.join(same)}"
    else:
        hint = _nearest(wanted, kernels, "the module has")
    raise ConfigError(f"{where}: there is no kernel {candidate.kernel!r}; {hint}")


def _check_parameters(kernels: Sequence[Kernel], where: str) -> None:
    """All take the same arguments, so that one call fits whichever is chosen."""
    first = kernels[0]
    for i, kernel in enumerate(kernels):
        here = f"{where}[{i}].kernel: {kernel.signature}"
        if len(kernel.parameters) != len(first.parameters):
            raise ConfigError(
                f"{here} has {len(kernel.parameters)} parameters, and {first.signature} has "
                f"{len(first.parameters)}; candidates take the same arguments"
            )
        for one, other in zip(first.parameters, kernel.parameters, strict=True):
            if (one.name, one.type, one.size) != (other.name, other.type, other.size):
                raise ConfigError(
                    f'{here} has "{other}" ({other.size} bytes) where {first.signature} has "{one}" '
                    f"({one.size} bytes); candidates take the same arguments"
                )


def _check_condition(when: str, kernel: Kernel, where: str) -> None:
    parameters = {parameter.name: parameter for parameter in kernel.parameters}
    integers = [name for name, parameter in parameters.items() if parameter.is_integer]
    for name in arguments(parse(when)):
        if name not in parameters:
            hint = _nearest(name, [*integers, "sm"], "conditions compare")
            raise ConfigError(f'{where}: "{when}": {kernel.expression} has no parameter {name!r}; {hint}')
        if name not in integers:
            raise ConfigError(
                f'{where}: "{when}": {name!r} is {parameters[name].type}; conditions compare integers: '
                f"{', '.join([*integers, 'sm'])}"
            )


def _nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"{otherwise} {', '.join(names)}"
