"""Launching one kernel, with every check: for any argument and any number of GPUs.

:mod:`~cuda_ext.runtime.launch.specialised` launches common arguments in less time; all others come here.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from cuda_ext import manifest
from cuda_ext.errors import ArgumentError, DriverCallError, LaunchError
from cuda_ext.runtime.arrays.device_memory import DeviceMemory
from cuda_ext.runtime.arrays.host_arrays import HostArray, host_array
from cuda_ext.runtime.driver.driver import Device, Driver, Prepared, open_driver
from cuda_ext.runtime.driver.loaded_kernel import LoadedKernel
from cuda_ext.runtime.driver.loaded_library import Library
from cuda_ext.runtime.launch import debugging
from cuda_ext.runtime.launch.arguments import fields, in_order, layout
from cuda_ext.runtime.launch.configuration import Launch, LaunchOptions
from cuda_ext.runtime.launch.streams import stream_handle

__all__ = ["LAUNCH_KEYWORDS", "Buffer", "Configs", "Launcher"]

# Memory for the arguments of one launch, the address of the array that points at each, and that array.
Buffer = tuple[bytearray, int, Any]
# By device and stream: the function and its ``CUlaunchConfig``, the addresses of both, and what they are of.
Configs = Prepared[tuple[int, int], tuple[Any, Any, int, int, Launch]]

_OPTIONS = {field.name for field in dataclasses.fields(LaunchOptions)}
# So many streams a bound function remembers.
_MOST_CONFIGS = 256
# The keywords of a call that name no parameter.
LAUNCH_KEYWORDS = _OPTIONS | {"stream"}


class Launcher:
    """Launches `kernel` of `library`.

    ``ready`` has the kernel on each device where it can be launched without further ado.
    """

    def __init__(self, library: Library, kernel: manifest.Kernel) -> None:
        self.library = library
        self.kernel = kernel
        self.fields = fields(kernel.parameters)
        self.packing, self._offsets = layout(self.fields)
        self.ready: Prepared[int, LoadedKernel] = Prepared()
        # Those that no launch uses at present. None is shared: other threads launch while the driver is at
        # work, and so may a signal's handler in this one.
        self.buffers: list[Buffer] = []

    def call(self, arguments: Sequence[object], keywords: dict[str, Any]) -> Any:
        """Launch with the `keywords` of a call: launch options, ``stream``, and parameters by name."""
        options = LaunchOptions(**{name: keywords.pop(name) for name in _OPTIONS & keywords.keys()})
        return self.launch(arguments, keywords, options, keywords.pop("stream", None))

    def launch(
        self,
        arguments: Sequence[object],
        named: Mapping[str, object],
        options: LaunchOptions,
        stream: object,
        configs: Mapping[Launcher, Configs] | None = None,
    ) -> Any:
        """Launch as :class:`~cuda_ext.runtime.kernel.Kernel` says. `configs` is told how to do so again."""
        try:
            ordered, values, handle, device = self.located(arguments, named, stream)
            driver = device.driver
            if handle is None:
                handle = _current_stream(values, device.ordinal)
            chosen = self.chosen(device, values)
            loaded = chosen.loaded(device)
            launch = Launch.checked(options, loaded)
            told, pending = "", None
            try:
                if debugging.enabled():
                    told = debugging.examined(chosen.kernel, self.fields, ordered, values, device)
                if options.wait and not any(isinstance(value, HostArray) for value in values):
                    chosen._submit(loaded, launch, handle, values)
                else:
                    pending = chosen._submit_with_copies(loaded, launch, handle, stream, values, options.wait)
                if told:
                    debugging.synchronise(device, handle)
            except DriverCallError as error:
                chosen.refused(error, driver, launch, f" in stream {handle:#x}{told}" if told else "")
        except ArgumentError as error:
            raise ArgumentError(f"{error}\n  in a launch of {self.kernel.signature}") from None
        chosen.ready[device.ordinal] = loaded
        if configs is not None:
            config = launch.config(driver.api, handle)
            known = configs[chosen]
            if len(known) >= _MOST_CONFIGS:
                known.clear()
            addresses = loaded.address, config.getPtr()
            known[device.ordinal, handle] = loaded.function, config, *addresses, launch
        return pending

    def located(
        self, arguments: Sequence[object], named: Mapping[str, object], stream: object
    ) -> tuple[list[object], list[Any], int | None, Device]:
        """All arguments by position, what is passed for them, the handle of `stream` if there is one, and the
        GPU that a launch with them runs on.

        Raises :class:`ArgumentError` for what does not fit.
        """
        ordered = in_order(self.kernel.parameters, arguments, named, LAUNCH_KEYWORDS)
        values = [
            host_array(field.parameter, argument) or field.value(argument)
            for field, argument in zip(self.fields, ordered, strict=True)
        ]
        handle = None if stream is None else stream_handle(stream)
        return ordered, values, handle, self._device(open_driver(), values, handle)

    @property
    def candidates(self) -> Sequence[Launcher]:
        """Those that a launch may come to. There is more than one behind a name for several kernels."""
        return (self,)

    def chosen(self, device: Device, values: Sequence[Any]) -> Launcher:  # noqa: ARG002 - there is one
        """The candidate that a launch on `device` with `values` comes to."""
        return self

    def choice(self, table: str) -> str:
        """As Python, what belongs to the chosen one, where ``table0`` belongs to the first candidate.

        The number of the GPU is in ``device``, and the values of the arguments are in ``v0``, ``v1``, ...
        """
        return f"{table}0"

    def loaded(self, device: Device) -> LoadedKernel:
        return self.library.kernel(self.kernel, device)

    def refused(self, error: DriverCallError, driver: Driver, launch: Launch, told: str = "") -> NoReturn:
        """Raise what `error` means for a launch; `told` is what else is known of that."""
        note = ""
        if str(error) == driver.fault:  # the first that ends all work
            driver.fault = f"{self.kernel.expression}: {error}"
            note = "" if told else "; the fault may be of earlier work on this GPU"
        raise LaunchError(f"{self.kernel.expression}: {error}; launched with {launch}{note}{told}") from None

    def _device(self, driver: Driver, values: Sequence[Any], stream: int | None) -> Device:
        """Where the arrays lie; or else where the stream is, or the current context."""
        if driver.count == 1:
            return driver.device(0)
        places: dict[int, str] = {}
        for field, value in zip(self.fields, values, strict=True):
            if (ordinal := _place(driver, value)) is not None:
                places.setdefault(ordinal, field.parameter.name)
        if len(places) > 1:
            (here, first), (there, second), *_ = places.items()
            raise ArgumentError(
                f"argument {second!r}: is on GPU {there}, and {first!r} is on GPU {here}; "
                "a kernel runs on one"
            )
        for ordinal in places:
            return driver.device(ordinal)
        return driver.current_device() if stream is None else driver.device_of_stream(stream)

    def _submit(self, loaded: LoadedKernel, launch: Launch, stream: int, values: Sequence[Any]) -> None:
        driver = loaded.device.driver
        try:
            buffer = self.buffers.pop()
        except IndexError:
            buffer = self._new_buffer()
        memory, addresses, _ = buffer
        self.packing.pack_into(memory, 0, *(v.address if isinstance(v, DeviceMemory) else v for v in values))
        try:
            with loaded.device.current():
                if launch.plain:
                    shape = *launch.grid, *launch.block, launch.shared
                    driver.call("cuLaunchKernel", loaded.function, *shape, stream, addresses, 0)
                else:
                    config = launch.config(driver.api, stream)
                    driver.call("cuLaunchKernelEx", config, loaded.function, addresses, 0)
        finally:
            self.buffers.append(buffer)

    def _submit_with_copies(
        self, loaded: LoadedKernel, launch: Launch, handle: int, stream: object, values: list[Any], wait: bool
    ) -> Any:
        """Submit between copies to the GPU and back. `stream` is what `handle` is of."""
        from cuda_ext.runtime.launch.host_launch import launch_with_copies  # importing it takes a while

        driver = loaded.device.driver
        places = [i for i, value in enumerate(values) if isinstance(value, HostArray)]

        def submit(addresses: list[int]) -> None:
            placed = dict(zip(places, addresses, strict=True))
            self._submit(loaded, launch, handle, [placed.get(i, value) for i, value in enumerate(values)])

        return launch_with_copies(
            loaded.device,
            handle,
            stream,
            [values[i] for i in places],
            wait,
            submit,
            lambda error: self.refused(error, driver, launch),
        )

    def _new_buffer(self) -> Buffer:
        memory = bytearray(self.packing.size)
        start = ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory))
        addresses = (ctypes.c_void_p * len(self._offsets))(*(start + offset for offset in self._offsets))
        return memory, ctypes.addressof(addresses), addresses


def _place(driver: Driver, value: object) -> int | None:
    """The GPU where `value` lies, if it is known to lie on one."""
    if isinstance(value, HostArray):
        from cuda_ext.runtime.arrays.device_scope import copies_of_scope  # needed for host arrays only

        scope = copies_of_scope()
        return scope.device_of(value) if scope else None
    if not isinstance(value, DeviceMemory):
        return None
    if value.device is not None or value.stream is None or not value.address:
        return value.device
    return driver.pointer_attribute("DEVICE_ORDINAL", value.address)


def _current_stream(values: Sequence[Any], device: int) -> int:
    """The stream that the framework of the first array works in; the default stream where there is none."""
    for value in values:
        if isinstance(value, DeviceMemory) and value.stream is not None:
            return value.stream(device)
    return 0
