"""``kernels.constants``: values of constants of the code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cuda_ext.errors import KernelNotFoundError, did_you_mean, join_names
from cuda_ext.facts.constants import Constant, Number
from cuda_ext.facts.image_choice import image_for
from cuda_ext.formats.spelling import normalise
from cuda_ext.runtime.driver.driver import open_driver
from cuda_ext.runtime.loaded_library import Library


class Constants(Mapping[str, Number]):
    """The constants that the table of a module names, by their C++ expressions.

    Where the code for architectures has different values, brackets return the one for the current GPU. All
    others need no GPU.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._constants = {normalise(each.name): each for each in library.manifest.constants}

    def __getitem__(self, expression: str, /) -> Number:
        constant = self._constants.get(normalise(expression))
        if constant is None:
            known = [each.name for each in self._constants.values()]
            raise KernelNotFoundError(
                f"has no constant {expression!r}",
                where=self._library.manifest.module,
                remedy=did_you_mean(expression, known)
                or f"it has {join_names(known)}; name others in the table",
            )
        return constant.number(self._architecture(constant) if constant.elsewhere else "")

    def _architecture(self, constant: Constant) -> str:
        """Return the architecture of the image for the current GPU. Raises as a launch does."""
        manifest = self._library.manifest
        device = open_driver().current_device()
        image = image_for(manifest, manifest.units[constant.unit], device.capability, device.driver.version)
        return image.architecture

    def __iter__(self) -> Iterator[str]:
        return (constant.name for constant in self._constants.values())

    def __len__(self) -> int:
        return len(self._constants)

    def __repr__(self) -> str:
        return f"<constants: {join_names(each.declaration for each in self._constants.values())}>"
