"""A kernel, ready to be called."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable
from typing import Any, SupportsIndex

from cuda_ext import manifest
from cuda_ext.manifest import Parameter
from cuda_ext.runtime import debugging, specialised
from cuda_ext.runtime.driver import Device, open_driver
from cuda_ext.runtime.launch import Dim, LaunchOptions
from cuda_ext.runtime.launcher import Launcher
from cuda_ext.runtime.library import Library
from cuda_ext.runtime.loaded_kernel import Attributes
from cuda_ext.runtime.streams import Stream

__all__ = ["Kernel"]


class Kernel:
    """A kernel, or one instantiation of a kernel template. Nothing is loaded before it is called."""

    __slots__ = ("_launcher",)
    _launcher: Launcher

    @staticmethod
    def of(library: Library, kernel: manifest.Kernel) -> Kernel:
        """The kernel of a class of its own, so that calling it is calling the function made for it."""
        made: Kernel = type("Kernel", (Kernel,), {"__slots__": (), "__doc__": _help(kernel)})()
        made._launcher = Launcher(library, kernel)
        return made

    @property
    def expression(self) -> str:
        """Its C++ name expression, ``ns::axpy<float>``."""
        return self._launcher.kernel.expression

    @property
    def signature(self) -> str:
        """Its declaration, ``ns::axpy<float>(int n, float a, const float* x, float* y)``."""
        return self._launcher.kernel.signature

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its parameters: names, C++ types, sizes and offsets in bytes."""
        return self._launcher.kernel.parameters

    def attributes(self, device: int | None = None) -> Attributes:
        """What it takes on the GPU number `device`, or else on the current one: registers, memory, threads.

        Raises a :class:`~cuda_ext.errors.DriverError` where it cannot be loaded.
        """
        return self._launcher.loaded(_device(device)).attributes

    def occupancy(self, block: int, *, shared: int = 0, device: int | None = None) -> float:
        """The share of a multiprocessor's threads that run at once, between 0 and 1.

        `block` counts the threads of a block, `shared` the bytes of its dynamic shared memory.
        """
        place = _device(device)
        blocks = self._launcher.loaded(place).blocks_per_multiprocessor(block, shared)
        return blocks * block / place.threads_per_multiprocessor

    def __call__(
        self,
        /,
        *arguments: Any,
        grid: Dim | None = None,
        block: Dim | None = None,
        threads: SupportsIndex | None = None,
        shared: SupportsIndex = 0,
        cluster: Dim | None = None,
        cooperative: bool = False,
        dependent: bool = False,
        stream: Stream | None = None,
        **named: Any,
    ) -> None:
        """Launch the kernel with `arguments`, which are given by position or by the parameters' names.

        `grid` counts blocks and `block` threads, each in up to three dimensions. `threads` counts all threads
        instead: the blocks are then of the size that occupies the GPU best, unless `block` is given, and
        there are enough of them. `shared` is the dynamic shared memory of a block in bytes, `cluster` the
        blocks of a cluster. `cooperative` blocks may wait for each other. A `dependent` kernel may begin
        before the one ahead of it in the stream has ended (programmatic dependent launch).

        `stream` is a handle, a stream of PyTorch or CuPy, or anything with ``__cuda_stream__``. By default it
        is the current stream of the library that the first array in device memory belongs to, and the kernel
        runs on the GPU that holds the arrays. Without arrays that is the GPU of the stream, or the current
        one, or the first.

        Raises :class:`ArgumentError` for what does not fit the signature or the GPU, and one of the
        :class:`~cuda_ext.errors.DriverError` for what is amiss with the driver, the GPU, the image or the
        launch.
        """
        options = LaunchOptions(grid, block, threads, shared, cluster, cooperative, dependent)
        self._launcher.launch(arguments, named, options, stream)
        if not debugging.enabled():
            self._specialise()

    def bind(
        self,
        *,
        grid: Dim | None = None,
        block: Dim | None = None,
        threads: SupportsIndex | None = None,
        shared: SupportsIndex = 0,
        cluster: Dim | None = None,
        cooperative: bool = False,
        dependent: bool = False,
        stream: Stream | None = None,
    ) -> Callable[..., None]:
        """A function that launches the kernel in this way with the arguments that it is called with.

        It is the fastest way to launch a kernel many times. Everything else is as when calling the kernel.
        """
        options = LaunchOptions(grid, block, threads, shared, cluster, cooperative, dependent)
        if debugging.enabled():
            launcher = self._launcher
            return lambda *arguments, **named: launcher.launch(arguments, named, options, stream)
        return specialised.bound(self._launcher, options, stream)

    def _specialise(self) -> None:
        call: Any = specialised.call(self._launcher, self._specialise)
        type(self).__call__ = call  # type: ignore[method-assign]

    @property
    def __signature__(self) -> inspect.Signature:
        return _python_signature(self.parameters)

    def __reduce__(self) -> tuple[Any, ...]:
        from cuda_ext.runtime.lookup import item

        # By name, since the module may have been built anew when this is loaded.
        return item, (self._launcher.library, "", self.expression)

    def __repr__(self) -> str:
        return f"<kernel {self.signature}>"


def _device(ordinal: int | None) -> Device:
    driver = open_driver()
    return driver.current_device() if ordinal is None else driver.device(ordinal)


def _help(kernel: manifest.Kernel) -> str:
    lines = [f"CUDA kernel {kernel.signature}", "", *(f"    {p.type} {p.name}" for p in kernel.parameters)]
    return "\n".join([*lines, "", *inspect.cleandoc(Kernel.__call__.__doc__ or "").splitlines()])


def _python_signature(parameters: tuple[Parameter, ...]) -> inspect.Signature:
    """For ``inspect``. What has a name that Python or a launch takes for itself is given by position."""
    own = inspect.signature(Kernel.__call__).parameters
    launch = [p for p in own.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    taken = {p.name for p in launch}
    by_position, by_name = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    given: list[inspect.Parameter] = []
    for number, parameter in enumerate(parameters):
        name = parameter.name
        if name.isidentifier() and not keyword.iskeyword(name) and name not in taken:
            given.append(inspect.Parameter(name, by_name, annotation=parameter.type))
        else:
            # Whatever stands before it is given by position, too.
            name = f"arg{number}"
            given = [p.replace(kind=by_position) for p in given]
            given.append(inspect.Parameter(name, by_position, annotation=parameter.type))
        taken.add(name)
    return inspect.Signature([*given, *launch], return_annotation=None)
