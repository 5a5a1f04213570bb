"""Which image of a unit the driver takes for a GPU, and why there may be none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cuda_ext.errors import DriverTooOldError, NoImageError, PtxTooNewError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.manifest import Image, ImageKind, Manifest, Unit

__all__ = ["image_for", "no_image", "ptx_too_new", "select_image"]


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


def image_for(
    manifest: Manifest,
    unit: Unit,
    capability: int,
    driver: tuple[int, int],
    why_not_compiled: Callable[[], str] = str,
) -> Image:
    """The image of `unit` for a GPU of `capability` under a driver that supports CUDA `driver`.

    Raises :class:`NoImageError`, :class:`DriverTooOldError` or :class:`PtxTooNewError`, which also tell why
    none is compiled on demand.
    """
    image = select_image(unit.images, capability)
    if image is None:
        raise no_image(manifest, unit, capability, why_not_compiled())
    for needed, reason in _needs(manifest, unit, image):
        if driver < needed:
            raise DriverTooOldError(
                f"{manifest.module}: the NVIDIA driver supports CUDA up to {_text(driver)}, and "
                f"{image.file}, {reason}, needs {_text(needed)} or newer; "
                f"{_jit(why_not_compiled())}upgrade the driver"
            )
    if image.kind == "ptx" and not _arrived_compiled(unit, image) and driver < _version(manifest):
        raise ptx_too_new(manifest, unit, image, driver, why_not_compiled())
    return image


def _needs(manifest: Manifest, unit: Unit, image: Image) -> Iterable[tuple[tuple[int, int], str]]:
    """The drivers that `image` needs, and why."""
    if image.kind == "cubin" and not _arrived_compiled(unit, image):
        # Within a major version every driver runs every cubin.
        yield (_version(manifest)[0], 0), f"made by CUDA {manifest.version}"
    ready_made = unit.arrived_as(".fatbin")
    if image.file.endswith(".fatbin") and not ready_made and manifest.compress in ("balance", "size"):
        yield (12, 4), "compressed with zstd"


def _arrived_compiled(unit: Unit, image: Image) -> bool:
    """Whether `image` was a source itself, so that nobody knows which CUDA made it."""
    return unit.arrived_as(f".{image.kind}", ".fatbin")


def _version(manifest: Manifest) -> tuple[int, int]:
    major, minor = manifest.version.split(".")[:2]
    return int(major), int(minor)


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def no_image(manifest: Manifest, unit: Unit, capability: int, why_not_compiled: str) -> NoImageError:
    """`unit` holds nothing that a GPU of `capability` runs."""
    built: dict[ImageKind, list[str]] = {"cubin": [], "ptx": [], "ltoir": []}
    for image in unit.images:
        built[image.kind].append(image.architecture)
    cubins, ptx, ltoir = (", ".join(architectures) for architectures in built.values())
    unlinked = f"; LTO-IR, which has to be linked first: {ltoir}" if ltoir else ""
    return NoImageError(
        f"{manifest.module}: {unit.title} has no image for this GPU: device is sm_{capability}; "
        f"built for {cubins or 'none'}; PTX: {ptx or 'none'}{unlinked}; "
        f"{_jit(why_not_compiled)}"
        f'add "sm_{capability}" to architectures and build again'
    )


def _jit(why_not_compiled: str) -> str:
    return f"jit: {why_not_compiled}; " if why_not_compiled else ""


def ptx_too_new(
    manifest: Manifest, unit: Unit, image: Image, driver: tuple[int, int], why_not_compiled: str
) -> PtxTooNewError:
    """`image` is the only one that fits, and the driver does not read its PTX."""
    return PtxTooNewError(
        f"{manifest.module}: of {unit.title} only PTX ({image.architecture}) fits this GPU; "
        f"CUDA {manifest.version} made it, and the NVIDIA driver reads PTX up to CUDA {_text(driver)}; "
        f"{_jit(why_not_compiled)}upgrade the driver, or add this GPU to architectures and build again"
    )
