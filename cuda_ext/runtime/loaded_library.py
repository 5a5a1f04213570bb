"""The library behind a module of kernels: it finds, compiles and loads images."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from types import ModuleType
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
from cuda_ext.runtime.driver.driver import Device, Driver, ProcessCache
from cuda_ext.runtime.driver.images import image_for, no_image, ptx_too_new
from cuda_ext.runtime.driver.loaded_kernel import LoadedKernel
from cuda_ext.runtime.index import Index

if TYPE_CHECKING:
    from cuda_ext.runtime.jit.on_demand import CachedEntry, OnDemand, Owner

__all__ = ["Library"]


@dataclass(frozen=True, slots=True)
class _Loadable:
    """Code for the driver, loaded once per ``key``, with a kernel or a symbol under ``lowered``.

    ``description`` is for error messages. ``image`` is ``None`` for code that was compiled on demand.
    """

    key: str
    description: str
    lowered: str
    read: Callable[[], bytes]
    image: Image | None = None


class Library:
    """The kernels and symbols of `manifest`, which `module` shows; `read` returns the content of its files.

    A unit is loaded when the first of its kernels or symbols is used, once per process, and stays loaded.
    What was not built ahead is compiled on demand.
    """

    def __init__(self, module: ModuleType, manifest: Manifest, read: Callable[[str], bytes]) -> None:
        self.module = module
        self.manifest = manifest
        self.read = read
        self._loaded: dict[str, Any] = {}
        self._kernels: ProcessCache[tuple[str, int], LoadedKernel] = ProcessCache()
        # The owners of kernels that were instantiated on demand, by expression.
        self._owners: dict[str, Owner] = {}
        # The objects that were looked up, by kind and name, so that each kernel is a single object.
        self.objects: dict[tuple[str, str], Any] = {}

    @cached_property
    def index(self) -> Index:
        return Index.of(self.manifest)

    @cached_property
    def on_demand(self) -> OnDemand:
        from cuda_ext.runtime.jit.on_demand import OnDemand  # not needed for images that were built ahead

        return OnDemand(self.manifest, self.read)

    def instantiate(self, expression: str, owner: Owner, device: Device) -> Kernel:
        """Compile the kernel of `expression`, which `owner` defines, for `device`.

        Raises :class:`~cuda_ext.errors.KernelNotFoundError` if that is not possible, and
        :class:`~cuda_ext.errors.CompilationError` if the compiler rejects it.
        """
        request = self.on_demand.request_kernels(owner, [expression], device.capability)
        kernel = self.on_demand.compile(request).entry.kernel(expression)
        if kernel is None:
            raise KernelNotFoundError(
                f"{expression} is no kernel", where=self.manifest.module, remedy="name a __global__ function"
            )
        self._owners[expression] = owner
        return Kernel(expression, kernel.lowered, owner.unit, kernel.parameters)

    def kernel(self, kernel: Kernel, device: Device) -> LoadedKernel:
        """Load `kernel` on `device`.

        Raises :class:`LoadError` or :class:`~cuda_ext.errors.DriverTooOldError`.
        """

        def load() -> LoadedKernel:
            with device.current():
                return self._load_kernel(kernel, device)

        key = kernel.expression, device.ordinal
        if key not in self._kernels:
            self._resolve(kernel, device)  # compiles outside of the lock that other launches and loads need
        return self._kernels.get_or_create(key, load)

    def address(self, symbol: Symbol, device: Device) -> int:
        """The address of `symbol` on `device`, whose context must be current. Raises as :meth:`kernel`."""
        code = self._resolve(symbol, device)
        try:
            with cuda.lock:
                library = self._load(code, device.driver)
            address, _ = device.driver.call("cuLibraryGetGlobal", library, code.lowered.encode())
        except DriverCallError as error:
            raise self._load_error(self.manifest.units[symbol.unit], code, device, error) from None
        return int(address)

    def image(self, entity: Kernel | Symbol, device: Device) -> tuple[Image, str]:
        """The image that was built for `device` of the unit of `entity`, and its lowered name there.

        Raises :class:`NoImageError`, or another :class:`~cuda_ext.errors.DriverError`.
        """
        image = self._image_of(self.manifest.units[entity.unit], device)
        return image, self._lowered_name(entity, image, device)

    def _resolve(self, entity: Kernel | Symbol, device: Device) -> _Loadable:
        """The code of `entity` for `device`, compiled if it was not built ahead."""
        unit = self.manifest.units[entity.unit]
        if isinstance(entity, Kernel) and (owner := self._owners.get(entity.expression)):
            request = self.on_demand.request_kernels(owner, [entity.expression], device.capability)
            return self._compiled_code(entity, device, self.on_demand.compile(request))
        try:
            image = self._image_of(unit, device)
        except (NoImageError, PtxTooNewError, DriverTooOldError) as error:
            return self._compiled_code(entity, device, self._compile_unit(unit, device, error))
        lowered = self._lowered_name(entity, image, device)
        description = f"{image.file} ({image.architecture})"
        return _Loadable(image.file, description, lowered, partial(self._read_image, image), image)

    def _compile_unit(self, unit: Unit, device: Device, error: DriverError) -> CachedEntry:
        """Compile `unit` for `device`. Raises `error` if that is not possible."""
        if self.on_demand.obstacle(unit, device.driver.version):
            raise error
        try:
            return self.on_demand.compile(self.on_demand.request_unit(unit, device.capability))
        except ToolchainError as reason:
            error.remedy = f"{error.remedy}; jit: {reason}"
            raise error from None

    def _compiled_code(self, entity: Kernel | Symbol, device: Device, compiled: CachedEntry) -> _Loadable:
        entry = compiled.entry
        lowered = entry.lowered_name(entity)
        if lowered is None:
            raise self._not_in_image(entity, device, f"{entry.architecture}, compiled on demand")
        content = entry.image + b"\0" if entry.architecture.startswith("compute") else entry.image
        description = f"what was compiled on demand for {entry.architecture}"
        return _Loadable(compiled.key, description, lowered, lambda: content)

    def _image_of(self, unit: Unit, device: Device) -> Image:
        driver = device.driver.version
        return image_for(
            self.manifest, unit, device.capability, driver, lambda: self.on_demand.obstacle(unit, driver)
        )

    def _lowered_name(self, entity: Kernel | Symbol, image: Image, device: Device) -> str:
        lowered = self.manifest.lowered_name(entity, image)
        if lowered is None:
            raise self._not_in_image(entity, device, image.architecture)
        return lowered

    def _not_in_image(self, entity: Kernel | Symbol, device: Device, architecture: str) -> NoImageError:
        """The error for an `entity` that the image for `device`, of that `architecture`, lacks."""
        name = entity.expression if isinstance(entity, Kernel) else entity.name
        images = self.manifest.units[entity.unit].images
        built = [i.architecture for i in images if self.manifest.lowered_name(entity, i) is not None]
        return NoImageError(
            f"{name} is not built for this GPU: device is {device}, whose image, {architecture}, lacks it; "
            f"built for {', '.join(built) or 'none'}",
            where=self.manifest.module,
        )

    def _load_kernel(self, kernel: Kernel, device: Device) -> LoadedKernel:
        code = self._resolve(kernel, device)
        try:
            library = self._load(code, device.driver)
            handle = device.driver.call("cuLibraryGetKernel", library, code.lowered.encode())
            return LoadedKernel(device, handle)
        except DriverCallError as error:
            raise self._load_error(self.manifest.units[kernel.unit], code, device, error) from None

    def _load(self, code: _Loadable, driver: Driver) -> Any:
        if code.key not in self._loaded:
            self._loaded[code.key] = driver.call("cuLibraryLoadData", code.read(), [], [], 0, [], [], 0)
        return self._loaded[code.key]

    def _read_image(self, image: Image) -> bytes:
        """Read and verify the file of `image`: the driver would read beyond the end of a cut one."""
        remedy = "reinstall the package that holds it"
        try:
            content = self.read(image.file)
        except OSError as error:
            self._check_not_rebuilt()
            raise LoadError(
                f"{image.file} cannot be read: {error.strerror or error}",
                where=self.manifest.module,
                remedy=remedy,
            ) from None
        if hashlib.sha256(content).hexdigest() != image.sha256:
            self._check_not_rebuilt()
            raise LoadError(
                f"{image.file} is damaged: it is not what the manifest describes",
                where=self.manifest.module,
                remedy=remedy,
            )
        # PTX is text, which must end with a zero.
        return content + b"\0" if image.kind == "ptx" else content

    def _check_not_rebuilt(self) -> None:
        """Raise :class:`LoadError` if the manifest on disk differs from the one that was imported."""
        with suppress(OSError, ManifestError):
            if loads(self.read(FILE_NAME), self.manifest.module) != self.manifest:
                raise LoadError(
                    "was built anew since it was imported",
                    where=self.manifest.module,
                    remedy="start Python again",
                )

    def _load_error(self, unit: Unit, code: _Loadable, device: Device, error: DriverCallError) -> DriverError:
        """The error for `code` that the driver does not load."""
        driver = device.driver.version
        if code.image and error.code == 209:  # CUDA_ERROR_NO_BINARY_FOR_GPU
            reason = self.on_demand.obstacle(unit, driver)
            return no_image(self.manifest, unit, device.capability, reason)
        if code.image and error.code == 222:  # CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            reason = self.on_demand.obstacle(unit, driver)
            return ptx_too_new(self.manifest, unit, code.image, driver, reason)
        return LoadError(
            f"the driver refuses {code.description} on {device}: {error}", where=self.manifest.module
        )
