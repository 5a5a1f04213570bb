"""Match the variants of the configuration with the compiled kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cuda_ext.builder.config.kinds import key_path
from cuda_ext.errors import ConfigError, did_you_mean, shorten
from cuda_ext.facts.candidates import Candidate, Variants
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Manifest, Unit
from cuda_ext.facts.structures import operands_of
from cuda_ext.formats.lowered_names.meanings import find_meant
from cuda_ext.formats.spelling import normalise, plain_name
from cuda_ext.formats.variant_conditions import check_terms


def resolve_variants(manifest: Manifest, variants: Sequence[Variants], where: str) -> Manifest:
    """Return `manifest` with `variants`, which the configuration has at the key path `where`.

    Raises :class:`ConfigError` for variants that do not fit the kernels of `manifest`.
    """
    kernels = {normalise(kernel.expression): kernel for kernel in manifest.named_kernels}
    specialised = {each.name for each in manifest.variants if each.specialised}
    kinds = {symbol.name: "a variable" for symbol in manifest.symbols}
    kinds |= {plain_name(expression): "a kernel" for expression in kernels}
    kinds |= {scope: "a namespace" for name in kinds for scope in _scopes(name)}
    resolved = []
    for each in variants:
        here = key_path(where, each.name)
        for name in (*_scopes(each.name), each.name):
            kind = kinds.get(name)
            if kind and (name == each.name or kind != "a namespace"):
                raise ConfigError(
                    f"{shorten(name)!r} is {kind} already", where=here, remedy="choose another name"
                )
            kinds[name] = "variants" if name == each.name else "a namespace"
        candidates = tuple(_candidates(each, kernels, manifest, here))
        for i, candidate in enumerate(candidates):
            if candidate.kernel in specialised:
                raise ConfigError(
                    f"{shorten(candidate.kernel)!r} is compiled on conditions, which choose among its images",
                    where=f"{here}[{i}].kernel",
                    remedy="variants have other kernels: take it out",
                )
        resolved.append(Variants(each.name, candidates))
    return manifest._replace(variants=(*manifest.variants, *resolved))


def _scopes(name: str) -> Iterator[str]:
    """Yield ``a`` and ``a::b`` for ``a::b::c``."""
    parts = name.split("::")
    return ("::".join(parts[:depth]) for depth in range(1, len(parts)))


def _candidates(
    variants: Variants, kernels: Mapping[str, Kernel], manifest: Manifest, where: str
) -> Iterator[Candidate]:
    """Yield the candidates of `variants`, with kernels as the manifest spells them."""
    chosen = [
        _kernel(candidate, kernels, manifest.units, f"{where}[{i}].kernel")
        for i, candidate in enumerate(variants.candidates)
    ]
    for i, (candidate, kernel) in enumerate(zip(variants.candidates, chosen, strict=True)):
        _check_parameters(kernel, chosen[0], f"{where}[{i}].kernel")
        # A launch takes the values by the parameters of the default.
        operands, others = (operands_of(each, manifest.structures) for each in (kernel, chosen[-1]))
        for name in {term.name for term in candidate.when} & operands.keys() & others.keys():
            if operands[name].offset != others[name].offset or operands[name].size != others[name].size:
                raise ConfigError(
                    f"{shorten(name)!r} lies elsewhere in the arguments of {chosen[-1].expression}",
                    where=f"{where}[{i}].when",
                    remedy="candidates take the same structures",
                )
        compared = [operand.parameter for operand in operands.values()]
        own = kernel.expression, compared, chosen[-1].hidden
        check_terms(candidate.when, *own, f"{where}[{i}].when")
        yield candidate._replace(kernel=kernel.expression)


def _kernel(candidate: Candidate, kernels: Mapping[str, Kernel], units: Sequence[Unit], where: str) -> Kernel:
    name = normalise(candidate.kernel).removeprefix("::")
    if name not in kernels:
        name = find_meant(name, kernels, kernels.__getitem__, units) or name
    if name in kernels:
        return kernels[name]
    same = [expression for expression in kernels if plain_name(expression) == plain_name(name)]
    if same and "<" in name:
        remedy = f'built: {", ".join(same)}; add "{name}" to instantiate'
    elif same:
        remedy = f"choose one of {', '.join(same)}"
    else:
        remedy = _nearest(name, kernels, "the module has")
    raise ConfigError(f"there is no kernel {shorten(candidate.kernel)!r}", where=where, remedy=remedy)


def _check_parameters(kernel: Kernel, first: Kernel, where: str) -> None:
    """Check that one call fits both kernels."""
    problem = ""
    if len(kernel.parameters) != len(first.parameters):
        problem = (
            f"has {len(kernel.parameters)} parameters, and {first.signature} has {len(first.parameters)}"
        )
    for one, other in zip(first.parameters, kernel.parameters, strict=False):
        if not problem and (one.name, one.type, one.size) != (other.name, other.type, other.size):
            problem = (
                f'has "{other}" ({other.size} bytes) where {first.signature} has "{one}" ({one.size} bytes)'
            )
    if problem:
        remedy = "candidates take the same arguments"
        raise ConfigError(f"{kernel.signature} {problem}", where=where, remedy=remedy)


def _nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    names = list(known)
    return did_you_mean(name, names) or f"{otherwise} {', '.join(names)}"
