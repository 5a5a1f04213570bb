"""The images of one module, and what the driver makes of them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from cuda_ext.errors import (
    DriverCallError,
    DriverError,
    DriverTooOldError,
    KernelNotFoundError,
    LoadError,
    ManifestError,
    NoImageError,
    PtxTooNewError,
    ToolchainError,
)
from cuda_ext.manifest import FILE_NAME, Image, Kernel, Manifest, Symbol, Unit, loads
from cuda_ext.runtime.driver import driver as cuda
from cuda_ext.runtime.driver.driver import Device, Driver, Prepared
from cuda_ext.runtime.driver.images import image_for, no_image, ptx_too_new
from cuda_ext.runtime.driver.loaded_kernel import LoadedKernel
from cuda_ext.runtime.index import Index
from cuda_ext.runtime.module import KernelModule, library_of

if TYPE_CHECKING:
    from cuda_ext.runtime.jit.on_demand import Made, OnDemand, Owner

__all__ = ["Library"]


@dataclass(frozen=True, slots=True)
class _Found:
    """What the driver takes: it is loaded once per ``key``, and has a kernel or a symbol under ``lowered``.

    ``name`` is for people. ``image`` is what was built ahead; ``None`` where this was compiled on demand.
    """

    key: str
    name: str
    lowered: str
    read: Callable[[], bytes]
    image: Image | None = None


class Library:
    """The kernels and symbols of `manifest`; `read` gives the content of the files that it names.

    A unit is loaded when the first of its kernels or symbols is used, once per process, and stays loaded.
    What was not built ahead is compiled on demand.
    """

    def __init__(self, manifest: Manifest, read: Callable[[str], bytes]) -> None:
        self.manifest = manifest
        self.read = read
        self._loaded: dict[str, Any] = {}
        self._kernels: Prepared[tuple[str, int], LoadedKernel] = Prepared()
        # Where the kernels are defined that were compiled on demand, by expression.
        self._owners: dict[str, Owner] = {}
        # What was looked up, so that each kernel is one object, which the function made for it belongs to.
        self.objects: dict[tuple[str, str], Any] = {}

    @cached_property
    def index(self) -> Index:
        return Index.of(self.manifest)

    @cached_property
    def on_demand(self) -> OnDemand:
        from cuda_ext.runtime.jit.on_demand import OnDemand  # most modules never need it

        return OnDemand(self.manifest, self.read)

    def instantiation(self, expression: str, owner: Owner, device: Device) -> Kernel:
        """The kernel of `expression`, which `owner` defines, compiled for `device`.

        Raises :class:`~cuda_ext.errors.KernelNotFoundError` where that cannot be, and
        :class:`~cuda_ext.errors.CompilationError` where the compiler refuses it.
        """
        demand = self.on_demand.instantiations(owner, [expression], device.capability)
        kernel = self.on_demand.made(demand).record.kernel(expression)
        if kernel is None:
            raise KernelNotFoundError(
                f"{self.manifest.module}: {expression} is no kernel; name a __global__ function"
            )
        self._owners[expression] = owner
        return replace(kernel, unit=owner.unit)

    def kernel(self, kernel: Kernel, device: Device) -> LoadedKernel:
        """`kernel` on `device`.

        Raises :class:`LoadError`, or :class:`~cuda_ext.errors.DriverTooOldError`, if that cannot be.
        """

        def load() -> LoadedKernel:
            with device.current():
                return self._load_kernel(kernel, device)

        place = kernel.expression, device.ordinal
        if place not in self._kernels:
            self._found(kernel, device)  # which may compile it, while others load and launch
        return self._kernels.once(place, load)

    def address(self, symbol: Symbol, device: Device) -> int:
        """Where `symbol` lies in the current context, which is one of `device`. Raises as :meth:`kernel`."""
        found = self._found(symbol, device)
        try:
            with cuda.lock:
                library = self._load(found, device.driver)
            address, _ = device.driver.call("cuLibraryGetGlobal", library, found.lowered.encode())
        except DriverCallError as error:
            raise self._refusal(self.manifest.units[symbol.unit], found, device, error) from None
        return int(address)

    def image(self, entity: Kernel | Symbol, device: Device) -> tuple[Image, str]:
        """What the driver takes for `device` of the unit that `entity` was built in, and its name there.

        Raises :class:`NoImageError`, or another :class:`~cuda_ext.errors.DriverError`, if that cannot be.
        """
        image = self._image_of(self.manifest.units[entity.unit], device)
        return image, self._lowered_name(entity, image, device)

    def __reduce__(self) -> tuple[Any, ...]:
        module = sys.modules.get(self.manifest.module)
        if not isinstance(module, KernelModule) or library_of(module) is not self:
            raise TypeError(
                f"cannot pickle kernels of {self.manifest.module}: it is no importable module; "
                "cuda_ext.save makes files of it"
            )
        return library_of, (module,)

    def __deepcopy__(self, memo: object) -> Library:
        return self

    def _found(self, entity: Kernel | Symbol, device: Device) -> _Found:
        """`entity` for `device`, compiled if it was not built ahead."""
        unit = self.manifest.units[entity.unit]
        if isinstance(entity, Kernel) and (owner := self._owners.get(entity.expression)):
            demand = self.on_demand.instantiations(owner, [entity.expression], device.capability)
            return self._compiled(entity, device, self.on_demand.made(demand))
        try:
            image = self._image_of(unit, device)
        except (NoImageError, PtxTooNewError, DriverTooOldError) as error:
            return self._compiled(entity, device, self._made_whole(unit, device, error))
        lowered = self._lowered_name(entity, image, device)
        return _Found(
            image.file, f"{image.file} ({image.architecture})", lowered, partial(self._content, image), image
        )

    def _made_whole(self, unit: Unit, device: Device, error: DriverError) -> Made:
        """`unit` compiled for `device`, for which `error` says that there is no image."""
        if self.on_demand.why_not(unit, device.driver.version):
            raise error
        try:
            return self.on_demand.made(self.on_demand.whole(unit, device.capability))
        except ToolchainError as reason:
            raise type(error)(f"{error}; jit: {reason}") from None

    def _compiled(self, entity: Kernel | Symbol, device: Device, made: Made) -> _Found:
        record = made.record
        lowered = record.lowered_name(entity)
        if lowered is None:
            raise self._lacking(entity, device, f"{record.architecture}, compiled on demand")
        content = record.image + b"\0" if record.architecture.startswith("compute") else record.image
        name = f"what was compiled on demand for {record.architecture}"
        return _Found(made.key, name, lowered, lambda: content)

    def _image_of(self, unit: Unit, device: Device) -> Image:
        driver = device.driver.version
        return image_for(
            self.manifest, unit, device.capability, driver, lambda: self.on_demand.why_not(unit, driver)
        )

    def _lowered_name(self, entity: Kernel | Symbol, image: Image, device: Device) -> str:
        lowered = self.manifest.lowered_name(entity, image)
        if lowered is None:
            raise self._lacking(entity, device, image.architecture)
        return lowered

    def _lacking(self, entity: Kernel | Symbol, device: Device, architecture: str) -> NoImageError:
        """The image of that architecture, which `device` takes, lacks `entity`."""
        name = entity.expression if isinstance(entity, Kernel) else entity.name
        images = self.manifest.units[entity.unit].images
        built = [i.architecture for i in images if self.manifest.lowered_name(entity, i) is not None]
        return NoImageError(
            f"{self.manifest.module}: {name} is not built for this GPU: device is {device}, "
            f"whose image, {architecture}, lacks it; built for {', '.join(built) or 'none'}"
        )

    def _load_kernel(self, kernel: Kernel, device: Device) -> LoadedKernel:
        found = self._found(kernel, device)
        try:
            library = self._load(found, device.driver)
            handle = device.driver.call("cuLibraryGetKernel", library, found.lowered.encode())
            return LoadedKernel(device, handle)
        except DriverCallError as error:
            raise self._refusal(self.manifest.units[kernel.unit], found, device, error) from None

    def _load(self, found: _Found, driver: Driver) -> Any:
        if found.key not in self._loaded:
            self._loaded[found.key] = driver.call("cuLibraryLoadData", found.read(), [], [], 0, [], [], 0)
        return self._loaded[found.key]

    def _content(self, image: Image) -> bytes:
        """The file of `image`, found whole: the driver is not told where it ends, and reads on."""
        where = f"{self.manifest.module}: {image.file}"
        remedy = "reinstall the package that holds it"
        try:
            content = self.read(image.file)
        except OSError as error:
            self._check_current()
            raise LoadError(f"{where} cannot be read: {error.strerror or error}; {remedy}") from None
        if hashlib.sha256(content).hexdigest() != image.sha256:
            self._check_current()
            raise LoadError(f"{where} is damaged: it is not what the manifest describes; {remedy}")
        # PTX is text, and ends at a zero.
        return content + b"\0" if image.kind == "ptx" else content

    def _check_current(self) -> None:
        """Raises :class:`LoadError` if there are other files now than were imported."""
        with suppress(OSError, ManifestError):
            if loads(self.read(FILE_NAME), self.manifest.module) != self.manifest:
                raise LoadError(
                    f"{self.manifest.module}: was built anew since it was imported; start Python again"
                )

    def _refusal(self, unit: Unit, found: _Found, device: Device, error: DriverCallError) -> DriverError:
        driver = device.driver.version
        if found.image and error.code == 209:  # CUDA_ERROR_NO_BINARY_FOR_GPU
            reason = self.on_demand.why_not(unit, driver)
            return no_image(self.manifest, unit, device.capability, reason)
        if found.image and error.code == 222:  # CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            reason = self.on_demand.why_not(unit, driver)
            return ptx_too_new(self.manifest, unit, found.image, driver, reason)
        return LoadError(f"{self.manifest.module}: the driver refuses {found.name} on {device}: {error}")
