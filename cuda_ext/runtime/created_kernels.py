"""The kernels of a manifest as objects; each that users look up is created once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuda_ext.runtime.kernel import Kernel
from cuda_ext.runtime.loaded_library import Library

if TYPE_CHECKING:
    from cuda_ext.facts import candidates as facts


def kernel_of(library: Library, name: str) -> Kernel:
    """Find the kernel `name` of the manifest."""
    if name not in library.kernels:
        library.kernels.setdefault(name, create_kernel(library, name))
    entity: Kernel = library.kernels[name]
    return entity


def create_kernel(library: Library, name: str) -> Kernel:
    """Create another object for the kernel `name` of the manifest."""
    names = library.names
    variants = names.variants(name) if name in names.specialised else None
    return variants_of(library, variants) if variants else Kernel.of(library, names.kernel(name))


def variants_of(library: Library, variants: facts.Variants) -> Kernel:
    """Create the kernel of `variants`."""
    from cuda_ext.runtime.variants import Variants  # few modules have variants

    kernels = library.names.candidates(variants)
    if variants.specialised:  # the candidates have no names of their own
        own = {kernel.expression: Kernel.of(library, kernel) for kernel in kernels}
        return Variants.among(library, [own[kernel.expression] for kernel in kernels], variants)
    candidates = [kernel_of(library, kernel.expression) for kernel in kernels]
    return Variants.among(library, candidates, variants)
