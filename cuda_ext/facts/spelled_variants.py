"""Variants as text."""

from collections.abc import Iterable

from cuda_ext.facts.candidates import Variants
from cuda_ext.facts.kernels import Kernel


def spell_variants(variants: Variants, kernels: Iterable[Kernel]) -> str:
    """Write the name and candidates of `variants`; of derived constants, the values and conditions.

    `kernels` have the candidates with names of their own.
    """
    if not variants.specialised:
        return f"{variants.name}: {variants}"
    own = {candidate.kernel.partition(" if ")[0] for candidate in variants.candidates}
    derived = []
    for kernel in (kernel for kernel in kernels if kernel.expression in own):
        terms = " and ".join(str(term) for when in kernel.derived.values() for term in when)
        values = ", ".join(f"{name}={kernel.constants[name]}" for name in kernel.derived)
        derived.append(f"{values} if {terms}" if terms else f"{values} otherwise")
    return f"{variants.name}: {'; '.join(derived)}"
