"""Select the image of a unit that a GPU and its driver can load, or explain why there is none."""

from __future__ import annotations

from cuda_ext.errors import DriverTooOldError, NoImageError, PtxTooNewError, TileIrError
from cuda_ext.fields import ImageKind
from cuda_ext.formats.architecture import Architecture
from cuda_ext.manifest import Image, Manifest, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# The first driver that takes tile kernels: r580.
_FIRST_WITH_TILES = (13, 0)


def select_image(images: Iterable[Image], capability: int) -> Image | None:
    """Return the image that runs on a GPU of `capability` (``90`` for 9.0), or ``None``.

    That is the newest cubin of the GPU's generation that is not newer than the GPU, or else the newest PTX
    that is not newer than the GPU, or Tile IR. An image with the suffix ``a`` runs on exactly that GPU only,
    one with ``f`` on its family; of images with the same number the most specific is selected.
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
    return same_generation or (target.kind in ("ptx", "tileir") and not target.suffix)


def _rank(target: Architecture) -> tuple[bool, int, int]:
    return target.kind == "cubin", target.number, ("", "f", "a").index(target.suffix)


def image_for(manifest: Manifest, unit: Unit, capability: int, driver: tuple[int, int]) -> Image:
    """Return the image of `unit` for a GPU of `capability` under a driver that supports CUDA `driver`.

    Raises :class:`NoImageError`, :class:`DriverTooOldError` or :class:`PtxTooNewError`.
    """
    image = select_image(unit.images, capability)
    if image is None:
        raise no_image(manifest, unit, capability)
    for needed, reason in _requirements(manifest, unit, image):
        if driver < needed:
            raise DriverTooOldError(
                f"the NVIDIA driver supports CUDA up to {_text(driver)}, and {image.file}, {reason}, needs "
                f"{_text(needed)} or newer",
                where=manifest.module,
                remedy="upgrade the driver",
            )
    if image.kind == "ptx" and not _is_prebuilt(unit, image) and driver < _version(manifest):
        raise ptx_too_new(manifest, unit, image, driver)
    return image


def _requirements(manifest: Manifest, unit: Unit, image: Image) -> Iterable[tuple[tuple[int, int], str]]:
    """Return the CUDA versions that the driver has to support to load `image`, each with its reason."""
    if image.kind == "tileir":
        yield _FIRST_WITH_TILES, "which is Tile IR"
    if image.kind == "cubin" and not _is_prebuilt(unit, image):
        # A driver loads the cubins of all CUDA versions with its major version.
        yield (_version(manifest)[0], 0), f"made by CUDA {manifest.version}"
    is_prebuilt = unit.arrived_as(".fatbin")
    if image.file.endswith(".fatbin") and not is_prebuilt and manifest.compress in ("balance", "size"):
        yield (12, 4), "compressed with zstd"


def _is_prebuilt(unit: Unit, image: Image) -> bool:
    """Return True if `image` was a source of the build; the CUDA version that produced it is not known."""
    return unit.arrived_as(f".{image.kind}", ".fatbin")


def _version(manifest: Manifest) -> tuple[int, int]:
    major, minor = manifest.version.split(".")[:2]
    return int(major), int(minor)


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def no_image(manifest: Manifest, unit: Unit, capability: int) -> NoImageError:
    """Return the error for a `unit` without an image for GPUs of `capability`."""
    built: dict[ImageKind, list[str]] = {"cubin": [], "ptx": [], "ltoir": [], "tileir": []}
    for image in unit.images:
        built[image.kind].append(image.architecture)
    cubins, ptx, ltoir, tile_ir = (", ".join(architectures) for architectures in built.values())
    others = f"; LTO-IR, which has to be linked first: {ltoir}" if ltoir else ""
    others += f"; Tile IR: {tile_ir}" if tile_ir else ""
    return NoImageError(
        f"{unit.title} has no image for this GPU: device is sm_{capability}; built for {cubins or 'none'}; "
        f"PTX: {ptx or 'none'}{others}",
        where=manifest.module,
        remedy=f'add "sm_{capability}" to architectures and build again',
    )


def ptx_too_new(manifest: Manifest, unit: Unit, image: Image, driver: tuple[int, int]) -> PtxTooNewError:
    """Return the error for an `image` that is the only one for the GPU, with PTX too new for the driver."""
    return PtxTooNewError(
        f"of {unit.title} only PTX ({image.architecture}) fits this GPU; CUDA {manifest.version} made it, "
        f"and the NVIDIA driver reads PTX up to CUDA {_text(driver)}",
        where=manifest.module,
        remedy="upgrade the driver, or add this GPU to architectures and build again",
    )


def tile_ir_refused(
    manifest: Manifest, unit: Unit, image: Image, driver: tuple[int, int], reason: object
) -> TileIrError:
    """Return the error for an `image` of Tile IR, the only one for the GPU, that the driver refuses."""
    return TileIrError(
        f"of {unit.title} only Tile IR {image.version} fits this GPU, and the NVIDIA driver, which "
        f"supports CUDA up to {_text(driver)}, does not compile it: {reason}",
        where=manifest.module,
        remedy=f"install a driver that supports CUDA {image.version}, with its library nvidia-tileiras, or "
        "add this GPU to architectures and build again",
    )
