"""The images of one module, and what the driver makes of them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any

from cuda_ext.errors import DriverCallError, DriverError, LoadError, NoImageError
from cuda_ext.manifest import Image, Kernel, Manifest, Symbol, Unit
from cuda_ext.runtime import driver as cuda
from cuda_ext.runtime.driver import Device, Driver, Prepared
from cuda_ext.runtime.images import image_for, no_image, ptx_too_new
from cuda_ext.runtime.index import Index
from cuda_ext.runtime.loaded_kernel import LoadedKernel
from cuda_ext.runtime.module import KernelModule, library_of

__all__ = ["Library"]


class Library:
    """The kernels and symbols of `manifest`; `read` gives the content of the files that it names.

    A unit is loaded when the first of its kernels or symbols is used, once per process, and stays loaded.
    """

    def __init__(self, manifest: Manifest, read: Callable[[str], bytes]) -> None:
        self.manifest = manifest
        self.read = read
        self._loaded: dict[str, Any] = {}
        self._kernels: Prepared[tuple[str, int], LoadedKernel] = Prepared()
        # What was looked up, so that each kernel is one object, which the function made for it belongs to.
        self.objects: dict[tuple[str, str], Any] = {}

    @cached_property
    def index(self) -> Index:
        return Index.of(self.manifest)

    def kernel(self, kernel: Kernel, device: Device) -> LoadedKernel:
        """`kernel` on `device`.

        Raises :class:`LoadError`, or :class:`~cuda_ext.errors.DriverTooOldError`, if that cannot be.
        """

        def load() -> LoadedKernel:
            with device.current():
                return self._load_kernel(kernel, device)

        return self._kernels.once((kernel.expression, device.ordinal), load)

    def address(self, symbol: Symbol, device: Device) -> int:
        """Where `symbol` lies in the current context, which is one of `device`. Raises as :meth:`kernel`."""
        image, lowered = self.image(symbol, device)
        try:
            with cuda.lock:
                library = self._load(image, device.driver)
            address, _ = device.driver.call("cuLibraryGetGlobal", library, lowered.encode())
        except DriverCallError as error:
            raise self._refusal(self.manifest.units[symbol.unit], image, device, error) from None
        return int(address)

    def image(self, entity: Kernel | Symbol, device: Device) -> tuple[Image, str]:
        """What the driver takes for `device` of the unit that `entity` is in, and its name there.

        Raises :class:`NoImageError`, or another :class:`~cuda_ext.errors.DriverError`, if that cannot be.
        """
        unit = self.manifest.units[entity.unit]
        image = image_for(self.manifest, unit, device.capability, device.driver.version)
        return image, self._lowered_name(entity, unit, image, device)

    def __reduce__(self) -> tuple[Any, ...]:
        module = sys.modules.get(self.manifest.module)
        if not isinstance(module, KernelModule) or library_of(module) is not self:
            raise TypeError(f"cannot pickle kernels of {self.manifest.module}: it is no importable module")
        return library_of, (module,)

    def __deepcopy__(self, memo: object) -> Library:
        return self

    def _load_kernel(self, kernel: Kernel, device: Device) -> LoadedKernel:
        image, lowered = self.image(kernel, device)
        try:
            library = self._load(image, device.driver)
            handle = device.driver.call("cuLibraryGetKernel", library, lowered.encode())
            return LoadedKernel(device, handle)
        except DriverCallError as error:
            raise self._refusal(self.manifest.units[kernel.unit], image, device, error) from None

    def _lowered_name(self, entity: Kernel | Symbol, unit: Unit, image: Image, device: Device) -> str:
        lowered = self.manifest.lowered_name(entity, image)
        if lowered is None:
            name = entity.expression if isinstance(entity, Kernel) else entity.name
            built = [i.architecture for i in unit.images if self.manifest.lowered_name(entity, i) is not None]
            raise NoImageError(
                f"{self.manifest.module}: {name} is not built for this GPU: device is {device}, "
                f"whose image, {image.architecture}, lacks it; built for {', '.join(built) or 'none'}"
            )
        return lowered

    def _load(self, image: Image, driver: Driver) -> Any:
        if image.file not in self._loaded:
            content = self._content(image)
            self._loaded[image.file] = driver.call("cuLibraryLoadData", content, [], [], 0, [], [], 0)
        return self._loaded[image.file]

    def _content(self, image: Image) -> bytes:
        """The file of `image`, found whole: the driver is not told where it ends, and reads on."""
        where = f"{self.manifest.module}: {image.file}"
        remedy = "reinstall the package that holds it"
        try:
            content = self.read(image.file)
        except OSError as error:
            raise LoadError(f"{where} cannot be read: {error.strerror or error}; {remedy}") from None
        if hashlib.sha256(content).hexdigest() != image.sha256:
            raise LoadError(f"{where} is damaged: it is not what the manifest describes; {remedy}")
        # PTX is text, and ends at a zero.
        return content + b"\0" if image.kind == "ptx" else content

    def _refusal(self, unit: Unit, image: Image, device: Device, error: DriverCallError) -> DriverError:
        match error.code:
            case 209:  # CUDA_ERROR_NO_BINARY_FOR_GPU
                return no_image(self.manifest, unit, device.capability)
            case 222:  # CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                return ptx_too_new(self.manifest, unit, image, device.driver.version)
            case _:
                return LoadError(
                    f"{self.manifest.module}: the driver refuses {image.file} ({image.architecture}) on "
                    f"{device}: {error}"
                )
