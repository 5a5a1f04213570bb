"""Choose the image of a unit for a GPU and its driver, or explain why there is none.

The generated source of a module in C++ has the same facts as a table.
"""

from __future__ import annotations

from collections.abc import Iterable

from cuda_ext.errors import DriverTooOldError, NoImageError, PtxTooNewError, TileIrError
from cuda_ext.facts.manifest import Image, Manifest, Unit

# The first drivers that take tile kernels, r580, and fatbins that are compressed with zstd.
_FIRST_WITH_TILES, _FIRST_WITH_ZSTD = (13, 0), (12, 4)


def order_images(images: Iterable[Image]) -> list[Image]:
    """Sort `images`: the driver takes the first that runs on its GPU.

    Cubins come before PTX and Tile IR, then the newest, then the most specific.
    """
    return sorted(images, key=lambda image: image.target.preference, reverse=True)


def select_image(images: Iterable[Image], capability: int) -> Image | None:
    """Return the image that the driver takes for a GPU of `capability` (``90`` for 9.0), or ``None``."""
    fitting = [image for image in images if capability in image.target.gpus]
    return order_images(fitting)[0] if fitting else None


def image_for(manifest: Manifest, unit: Unit, capability: int, driver: tuple[int, int]) -> Image:
    """Return the image of `unit` for a GPU of `capability` under a driver that supports CUDA `driver`.

    Raises :class:`NoImageError`, :class:`DriverTooOldError` or :class:`PtxTooNewError`.
    """
    image = select_image(unit.images, capability)
    if image is None:
        raise no_image(manifest, unit, capability)
    needed, reason = needed_driver(manifest, unit, image)
    if driver >= needed:
        return image
    if image.kind == "ptx":
        raise ptx_too_new(manifest, unit, image, driver)
    raise DriverTooOldError(
        f"the NVIDIA driver supports CUDA up to {_text(driver)}, and {unit.title} ({image.architecture}), "
        f"{reason}, needs {_text(needed)} or newer",
        where=manifest.module,
        remedy="upgrade the driver",
    )


def needed_driver(manifest: Manifest, unit: Unit, image: Image) -> tuple[tuple[int, int], str]:
    """Return the CUDA version that the driver has to support to load `image`, and the reason."""
    if image.kind == "tileir":
        return _FIRST_WITH_TILES, "which is Tile IR"
    if unit.compiler or unit.arrived_as(f".{image.kind}", ".fatbin"):
        # The version of CUDA is not known: front-ends choose their assembler for each GPU.
        made = (0, 0), f"made by {unit.compiler or 'a newer CUDA'}"
    else:
        major, minor = map(int, manifest.version.split(".")[:2])
        # A driver loads the cubins of all CUDA versions with its major version.
        made = (major, minor if image.kind == "ptx" else 0), f"made by CUDA {manifest.version}"
    is_packed = image.file.endswith(".fatbin") and not unit.arrived_as(".fatbin")
    if is_packed and manifest.compress in ("balance", "size"):
        return max(made, (_FIRST_WITH_ZSTD, "compressed with zstd"))
    return made


def describe_images(unit: Unit) -> str:
    """List the architectures of the images of `unit`, by kind.

    PTX is named even if there is none: it would run on later GPUs.
    """
    targets = sorted(image.target for image in unit.images)
    by_kind = {
        kind: ", ".join(str(target) for target in targets if target.kind == kind)
        for kind in ("cubin", "ptx", "ltoir", "tileir")
    }
    text = f"{by_kind['cubin'] or 'none'}; PTX: {by_kind['ptx'] or 'none'}"
    if by_kind["ltoir"]:
        text += f"; LTO-IR, which has to be linked first: {by_kind['ltoir']}"
    return f"{text}; Tile IR: {by_kind['tileir']}" if by_kind["tileir"] else text


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def no_image(manifest: Manifest, unit: Unit, capability: int) -> NoImageError:
    """Return the error for a `unit` without an image for GPUs of `capability`."""
    return NoImageError(
        f"{unit.title} has no image for this GPU: device is sm_{capability}; "
        f"built for {describe_images(unit)}",
        where=manifest.module,
        remedy=f'add "sm_{capability}" to architectures and build again',
    )


def ptx_too_new(manifest: Manifest, unit: Unit, image: Image, driver: tuple[int, int]) -> PtxTooNewError:
    """Return the error for an `image` that is the only one for the GPU, with PTX too new for the driver."""
    _, reason = needed_driver(manifest, unit, image)
    return PtxTooNewError(
        f"of {unit.title} only PTX ({image.architecture}) fits this GPU, {reason}, "
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
