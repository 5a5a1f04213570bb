"""Which image of a unit the driver takes for a GPU."""

from __future__ import annotations

from collections.abc import Iterable

from cuda_ext.compiler.architectures import Architecture
from cuda_ext.manifest import Image

__all__ = ["select_image"]


def select_image(images: Iterable[Image], capability: int) -> Image | None:
    """The image that runs on a GPU of `capability` (``90`` for 9.0), or ``None``.

    That is the newest cubin of the GPU's generation that is not newer than the GPU; where there is none, the
    newest PTX that is not newer than it. The suffix ``a`` restricts either to exactly that GPU, ``f`` to its
    family; among images of one number the more special one is taken.
    """
    targets = [(Architecture.parse(image.architecture), image) for image in images]
    fitting = [(_rank(target), image) for target, image in targets if _runs_on(target, capability)]
    return max(fitting, key=lambda f: f[0])[1] if fitting else None


def _runs_on(target: Architecture, capability: int) -> bool:
    if target.kind == "ltoir" or target.number > capability:
        return False
    if target.suffix == "a":
        return target.number == capability
    same_generation = target.major == capability // 10
    return same_generation or (target.kind == "ptx" and not target.suffix)


def _rank(target: Architecture) -> tuple[bool, int, int]:
    return target.kind == "cubin", target.number, ("", "f", "a").index(target.suffix)
