"""A kernel, ready to be called."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

from cuda_ext import manifest
from cuda_ext.manifest import Parameter
from cuda_ext.runtime.driver.driver import Device, open_driver
from cuda_ext.runtime.driver.loaded_kernel import Attributes
from cuda_ext.runtime.launch import debugging, specialised
from cuda_ext.runtime.launch.configuration import Dim, LaunchOptions
from cuda_ext.runtime.launch.launcher import Launcher
from cuda_ext.runtime.launch.streams import Stream

__all__ = ["Kernel"]


class Kernel(partial[Any]):
    """A kernel, or one instantiation of a kernel template. Calling it launches it.

    Arguments are given by position or by the parameters' names. How to launch is said by keywords: `grid`
    counts blocks and `block` threads, each in up to three dimensions. `threads` counts all threads instead:
    the blocks are then of the size that occupies the GPU best, unless `block` is given, and there are enough
    of them. `shared` is the dynamic shared memory of a block in bytes, `cluster` the blocks of a cluster.
    `cooperative` blocks may wait for each other. A `dependent` kernel may begin before the one ahead of it in
    the stream has ended (programmatic dependent launch).

    `stream` is a handle, a stream of PyTorch or CuPy, or anything with ``__cuda_stream__``. By default it is
    the current stream of the library that the first array in device memory belongs to, and the kernel runs on
    the GPU that holds the arrays. Without arrays that is the GPU of the stream, or the current one, or the
    first.

    numpy arrays are copied to the GPU for the launch, and back after it where the parameter is no pointer to
    const (:func:`cuda_ext.out` has them copied back only; :func:`cuda_ext.device_scope` keeps them there).
    The call then returns when what the kernel wrote is in them. With ``wait=False`` it does not wait,
    whatever the arguments, and returns an object whose ``done`` tells whether the kernel is over, and whose
    ``wait()`` brings the results; without that call they are dropped.

    Nothing is loaded before the first launch. It raises :class:`~cuda_ext.errors.ArgumentError` for what does
    not fit the signature or the GPU, and a :class:`~cuda_ext.errors.DriverError` for what is amiss with the
    driver, the GPU, the image or the launch.
    """

    # It is a partial application of the function that launches it, since Python passes arguments on to that
    # faster than to a __call__.

    _launcher: Launcher
    # All that it ever was an application of: another thread may be about to call one that is superseded.
    _functions: list[Callable[..., Any]]

    @classmethod
    def of(cls, launcher: Launcher) -> Self:
        """What `launcher` launches, of a class of its own, so that ``help`` tells of this kernel."""
        made: Self

        def launch(*arguments: Any, **keywords: Any) -> Any:
            result = launcher.call(arguments, keywords)
            if not debugging.enabled():
                made._specialise()
            return result

        made = type(cls.__name__, (cls,), {"__doc__": _help(launcher.kernel)})(launch)
        made._launcher = launcher
        made._functions = [launch]
        return made

    if TYPE_CHECKING:

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
            wait: bool = True,
            stream: Stream | None = None,
            **named: Any,
        ) -> Any: ...

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
        wait: bool = True,
        stream: Stream | None = None,
    ) -> Callable[..., Any]:
        """A function that launches the kernel in this way with the arguments that it is called with.

        It is the fastest way to launch a kernel many times. Everything else is as when calling the kernel.
        """
        options = LaunchOptions(grid, block, threads, shared, cluster, cooperative, dependent, wait)
        return specialised.bound(self._launcher, options, stream)

    def torch_op(self, name: str, **launch: Any) -> Any:
        """Register the kernel as PyTorch's operator `name`, ``"namespace::operator"``, and return that.

        Its schema follows from the signature: what a pointer that is not ``const`` refers to is mutated. The
        operator works under ``torch.compile``, has no gradient, and returns nothing. `launch` are the
        keywords of a launch; each may be a function of all arguments instead of a value, or the name of an
        integer parameter.

        >>> axpy = kernels.axpy["float"].torch_op("mylib::axpy", threads="n")  # doctest: +SKIP
        >>> axpy(x.numel(), 2.0, x, y)  # doctest: +SKIP

        Raises :class:`~cuda_ext.errors.ArgumentError` for parameters that PyTorch has no type for.
        """
        from cuda_ext.runtime.torch_op import torch_op

        return torch_op(self, self.signature, self.parameters, name, launch)

    def _specialise(self) -> None:
        call = specialised.call(self._launcher, self._specialise)
        self._functions.append(call)
        self.__setstate__((call, (), {}, vars(self)))  # type: ignore[attr-defined]

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
    return "\n".join([*lines, "", inspect.cleandoc(Kernel.__doc__ or "")])


def _python_signature(parameters: tuple[Parameter, ...]) -> inspect.Signature:
    """For ``inspect``. What has a name that Python or a launch takes for itself is given by position."""
    launch = list(inspect.signature(Kernel.bind).parameters.values())[1:]
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
