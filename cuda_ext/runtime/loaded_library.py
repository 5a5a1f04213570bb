"""The library behind a module of kernels: it looks up names and loads images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from cuda_ext.errors import (
    DriverCallError,
    DriverError,
    KernelNotFoundError,
    LoadError,
    ManifestError,
    NoImageError,
    ToolchainError,
)
from cuda_ext.facts.codec import sha256
from cuda_ext.facts.image_choice import (
    image_for,
    no_image,
    ptx_too_new,
    select_image,
    tile_ir_refused,
)
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import FILE_NAME, Image, Manifest, loads
from cuda_ext.runtime.driver import cuda_h
from cuda_ext.runtime.driver import driver as cuda
from cuda_ext.runtime.driver.driver import Device, Driver, ProcessCache
from cuda_ext.runtime.driver.functions import OUT
from cuda_ext.runtime.driver.loaded_kernel import LoadedKernel
from cuda_ext.runtime.manifest_names import Names

if TYPE_CHECKING:
    from cuda_ext.facts.launches import FixedLaunch
    from cuda_ext.facts.symbols import Symbol
    from cuda_ext.runtime.jit.on_demand import OnDemand, Owner
    from cuda_ext.runtime.jit.request import Entry, Request
    from cuda_ext.runtime.structure_lookup import Structures

    # An image that was built, or one that was compiled on demand.
    _Code: TypeAlias = Image | Entry

# No options for the PTX compiler and the library: names, values, and their number.
_NO_OPTIONS = (0, 0, 0, 0, 0, 0)


class Library:
    """The kernels and symbols of `manifest`, which `module` shows; `read` returns the content of its files.

    A unit is loaded when the first of its kernels or symbols is used, once per process, and stays loaded.
    Missing kernels are compiled on demand.
    """

    def __init__(self, module: ModuleType, manifest: Manifest, read: Callable[[str], bytes]) -> None:
        self.module = module
        self.manifest = manifest
        self.read = read
        # Results of lookups: kernels by expression, so that each is a single object, and all objects by name.
        self.kernels: dict[str, Any] = {}
        self.objects: dict[str, Any] = {}
        self._loaded: dict[object, int] = {}
        self._loaded_kernels = ProcessCache()
        # The owners of kernels that were instantiated on demand, by expression.
        self.owners: dict[str, Owner] = {}

    @cached_property
    def names(self) -> Names:
        """The names that can be looked up."""
        return Names(self.manifest)

    @cached_property
    def structures(self) -> Structures:
        from cuda_ext.runtime.structure_lookup import Structures  # few kernels take structures

        return Structures(self.manifest, self.module.__name__)

    @cached_property
    def on_demand(self) -> OnDemand:
        from cuda_ext.runtime.jit.on_demand import OnDemand  # not needed for images that were built ahead

        return OnDemand(self.manifest, self.read)

    def instantiate(self, expression: str, owner: Owner, device: Device) -> Kernel:
        """Compile the kernel of `expression`, which `owner` defines, for `device`.

        Raises :class:`~cuda_ext.errors.KernelNotFoundError` if that is not possible, and
        :class:`~cuda_ext.errors.CompilationError` if the compiler rejects it.
        """
        request = self.on_demand.request_kernel(owner, expression, device.capability)
        entry = self.on_demand.compile(request)
        kernel = entry.kernel(expression)
        if kernel is None:
            raise KernelNotFoundError(
                f"{expression} is not a kernel",
                where=self.manifest.module,
                remedy="name a __global__ function",
            )
        if entry.symbols and not self.manifest.units[owner.unit].images:  # the module has no copy of them
            raise KernelNotFoundError(
                f"{expression} uses the variable {entry.symbols[0].name!r}, of which each kernel that is "
                "compiled on demand would have a copy of its own",
                where=self.manifest.module,
                remedy="list all instantiations in the call of cuda_ext.compile",
            )
        self.owners[expression] = owner
        if entry.structures:
            self.structures.add(entry.structures, owner.unit)
        return kernel._replace(unit=owner.unit)

    def fixes(self, kernel: Kernel) -> bool:
        """Return True if images fix the launches of `kernel`, so that a call gives only the grid."""
        owner = self.owners.get(kernel.expression)
        return self.manifest.fixes(kernel) or (owner is not None and owner.source.endswith(".py"))

    def architecture(self, kernel: Kernel, device: Device) -> str:
        """Return the architecture of the image of `kernel` that `device` loads; see :meth:`image`.

        Images of Python functions are compiled on demand.
        """
        unit = self.manifest.units[kernel.unit]
        if kernel.expression in self.owners:
            return self._resolve(kernel, device)[0].architecture
        is_missing = unit.arrived_as(".py") and select_image(unit.images, device.capability) is None
        if is_missing and not self.on_demand.obstacle(unit, device.driver.version):
            return f"sm_{device.capability}"
        return self.image(kernel, device).architecture

    def kernel(self, kernel: Kernel, device: Device) -> LoadedKernel:
        """Load `kernel` on `device`.

        Raises :class:`LoadError` or :class:`~cuda_ext.errors.DriverTooOldError`.
        """
        key = kernel.expression, device.ordinal
        loaded: LoadedKernel | None = self._loaded_kernels.get(key)
        if loaded:
            return loaded
        # This may compile, outside of the lock that other launches and loads need.
        code, lowered = self._resolve(kernel, device)

        def load() -> LoadedKernel:
            with device.current():
                try:
                    library = self._load(code, device.driver)
                    handle = device.driver.query("cuLibraryGetKernel", OUT, library, _encode(lowered))
                    fixed = _fixed_launch(kernel, code, self.manifest.units[kernel.unit].images)
                    return LoadedKernel(device, handle, fixed)
                except DriverCallError as error:
                    raise self._explain(error, kernel, code, device) from None

        kernel_on_device: LoadedKernel = self._loaded_kernels.get_or_create(key, load)
        return kernel_on_device

    def address(self, symbol: Symbol, device: Device) -> int:
        """Return the address of `symbol` on `device`. Its context is current. Raises as :meth:`kernel`."""
        code, lowered = self._resolve(symbol, device)
        try:
            library = self._load(code, device.driver)
            address, size = device.driver.call("cuLibraryGetGlobal", OUT, OUT, library, _encode(lowered))
        except DriverCallError as error:
            raise self._explain(error, symbol, code, device) from None
        # Tile kernels round arrays up.
        if size < symbol.size:
            raise LoadError(
                f"{symbol.name} has {size} bytes on {device}, and {symbol.size} in the manifest",
                where=self.manifest.module,
                remedy="reinstall the package that holds it",
            )
        return address

    def image(self, entity: Kernel | Symbol, device: Device) -> Image:
        """Return the image of the unit of `entity` that was built for `device`.

        Raises :class:`NoImageError`, or another :class:`~cuda_ext.errors.DriverError`.
        """
        unit = self.manifest.units[entity.unit]
        image = image_for(self.manifest, unit, device.capability, device.driver.version)
        self._lowered_name(entity, image, device)
        return image

    def is_compiled(self, kernel: Kernel, device: Device) -> bool:
        """Return True if an image of `kernel` for `device` was built, or compiled on demand before."""
        unit = self.manifest.units[kernel.unit]
        request = self._instantiation(kernel, device)
        if request is None:
            if select_image(unit.images, device.capability) is not None:
                return True
            if self.on_demand.obstacle(unit, device.driver.version):
                return False
            request = self.on_demand.request_unit(unit, device.capability)
        return self.on_demand.find(request) is not None

    def _instantiation(self, entity: Kernel | Symbol, device: Device) -> Request | None:
        """Return the request for `entity` on `device`, if it is a kernel that was instantiated on demand."""
        if not isinstance(entity, Kernel) or not (owner := self.owners.get(entity.expression)):
            return None
        return self.on_demand.request_kernel(owner, entity.expression, device.capability)

    def _resolve(self, entity: Kernel | Symbol, device: Device) -> tuple[_Code, str]:
        """Return the code of `entity` for `device` and its lowered name there; compile it if necessary."""
        unit = self.manifest.units[entity.unit]
        code: _Code
        if request := self._instantiation(entity, device):
            code = self.on_demand.compile(request)
        else:
            try:
                code = image_for(self.manifest, unit, device.capability, device.driver.version)
            except DriverError as error:
                code = self._compile_unit(entity, device, error)
        return code, self._lowered_name(entity, code, device)

    def _compile_unit(self, entity: Kernel | Symbol, device: Device, error: DriverError) -> Entry:
        """Compile the unit of `entity` for `device`, or raise `error` with the reason why not."""
        unit = self.manifest.units[entity.unit]
        obstacle = self.on_demand.obstacle(unit, device.driver.version)
        if not obstacle:
            try:
                entry = self.on_demand.compile(self.on_demand.request_unit(unit, device.capability))
                # Versions of a front-end differ in the parameters that they add.
                if (
                    not isinstance(entity, Kernel)
                    or not entry.launches
                    or entry.kernels[0].sizes == entity.sizes
                ):
                    return entry
                obstacle = f"{unit.compiler} built it; the installed version passes other parameters"
            except ToolchainError as reason:
                obstacle = str(reason)
        raise _explain_jit(error, obstacle) from None

    def _lowered_name(self, entity: Kernel | Symbol, code: _Code, device: Device) -> str:
        """Return the lowered name of `entity` in `code`. Raises :class:`NoImageError` if `code` lacks it."""
        if isinstance(code, Image):
            image, lowered = code.architecture, self.manifest.lowered_name(entity, code)
        else:
            image, lowered = f"{code.architecture}, compiled on demand", code.lowered_name(entity)
        if lowered is not None:
            return lowered
        name = entity.expression if isinstance(entity, Kernel) else entity.name
        images = self.manifest.units[entity.unit].images
        built = [i.architecture for i in images if self.manifest.lowered_name(entity, i) is not None]
        raise NoImageError(
            f"{name} is not built for this GPU: device is {device}, whose image, {image}, lacks it; "
            f"built for {', '.join(built) or 'none'}",
            where=self.manifest.module,
        )

    def _load(self, code: _Code, driver: Driver) -> int:
        key = code.file if isinstance(code, Image) else code
        with cuda.lock:
            if key not in self._loaded:
                content = self._read_image(code) if isinstance(code, Image) else code.image
                if code.architecture.startswith("compute"):
                    content += b"\0"  # PTX is text, which must end with a zero
                self._loaded[key] = driver.query("cuLibraryLoadData", OUT, content, *_NO_OPTIONS)
            return self._loaded[key]

    def _read_image(self, image: Image) -> bytes:
        """Read and verify the file of `image`: the driver would read beyond the end of a truncated one."""
        try:
            content = self.read(image.file)
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
        else:
            if sha256(content).hex() == image.sha256:
                return content
            problem = "is damaged: it is not what the manifest describes"
        where = self.manifest.module
        if self._was_built_anew():
            remedy = "start Python again"
            raise LoadError("has been built again since it was imported", where=where, remedy=remedy)
        remedy = "reinstall the package that holds it"
        raise LoadError(f"{image.file} {problem}", where=where, remedy=remedy)

    def _was_built_anew(self) -> bool:
        try:
            return loads(self.read(FILE_NAME), self.manifest.module) != self.manifest
        except (OSError, ManifestError):
            return False

    def _explain(
        self, error: DriverCallError, entity: Kernel | Symbol, code: _Code, device: Device
    ) -> DriverError:
        """Convert an `error` of the driver, which rejects `code`, to the exception of :meth:`kernel`."""
        manifest, unit, driver = self.manifest, self.manifest.units[entity.unit], device.driver.version
        rejected = f"what was compiled on demand for {code.architecture}"
        if isinstance(code, Image):
            rejected = f"{code.file} ({code.architecture})"
            explained: LoadError | None = None
            if error.code == cuda_h.CUDA_ERROR_NO_BINARY_FOR_GPU:
                explained = no_image(manifest, unit, device.capability)
            if error.code == cuda_h.CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
                explained = ptx_too_new(manifest, unit, code, driver)
            if code.kind == "tileir":
                explained = tile_ir_refused(manifest, unit, code, driver, error)
            if explained:
                return _explain_jit(explained, self.on_demand.obstacle(unit, driver))
        text = f"the driver refuses {rejected} on {device}: {error}"
        return LoadError(text, where=manifest.module)


def _fixed_launch(kernel: Kernel, code: _Code, images: Sequence[Image]) -> FixedLaunch | None:
    """Return the launch of `kernel` that `code` fixes; what is compiled on demand has one kernel."""
    if isinstance(code, Image):
        return code.launches.get(kernel.expression)
    launches = (image.launches[kernel.expression] for image in images if kernel.expression in image.launches)
    return next(iter(code.launches.values()), None) or next(launches, None)  # the table fixed those of images


def _encode(lowered: str) -> bytes:
    """Encode a lowered name. One of damaged data that is no text is a name that images lack."""
    return lowered.encode("utf-8", "surrogatepass")


def _explain_jit(error: DriverError, obstacle: str) -> DriverError:
    """Add to `error` the `obstacle` to compilation on demand, if there is one."""
    if obstacle:
        error.remedy = f"jit: {obstacle}; {error.remedy}"
    return error
