"""``Kernel``: a kernel that a call launches."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, Unpack

from cuda_ext.errors import ArgumentError, CudaExtError, without_frames
from cuda_ext.facts import kernels
from cuda_ext.facts.kernels import Parameter
from cuda_ext.runtime.driver.driver import Device, open_driver
from cuda_ext.runtime.launch.fast_launch import BoundLaunch, FastLaunch, GridLaunch

# The careful launcher and its modules are imported only when needed.
if TYPE_CHECKING:
    from inspect import Signature

    from cuda_ext.facts.launches import Attributes
    from cuda_ext.runtime.arrays.device_memory import DeviceArray
    from cuda_ext.runtime.driver.loaded_kernel import LoadedKernel
    from cuda_ext.runtime.launch.configuration import Dim, GridFunction
    from cuda_ext.runtime.launch.launcher import Launcher
    from cuda_ext.runtime.launch.streams import Stream
    from cuda_ext.runtime.launch.torch_op import OperatorLaunch
    from cuda_ext.runtime.loaded_library import Library

# Larger than the number of threads in a block, and the bytes of shared memory, of any GPU.
_MANY = 1 << 30


class Documentation:
    """The docstrings of a class of kernels and of each kernel, which `describe` returns, for ``help``."""

    def __init__(self, text: str | None, describe: Callable[[Any], str]) -> None:
        self._text = text or ""
        self._describe = describe

    def __get__(self, kernel: object, owner: object) -> str:
        return self._text if kernel is None else self._describe(kernel)


class Kernel(FastLaunch):
    """A kernel, or one instantiation of a kernel template. Calling it launches it.

    Pass arguments by position or by the parameters' names. Keywords configure the launch: `grid` is the
    number of blocks and `block` the number of threads in a block, each in up to three dimensions. `grid` may
    be a function of a mapping with the arguments and constants by name. If the image fixes the rest of the
    configuration, as Triton's do, you can give the grid in brackets: ``kernel[grid](x)``. Instead of `grid`,
    `threads` is the total number of threads: the launch divides it into blocks of the size with the highest
    occupancy, or of the size `block`. `shared` is the dynamic shared memory of a block in bytes, `cluster`
    the number of blocks in a cluster. The blocks of a `cooperative` launch can synchronize. A `dependent`
    kernel may start before the previous kernel in the stream has ended (programmatic dependent launch).

    `stream` is a handle, a stream of PyTorch or CuPy, or any object with ``__cuda_stream__``. The default is
    the current stream of the library of the first array in device memory, or of the array `like`, which is
    not passed to the kernel. Without either, it is the default stream; if PyTorch or CuPy is in use, the
    launch then refuses arguments that may contain addresses. The kernel runs on the GPU that holds the
    arrays; without arrays, on the GPU of the stream, or the current one, or the first.

    A launch copies numpy arrays to the GPU, and then back, unless the parameter is a pointer to const. With
    :func:`cuda_ext.out` it only copies them back; :func:`cuda_ext.device_scope` keeps them on the GPU. The
    call returns when the results are in the arrays. With ``wait=False`` it returns at once, with an object:
    ``done`` is true when the kernel has finished, and ``wait()`` copies the results back. Without that call,
    they are discarded.

    Nothing is loaded before the first launch. It raises :class:`~cuda_ext.errors.ArgumentError` for arguments
    that do not fit the signature or the GPU, and a :class:`~cuda_ext.errors.DriverError` for failures of the
    driver, the GPU, the image or the launch.
    """

    __doc__ = Documentation(__doc__, lambda kernel: kernel._help())

    _library: Library
    _is_new: bool  # true before the first attempt to launch
    # Called with the error and the call that this kernel refuses: another one may be compiled on demand.
    _on_refusal: Callable[[ArgumentError, tuple[Any, ...], Mapping[str, Any]], Any] | None = None

    @classmethod
    def of(cls, library: Library, kernel: kernels.Kernel, candidates: tuple[Kernel, ...] = ()) -> Self:
        """Create the `kernel` of `library`; with variants, a launch chooses among `candidates`."""
        takes_structures = any(parameter.kind == "struct" for parameter in kernel.parameters)
        structures = library.structures.of(kernel) if takes_structures else ()
        created = cls(kernel, candidates, None, structures)
        created._library = library
        created._is_new = True
        return created

    @cached_property
    def _launcher(self) -> Launcher:
        from cuda_ext.runtime.launch.launcher import Launcher

        return Launcher(self._kernel, self._load, self._is_fixed, self._structures)

    @cached_property
    def _is_fixed(self) -> bool:
        """True if images fix its launches, except for the grid."""
        return self._library.fixes(self._kernel)

    def _load(self, device: Device) -> LoadedKernel:
        return self._library.kernel(self._kernel, device)

    @without_frames
    def __launch_carefully__(self, /, *arguments: Any, **keywords: Any) -> Any:
        if self._on_refusal is None:
            return self._launch_alone(arguments, keywords)
        try:
            return self._launch_alone(arguments, dict(keywords))
        except ArgumentError as error:
            refusal = error
        return self._on_refusal(refusal, arguments, keywords)

    def _launch_alone(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if self._is_new:
            self._is_new = False
            if self._prepare((*arguments, *keywords.values())):
                return self._launch_again(arguments, keywords)
        from cuda_ext.runtime.launch.configuration import OPTIONS, LaunchOptions
        from cuda_ext.runtime.launch.python_arguments import (
            flatten_tuples,
            name_arguments,
            option_names,
        )

        if self._is_fixed and (compiled := option_names(self._kernel) & keywords.keys()):
            kept = self._without_options(compiled, arguments, keywords)
            return self._launch_again(arguments, kept)
        if flat := flatten_tuples([self._kernel], arguments, keywords):
            return self._launch_again(*flat)
        if by_name := name_arguments([self._kernel], arguments, keywords):
            return self._launch_again((), by_name)
        if constants := ((self.constants.keys() | self._kernel.derived) & keywords.keys()) - OPTIONS:
            for name in constants:
                self._check_constant(name, keywords.pop(name))
            return self._launch_again(arguments, keywords)
        options, named = LaunchOptions.split(keywords)
        if callable(options.grid):
            grid = self._launcher.evaluate_grid(options.grid, arguments, named, options)
            return self._launch_again(arguments, {**keywords, "grid": grid})
        return self._launch(arguments, named, options)

    def _check_constant(self, name: str, value: object) -> None:
        """Check the `value` that a call gives for the constant `name`, and let C know it."""
        from cuda_ext.formats.spelling import plain_name
        from cuda_ext.runtime.launch.arguments import describe_value
        from cuda_ext.runtime.launch.python_arguments import is_meant

        if (text := self.constants.get(name)) is None:  # a launch derives it
            is_right, expected = isinstance(value, SupportsIndex), "takes a number"
        else:
            meanings = self._library.manifest.units[self._kernel.unit].meanings
            is_right = is_meant(value, text, plain_name(self.expression), meanings)
            expected = f"was compiled for {name}={text}"
        if not is_right:
            raise ArgumentError(
                f"{self.expression} {expected}, not {describe_value(value)}", where=f"argument {name!r}"
            )
        if isinstance(value, Hashable):
            self._learned[name].setdefault(value, value)

    def _launch_again(self, arguments: Sequence[Any], keywords: dict[str, Any]) -> Any:
        """Launch with arguments in another form, which C may take; the outer call handles a refusal."""
        if self._on_refusal is None:
            return self(*arguments, **keywords)
        return self._launch_alone(tuple(arguments), keywords)

    def _without_options(
        self, names: Set[str], arguments: Sequence[object], keywords: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Check the options of the front-end called `names`, and return the other `keywords`."""
        from cuda_ext.runtime.launch.configuration import LaunchOptions
        from cuda_ext.runtime.launch.python_arguments import check_options

        kept = {name: value for name, value in keywords.items() if name not in names}
        kernel = self._kernel
        if self._candidates and not names <= kernel.options.keys():  # their options differ
            options, named = LaunchOptions.split(kept)
            kernel, _ = self._launcher.find_kernel(arguments, named, options)
        check_options(kernel, {name: value for name, value in keywords.items() if name in names})
        return kept

    def _prepare(self, arguments: Iterable[object]) -> bool:
        """Load the kernel for a first launch in C, which saves the import of the careful launcher.

        Return True if that may suffice. The careful launcher reports all errors.
        """
        if not self._can_be_fast() or self._candidates:
            return False
        try:
            driver = open_driver()
            if driver.count > 1:
                return False
            device = driver.device(0)
            # Only the launcher compiles on demand, after it has checked the arguments.
            if not self._library.is_compiled(self._kernel, device):
                return False
            self._set_kernel(self._load(device), arguments)
        except CudaExtError:
            return False
        return True

    if TYPE_CHECKING:  # brackets are an error, to type checkers too

        def __call__(
            self,
            /,
            *arguments: Any,
            grid: Dim | GridFunction | None = None,
            block: Dim | None = None,
            threads: SupportsIndex | None = None,
            shared: SupportsIndex = 0,
            cluster: Dim | None = None,
            cooperative: bool = False,
            dependent: bool = False,
            wait: bool = True,
            stream: Stream | None = None,
            like: DeviceArray | None = None,
            **named: Any,
        ) -> Any: ...

    else:
        __iter__ = None  # otherwise Python iterates over the items 0, 1, 2, ...

        def __select_carefully__(self, launch: Any, /) -> Any:
            from cuda_ext.runtime.grid_brackets import advise_keywords, is_grid

            if isinstance(launch, str):
                raise ArgumentError(f"{self.expression} is not a template")
            if self._is_fixed and is_grid(launch):
                self.__takes_grid__ = True  # C takes the next one
                return GridLaunch(self, launch)
            raise ArgumentError(
                f"{self.expression} takes no launch configuration in brackets",
                remedy=advise_keywords(launch, self._is_fixed),
            )

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
        """Its parameters: names, C++ types, sizes and offsets in bytes."""
        return self._kernel.parameters

    @property
    def constants(self) -> Mapping[str, str]:
        """The constants that it was compiled for, as Python spells them; a call by name may give them."""
        return self._kernel.constants

    def attributes(self, device: SupportsIndex | None = None) -> Attributes:
        """Return the registers, memory and threads of the kernel on the GPU `device`, or on the current one.

        Raises a :class:`~cuda_ext.errors.DriverError` if the kernel cannot be loaded.
        """
        return self._load(_device(device)).attributes()

    def occupancy(
        self, block: SupportsIndex, *, shared: SupportsIndex = 0, device: SupportsIndex | None = None
    ) -> float:
        """Return the fraction of a multiprocessor's threads that are resident at once, between 0 and 1.

        `block` is the number of threads in a block, `shared` its dynamic shared memory in bytes.
        """
        from cuda_ext.runtime.launch.configuration import check_count

        threads = check_count("block", block, "a number of threads")
        memory = check_count("shared", shared, "a number of bytes")
        gpu = _device(device)
        loaded = self._load(gpu)
        if memory <= gpu.shared_memory_limit - loaded.static_shared:
            # Do as a launch does: the driver counts no blocks with more memory than is allowed.
            loaded.allow_shared(memory)
        # The driver takes the lower bits of larger numbers.
        blocks = loaded.blocks_per_multiprocessor(min(threads, _MANY), min(memory, _MANY))
        return blocks * threads / gpu.threads_per_multiprocessor

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
        like: DeviceArray | None = None,
    ) -> Callable[..., Any]:
        """Return a function that launches the kernel with this configuration and the arguments of its call.

        It is the fastest way to launch a kernel many times. Otherwise it does what calling the kernel does.
        Later changes of a list, or of a stream's handle, do not change the configuration. The stream, or the
        array `like`, is kept alive; each launch takes the current stream of the library of `like`.
        """
        from cuda_ext.runtime.launch.configuration import LaunchOptions

        options = LaunchOptions(
            grid, block, threads, shared, cluster, cooperative, dependent, wait, stream, like
        )
        return BoundLaunch.of(self, options)

    def torch_op(self, name: str, **launch: Unpack[OperatorLaunch]) -> Any:
        """Register the kernel as the PyTorch operator `name`, ``"namespace::operator"``, and return it.

        Its schema follows from the signature: the operator mutates arrays behind pointers that are not
        ``const``. It works under ``torch.compile``, has no gradient, and returns nothing. `launch` are the
        keywords of a launch; each may be a value, a function of all arguments, or the name of an integer
        parameter.

        >>> axpy = kernels.axpy["float"].torch_op("mylib::axpy", threads="n")  # doctest: +SKIP
        >>> axpy(x.numel(), 2.0, x, y)  # doctest: +SKIP

        Raises :class:`~cuda_ext.errors.ArgumentError` for parameters whose types PyTorch lacks.
        """
        from cuda_ext.runtime.launch.torch_op import register_kernel

        return register_kernel(self, self.bind, self.signature, self.parameters, name, launch)

    @property
    def __signature__(self) -> Signature:
        return _python_signature(self.parameters)

    def _help(self) -> str:
        from inspect import cleandoc  # a slow import

        from cuda_ext.runtime.notebook import read_doc_comment

        lines = [f"CUDA kernel {self.signature}"]
        if comment := read_doc_comment(self._library, self.expression):
            lines += ["", comment]
        lines += ["", *(f"    {p.type} {p.name}" for p in self.parameters)]
        if self._is_fixed:
            lines += ["", "Its image fixes the launch, but for `grid`, `stream`, `like` and `wait`."]
        return "\n".join([*lines, "", cleandoc(str(Kernel.__doc__))])

    def __reduce__(self) -> tuple[Any, ...]:
        # By name, since the module may be rebuilt before the pickle is loaded.
        return operator.getitem, (self._library.module, self.expression)

    def __repr__(self) -> str:
        return f"<kernel {self.signature}>"


def _device(ordinal: SupportsIndex | None) -> Device:
    driver = open_driver()
    return driver.current_device() if ordinal is None else driver.device(operator.index(ordinal))


def _python_signature(parameters: tuple[Parameter, ...]) -> Signature:
    """Make the signature for ``inspect``; parameters with names of Python or of launches are positional."""
    import inspect  # a slow import
    import keyword

    launch = list(inspect.signature(Kernel.bind).parameters.values())[1:]
    used = {p.name for p in launch}
    by_position, by_name = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    converted: list[inspect.Parameter] = []
    for number, parameter in enumerate(parameters):
        name = parameter.name
        if name.isidentifier() and not keyword.iskeyword(name) and name not in used:
            converted.append(inspect.Parameter(name, by_name, annotation=parameter.type))
        else:
            # Python requires the parameters before a positional one to be positional, too.
            name = f"arg{number}"
            converted = [p.replace(kind=by_position) for p in converted]
            converted.append(inspect.Parameter(name, by_position, annotation=parameter.type))
        used.add(name)
    return inspect.Signature([*converted, *launch], return_annotation=None)
