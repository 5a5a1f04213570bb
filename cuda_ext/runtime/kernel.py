"""A kernel, ready to be called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, SupportsIndex

from cuda_ext import manifest
from cuda_ext.errors import ArgumentError, DriverCallError, LaunchError
from cuda_ext.manifest import Parameter
from cuda_ext.runtime.arguments import pack
from cuda_ext.runtime.driver import open_driver
from cuda_ext.runtime.launch import Dim, Launch, Stream
from cuda_ext.runtime.library import Library

__all__ = ["Kernel"]

# Errors of a kernel that already ran: CUDA_ERROR_ILLEGAL_ADDRESS, _LAUNCH_TIMEOUT, _ASSERT, and from
# _HARDWARE_STACK_ERROR to _LAUNCH_FAILED.
_OF_EARLIER_WORK = {700, 702, 710, *range(714, 720)}


@dataclass(frozen=True, slots=True, repr=False)
class Kernel:
    """A kernel, or one instantiation of a kernel template. Nothing is loaded before it is called."""

    _library: Library
    _kernel: manifest.Kernel

    @property
    def expression(self) -> str:
        """Its C++ name expression, ``ns::axpy<float>``."""
        return self._kernel.expression

    @property
    def signature(self) -> str:
        """Its declaration, ``ns::axpy<float>(int n, float a, const float* x, float* y)``."""
        return self._kernel.signature

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return self._kernel.parameters

    def __call__(
        self,
        /,
        *arguments: Any,
        grid: Dim,
        block: Dim,
        stream: Stream = 0,
        shared: SupportsIndex = 0,
        cooperative: bool = False,
        **named: Any,
    ) -> None:
        """Launch the kernel with `arguments`, which are given by position or by the parameters' names.

        `grid` counts blocks and `block` threads, each in up to three dimensions; `shared` is the dynamic
        shared memory of a block in bytes. `stream` is a handle, a stream of PyTorch or CuPy, or anything with
        ``__cuda_stream__``. `cooperative` blocks may wait for each other. The kernel runs in the current
        context, or on the first GPU where there is none.

        Raises :class:`ArgumentError` for what does not fit the signature or the GPU, and one of the
        :class:`~cuda_ext.errors.DriverError` for what is amiss with the driver, the GPU, the image or the
        launch.
        """
        try:
            packed = pack(self.parameters, arguments, named)
            launch = Launch.checked(grid, block, stream, shared, cooperative)
            self._launch(launch, packed)
        except ArgumentError as error:
            raise ArgumentError(f"{error}\n  in a launch of {self.signature}") from None

    def _launch(self, launch: Launch, packed: bytearray) -> None:
        with open_driver().current_device() as device:
            loaded = self._library.kernel(self._kernel, device)
            try:
                loaded.launch(launch, packed, [parameter.offset for parameter in self.parameters])
            except DriverCallError as error:
                note = (
                    "; the fault may be of earlier work on this GPU" if error.code in _OF_EARLIER_WORK else ""
                )
                raise LaunchError(f"{self.expression}: {error}; launched with {launch}{note}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        from cuda_ext.runtime.lookup import item

        # By name, since the module may have been built anew when this is loaded.
        return item, (self._library, "", self.expression)

    def __repr__(self) -> str:
        return f"<kernel {self.signature}>"
