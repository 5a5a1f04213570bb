"""The careful launcher: it takes any argument and any number of GPUs, and makes every check.

:mod:`~cuda_ext.runtime.launch.fast_launch` launches common arguments faster and leaves all others to this.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from cuda_ext.errors import ArgumentError, DriverCallError, LaunchError, NoDeviceError, NoDriverError
from cuda_ext.facts import kernels
from cuda_ext.runtime.arrays.device_memory import DeviceMemory
from cuda_ext.runtime.arrays.host_arrays import HostArray, host_array
from cuda_ext.runtime.arrays.tensor_map import encode_tensor_map
from cuda_ext.runtime.driver.driver import Device, Driver, open_driver
from cuda_ext.runtime.driver.loaded_kernel import LoadedKernel
from cuda_ext.runtime.launch import debugging, is_debugging
from cuda_ext.runtime.launch.arguments import arrays_in, make_fields, order_arguments, pack_layout
from cuda_ext.runtime.launch.configuration import (
    OPTIONS,
    Dim,
    GridFunction,
    LaunchConfiguration,
    LaunchOptions,
    check_for_any_gpu,
)
from cuda_ext.runtime.launch.hidden import measure_arrays, pack_values
from cuda_ext.runtime.launch.python_arguments import values_of_constant
from cuda_ext.runtime.launch.streams import GivenStream, current_stream_to_give

if TYPE_CHECKING:
    from cuda_ext.facts.launches import TensorMap
    from cuda_ext.runtime.launch._launch import Choice


class ResolvedArguments(NamedTuple):
    """The arguments of a launch in the order of the parameters, and the ``values`` that are passed for them.

    The launch runs on ``device`` in the stream with the handle ``stream``, which ``keep`` keeps alive.
    ``extents`` are the shapes and strides that the kernel takes, by their source.
    """

    ordered: list[object]
    values: list[Any]
    stream: int
    keep: object
    device: Device
    extents: Mapping[str, int]

    @property
    def has_host_arrays(self) -> bool:
        return any(isinstance(value, HostArray) for value in self.values)


class Launched(NamedTuple):
    """A launch: the chosen launcher, the kernel and its configuration.

    ``pending`` is the launch that the caller has to wait for, if there is one.
    """

    launcher: Launcher
    kernel: LoadedKernel
    configuration: LaunchConfiguration
    arguments: ResolvedArguments
    pending: Any


class Launcher:
    """Launches `kernel`; `load` loads it on a device. If it `is_fixed`, images fix its launches.

    `structures` are the classes of parameters that are known structures.
    """

    def __init__(
        self,
        kernel: kernels.Kernel,
        load: Callable[[Device], LoadedKernel],
        is_fixed: bool,
        structures: Sequence[type[Any] | None] = (),
    ) -> None:
        self.kernel = kernel
        self.load = load
        self.is_fixed = is_fixed
        self.structures = structures
        self.fields = make_fields(kernel.parameters, structures)
        self._packing, self._offsets = pack_layout(self.fields, kernel.hidden)

    def launch(
        self, arguments: Sequence[object], named: Mapping[str, object], options: LaunchOptions
    ) -> Launched:
        """Launch as :class:`~cuda_ext.runtime.kernel.Kernel` documents."""
        try:
            resolved = self.resolve(arguments, named, options)
            chosen = self.choose(resolved)
            loaded = chosen.load(resolved.device)
            # As in Triton, whose kernels have options, an empty grid launches nothing.
            configuration = LaunchConfiguration.check(options, loaded, bool(self.kernel.options))
            pending = chosen._launch_checked(loaded, configuration, resolved, options.wait)
        except ArgumentError as error:
            error.signature = self.kernel.signature
            raise
        except (NoDriverError, NoDeviceError):
            try:
                check_for_any_gpu(options, self.is_fixed)
            except ArgumentError as error:
                error.signature = self.kernel.signature
                raise error from None
            raise
        return Launched(chosen, loaded, configuration, resolved, pending)

    def resolve(
        self, arguments: Sequence[object], named: Mapping[str, object], options: LaunchOptions
    ) -> ResolvedArguments:
        """Check and convert the arguments of a call, and find the device and the stream to launch in.

        Raises :class:`ArgumentError` for arguments that do not fit the signature, or do not determine the
        stream.
        """
        parameters = self.kernel.parameters
        if left_out := self.kernel.defaults.keys() & {p.name for p in parameters[len(arguments) :]}:
            defaults = {name: values_of_constant(self.kernel.defaults[name])[0] for name in left_out}
            named = {**defaults, **named}
        ordered = order_arguments(parameters, arguments, named, OPTIONS)
        values = [
            host_array(field.parameter, argument) or field.value(argument)
            for field, argument in zip(self.fields, ordered, strict=True)
        ]
        stream, like = options.read_place()
        device = self._find_device(open_driver(), values, stream, like)
        handle = stream.handle if stream else self._current_stream(values, like, device.ordinal)
        extents = measure_arrays(self.kernel, ordered) if self.kernel.hidden else {}
        return ResolvedArguments(ordered, values, handle, stream or options.like, device, extents)

    def choose(self, resolved: ResolvedArguments) -> Launcher:  # noqa: ARG002 - there is only one
        """Choose the candidate that a launch with `resolved` arguments takes."""
        return self

    def find_kernel(
        self, arguments: Sequence[object], named: Mapping[str, object], options: LaunchOptions
    ) -> tuple[kernels.Kernel, ResolvedArguments]:
        """Return the kernel that a launch with these arguments takes, and the resolved arguments."""
        resolved = self.resolve(arguments, named, options)
        return self.choose(resolved).kernel, resolved

    def evaluate_grid(
        self,
        grid: GridFunction,
        arguments: Sequence[object],
        named: Mapping[str, object],
        options: LaunchOptions,
    ) -> Dim:
        """Call `grid` with the arguments of a launch and the constants of the kernel."""
        kernel, resolved = self.find_kernel(arguments, named, options)
        given = {p.name: value for p, value in zip(kernel.parameters, resolved.ordered, strict=True)}
        constants = {**kernel.constants, **kernel.configuration}
        return grid(given | {name: values_of_constant(text)[0] for name, text in constants.items()})

    def find_choice(self, chosen: Launcher, device: Device) -> tuple[int, Choice]:
        """Return the number of the candidate `chosen`, and how C chooses on `device`."""
        raise NotImplementedError  # only launchers with candidates have a choice

    def _raise_launch_error(
        self, error: DriverCallError, driver: Driver, configuration: LaunchConfiguration, details: str = ""
    ) -> NoReturn:
        """Raise :class:`LaunchError` for `error`. `details` describe the launch further."""
        text, note = str(error), ""
        if error is driver.fault:
            error.where = self.kernel.expression
            note = "" if details else "; the fault may be of earlier work on this GPU"
        raise LaunchError(
            f"{text}; launched with {configuration}{note}{details}", where=self.kernel.expression
        ) from None

    def _find_device(
        self,
        driver: Driver,
        values: Sequence[Any],
        stream: GivenStream | None,
        like: DeviceMemory | None,
    ) -> Device:
        """Find the device of the arrays, of `like` and of `stream`; without any, of the current context."""
        if driver.count == 1:
            return driver.device(0)
        found = [
            (_device_of(driver, array), f"argument {name!r}")
            for field, value in zip(self.fields, values, strict=True)
            for name, array in arrays_in(field.parameter.name, value)
        ]
        found += (_device_of(driver, like), "like"), (_device_of_stream(driver, stream), "stream")
        places: dict[int, str] = {}
        for ordinal, place in found:
            if ordinal is not None:
                places.setdefault(ordinal, place)
        if len(places) > 1:
            (first, place), (second, other), *_ = places.items()
            raise ArgumentError(
                f"is on GPU {second}, and {place.removeprefix('argument ')} is on GPU {first}",
                where=other,
                remedy="a kernel runs on one",
            )
        for ordinal in places:
            return driver.device(ordinal)
        return driver.current_device()

    def _current_stream(self, values: Sequence[Any], like: DeviceMemory | None, device: int) -> int:
        """Find the current stream of the library of `like`, or of the first array; else the default stream.

        Raises :class:`ArgumentError` if an address may belong to memory of another stream.
        """
        for value in (like, *values):
            for _, array in arrays_in("", value):
                if isinstance(array, DeviceMemory) and array.stream is not None:
                    return array.stream(device)
        has_host_arrays = any(isinstance(value, HostArray) for value in values)
        if not has_host_arrays and (library := current_stream_to_give()):
            for field, value in zip(self.fields, values, strict=True):
                if field.hides_address(value):
                    name, spelling = library
                    raise ArgumentError(
                        f"may hold an address of memory that {name} uses in its current stream, and no array "
                        "says in which stream to launch",
                        where=f"argument {field.parameter.name!r}",
                        remedy=f"give stream={spelling}, or one of the arrays as like=",
                    )
        return 0

    def _launch_checked(
        self,
        loaded: LoadedKernel,
        configuration: LaunchConfiguration,
        resolved: ResolvedArguments,
        wait: bool,
    ) -> Any:
        """Launch after all checks except those of debug mode."""
        ordered, values, stream, keep, device, extents = resolved
        if any(p.element and p.kind != "pointer" for p in self.kernel.parameters):
            formats = loaded.fixed.tensor_maps if loaded.fixed else {}
            with device.current():  # a thread without a context makes no tensor maps
                values = self._with_tensor_maps(formats, ordered, values, device.driver)
        hidden = pack_values(self.kernel.hidden, extents)
        details = ""
        try:
            if is_debugging():
                details = debugging.check_arguments(self.kernel, self.fields, ordered, values, device)
                details = f" in stream {stream:#x}{details}"
            pending = None

            def submit(values: Sequence[Any]) -> None:
                if 0 not in configuration.grid:
                    self._submit(loaded, configuration, stream, values, hidden)

            def raise_error(error: DriverCallError) -> NoReturn:
                self._raise_launch_error(error, device.driver, configuration)

            if wait and not resolved.has_host_arrays:
                with device.current():
                    submit(values)
            else:
                from cuda_ext.runtime.launch.host_launch import launch_with_copies  # a slow import

                pending = launch_with_copies(device, stream, keep, values, wait, submit, raise_error)
            if details:
                debugging.synchronize(device, stream)
        except DriverCallError as error:
            self._raise_launch_error(error, device.driver, configuration, details)
        return pending

    def _with_tensor_maps(
        self,
        formats: Mapping[str, TensorMap],
        ordered: Sequence[object],
        values: Sequence[Any],
        driver: Driver,
    ) -> list[Any]:
        """Replace the arrays among `values` that the kernel takes as tensor maps."""
        replaced = list(values)
        for i, (parameter, value) in enumerate(zip(self.kernel.parameters, values, strict=True)):
            if parameter.kind == "pointer" or not isinstance(value, DeviceMemory):
                continue
            where = f"argument {parameter.name!r}"
            if parameter.name not in formats:
                raise ArgumentError("the image for this GPU has no format of its tensor map", where=where)
            format_ = formats[parameter.name]
            replaced[i] = encode_tensor_map(driver, format_, ordered[i], value.address, where)
        return replaced

    def _submit(
        self,
        loaded: LoadedKernel,
        configuration: LaunchConfiguration,
        stream: int,
        values: Sequence[Any],
        hidden: Sequence[bytes | None],
    ) -> None:
        """Submit the kernel with the `values` of its arguments and of its `hidden` parameters.

        The context of its device must be current.
        """
        if configuration.scratch:
            with _scratch_memory(loaded.device, configuration, stream) as address:
                hidden = [address if value is None else value for value in hidden]
                self._submit(loaded, configuration._replace(scratch=0), stream, values, hidden)
            return
        driver = loaded.device.driver
        complete = [value.address if isinstance(value, DeviceMemory) else value for value in values]
        for parameter, value in zip(self.kernel.hidden, hidden, strict=True):
            complete.insert(parameter.position, bytes(parameter.size) if value is None else value)
        packed = self._packing.pack(*complete)
        memory = ctypes.create_string_buffer(packed, len(packed))
        start = ctypes.addressof(memory)
        pointers = (ctypes.c_void_p * len(self._offsets))(*(start + offset for offset in self._offsets))
        addresses = ctypes.addressof(pointers)
        if configuration.attributes:
            attributes = ctypes.create_string_buffer(configuration.pack_attributes())
            config = configuration.pack(stream, ctypes.addressof(attributes))
            driver.call("cuLaunchKernelEx", config, loaded.function, addresses, 0)
        else:
            shape = *configuration.grid, *configuration.block, configuration.shared
            driver.call("cuLaunchKernel", loaded.function, *shape, stream, addresses, 0)


@contextmanager
def _scratch_memory(device: Device, configuration: LaunchConfiguration, stream: int) -> Iterator[bytes]:
    """Allocate the scratch memory of a launch, and free it, in the order of `stream`; yield its address."""
    from cuda_ext.runtime.arrays.staging import staging_of  # a slow import

    staging = staging_of(device)
    address = staging.allocate(configuration.scratch * math.prod(configuration.grid), stream)
    try:
        yield address.to_bytes(8, "little")
    finally:
        staging.free(address, stream)


def _device_of_stream(driver: Driver, stream: GivenStream | None) -> int | None:
    """Return the ordinal of the GPU of `stream`, or ``None`` for a default stream that does not tell it."""
    if stream is None or stream.device is not None:
        return stream.device if stream else None
    device = driver.device_of_stream(stream.handle)
    return device.ordinal if device else None


def _device_of(driver: Driver, value: object) -> int | None:
    """Return the ordinal of the GPU that holds `value`, or ``None`` if it is not known."""
    if isinstance(value, HostArray):
        from cuda_ext.runtime.arrays.device_scope import innermost_scope  # only host arrays need it

        scope = innermost_scope()
        return scope.device_of(value) if scope else None
    if not isinstance(value, DeviceMemory):
        return None
    if value.device is not None or value.stream is None or not value.address:
        return value.device
    return driver.device_of_memory(value.address)
