"""The launch configuration of a kernel: grid, block, shared memory, cluster, and launch attributes."""

from __future__ import annotations

import math
import operator
import struct
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, TypeAlias

from cuda_ext.errors import ArgumentError
from cuda_ext.runtime.driver import cuda_h
from cuda_ext.runtime.driver.loaded_kernel import PORTABLE_CLUSTER
from cuda_ext.runtime.launch.streams import GivenStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cuda_ext.facts.launches import FixedLaunch
    from cuda_ext.runtime.arrays.device_memory import DeviceArray, DeviceMemory
    from cuda_ext.runtime.driver.loaded_kernel import LoadedKernel
    from cuda_ext.runtime.launch.streams import Stream

Dim: TypeAlias = (
    SupportsIndex
    | tuple[SupportsIndex]
    | tuple[SupportsIndex, SupportsIndex]
    | tuple[SupportsIndex, SupportsIndex, SupportsIndex]
)
GridFunction: TypeAlias = "Callable[[Mapping[str, Any]], Dim]"
Extents: TypeAlias = tuple[int, int, int]


class LaunchOptions(NamedTuple):
    """The unchecked launch keywords of a call; see :class:`~cuda_ext.runtime.kernel.Kernel`."""

    grid: Dim | None = None
    block: Dim | None = None
    threads: SupportsIndex | None = None
    shared: SupportsIndex = 0
    cluster: Dim | None = None
    cooperative: bool = False
    dependent: bool = False
    wait: bool = True
    stream: Stream | GivenStream | None = None
    like: DeviceArray | None = None

    @classmethod
    def split(cls, keywords: Mapping[str, Any]) -> tuple[LaunchOptions, dict[str, Any]]:
        """Divide the `keywords` of a call into options and arguments."""
        options = {name: value for name, value in keywords.items() if name in OPTIONS}
        return cls(**options), {name: value for name, value in keywords.items() if name not in OPTIONS}

    def freeze(self) -> LaunchOptions:
        """Return the options with tuples for lists, and the handle of a stream: both may change later.

        Raises :class:`ArgumentError` for a `stream` that is not a stream, or a `like` that is not an array.
        """
        stream, _ = self.read_place()
        options: list[Any] = [tuple(value) if isinstance(value, list) else value for value in self]
        return LaunchOptions(*options)._replace(stream=stream)

    @property
    def place(self) -> dict[str, Any]:
        """Return the stream and the GPU of frozen options, for launches in C."""
        if isinstance(self.stream, GivenStream):
            device = -1 if self.stream.device is None else self.stream.device
            return {"stream": self.stream.handle, "device": device}
        return {} if self.like is None else {"like": self.like}

    def read_place(self) -> tuple[GivenStream | None, DeviceMemory | None]:
        """Read the stream and the GPU from `stream` or the array `like`. Raises as :meth:`freeze`."""
        if self.like is None:
            return (None if self.stream is None else GivenStream.of(self.stream)), None
        if self.stream is not None:
            raise ArgumentError("also decides the stream", where="like", remedy="give either like or stream")
        from cuda_ext.runtime.arrays.device_memory import device_memory  # a slow import

        try:
            memory = device_memory(self.like)
        except ArgumentError as error:
            error.where = "like"
            raise
        if memory is None:
            raise ArgumentError(
                f"expected an array in device memory, found {type(self.like).__qualname__}", where="like"
            )
        return None, memory


# The keywords of a call that are not names of parameters.
OPTIONS = frozenset(LaunchOptions._fields)
# The limits of all GPUs: "Technical Specifications per Compute Capability" in the CUDA Programming Guide.
_LARGEST_GRID, _LARGEST_BLOCK, _MOST_THREADS = (2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024
# The launch keywords of a kernel whose image fixes everything else.
_ALWAYS_FREE = {"grid", "wait", "stream", "like"}


class LaunchConfiguration(NamedTuple):
    """A valid launch configuration. ``shared`` is in bytes, ``cluster`` in blocks.

    ``scratch`` is the memory that the launch allocates for each block, in bytes.
    """

    grid: Extents
    block: Extents
    shared: int = 0
    cluster: Extents | None = None
    cooperative: bool = False
    dependent: bool = False
    scratch: int = 0

    @classmethod
    def check(
        cls, options: LaunchOptions, kernel: LoadedKernel, may_be_empty: bool = False
    ) -> LaunchConfiguration:
        """Check `options`. Raises :class:`ArgumentError` for what `kernel` does not support on its GPU.

        The grid of a fixed launch `may_be_empty`.
        """
        if kernel.fixed:
            return cls._check_grid(options, kernel, kernel.fixed, may_be_empty)
        device = kernel.device
        shared = check_count("shared", options.shared, "a number of bytes")
        kernel.allow_shared(shared)
        threads = _check_threads(options)
        if options.threads is not None:
            grid, block = _divide(threads, options, kernel)
        elif options.grid is None or options.block is None:
            raise missing_grid(is_fixed=False)
        else:
            grid = check_extents("grid", options.grid, device.largest_grid)
            block = check_extents("block", options.block, device.largest_block)
        reason = "" if kernel.most_threads == device.most_threads else ", as the kernel was compiled"
        _check_block(block, kernel.most_threads, reason)
        cluster = None if options.cluster is None else _check_cluster(options.cluster, grid, kernel)
        if options.cooperative:
            _check_cooperative(grid, math.prod(block), shared, kernel)
        return cls(grid, block, shared, cluster, bool(options.cooperative), bool(options.dependent))

    @classmethod
    def fixed(cls, fixed: FixedLaunch) -> LaunchConfiguration:
        """Make the configuration that an image fixes. Its grid is in blocks per element of a call's grid."""
        x, y, z = (*fixed.block, 1, 1)[:3]
        i, j, k = (*fixed.cluster, 1, 1, 1)[:3]
        cluster = (i, j, k) if fixed.cluster else None
        return cls(
            (i, j, k),
            (x, y, z),
            fixed.shared,
            cluster,
            fixed.cooperative,
            fixed.dependent,
            fixed.scratch,
        )

    @classmethod
    def _check_grid(
        cls, options: LaunchOptions, kernel: LoadedKernel, fixed: FixedLaunch, may_be_empty: bool
    ) -> LaunchConfiguration:
        """Check the `options` for a `kernel` whose image fixes everything except the grid."""
        for name, value in options._asdict().items():
            if name not in _ALWAYS_FREE and value != LaunchOptions._field_defaults[name]:
                raise ArgumentError("the image of this kernel fixes it", where=name, remedy="give grid alone")
        if options.grid is None:
            raise missing_grid(is_fixed=True)
        configuration = cls.fixed(fixed)
        device = kernel.device
        x, y, z = (most // n for most, n in zip(device.largest_grid, configuration.grid, strict=True))
        grid = check_extents("grid", options.grid, (x, y, z), 0 if may_be_empty else 1)
        x, y, z = (size * n for size, n in zip(grid, configuration.grid, strict=True))
        if fixed.scratch * x * y * z >= 1 << 63:
            raise ArgumentError(
                f"expected fewer blocks, each with {fixed.scratch} bytes of memory, found {options.grid!r}",
                where="grid",
            )
        if configuration.cluster and x * y * z:
            _check_cluster(configuration.cluster, (x, y, z), kernel)
        if fixed.cooperative:
            _check_cooperative((x, y, z), math.prod(configuration.block), fixed.shared, kernel)
        return configuration._replace(grid=(x, y, z))

    @property
    def attributes(self) -> tuple[tuple[int, ...], ...]:
        """The launch attributes: the number of each, and its value, which is one or three numbers."""
        attributes: list[tuple[int, ...]] = []
        if self.cooperative:
            attributes.append((cuda_h.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 1))
        if self.dependent:
            attributes.append((cuda_h.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 1))
        if self.cluster:
            attributes.append((cuda_h.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, *self.cluster))
        return tuple(attributes)

    def pack(self, stream: int, attributes: int) -> bytes:
        """Pack the ``CUlaunchConfig`` for `stream`, with launch attributes at the address `attributes`."""
        shape = *self.grid, *self.block, self.shared
        return struct.pack(cuda_h.LAUNCH_CONFIG, *shape, stream, attributes, len(self.attributes))

    def pack_attributes(self) -> bytes:
        """Pack the array of ``CUlaunchAttribute``."""
        padded = ((*attribute, 0, 0)[:4] for attribute in self.attributes)
        return b"".join(struct.pack(cuda_h.LAUNCH_ATTRIBUTE, *each) for each in padded)

    def __str__(self) -> str:
        parts = [f"grid {self.grid}", f"block {self.block}"]
        parts += [f"{self.shared} bytes of dynamic shared memory"] if self.shared else []
        parts += [f"clusters of {self.cluster}"] if self.cluster else []
        parts += ["cooperative"] if self.cooperative else []
        parts += ["dependent"] if self.dependent else []
        return ", ".join(parts)


def check_for_any_gpu(options: LaunchOptions, is_fixed: bool) -> None:
    """Check `options` where there is no GPU. Raises :class:`ArgumentError` for what no GPU supports.

    If the launch `is_fixed`, the image has all but the grid.
    """
    if options.grid is None and (is_fixed or options.threads is None):
        raise missing_grid(is_fixed)
    if not is_fixed:
        check_count("shared", options.shared, "a number of bytes")
        if options.threads is None and options.block is None:
            raise missing_grid(is_fixed)
        _check_threads(options)
    if options.grid is not None and not callable(options.grid):
        check_extents("grid", options.grid, _LARGEST_GRID)
    if options.block is not None:
        _check_block(check_extents("block", options.block, _LARGEST_BLOCK), _MOST_THREADS)


def _check_threads(options: LaunchOptions) -> int:
    """Return the number of threads, 0 if the grid is given. Raises :class:`ArgumentError`."""
    if options.threads is None:
        return 0
    if options.grid is not None:
        raise ArgumentError(
            "counts all threads of the grid", where="threads", remedy="give either threads or grid"
        )
    return check_count("threads", options.threads, "a number of threads")


def _check_block(block: Extents, most: int, reason: str = "") -> None:
    if (count := math.prod(block)) > most:
        raise ArgumentError(f"expected at most {most} threads{reason}, found {count}: {block}", where="block")


def missing_grid(is_fixed: bool) -> ArgumentError:
    """Return the error of a launch without a grid; if it `is_fixed`, the image fixes everything else."""
    if is_fixed:
        return ArgumentError("expected grid", remedy="the image fixes the rest of the configuration")
    remedy = "write grid=-(-n // 256), block=256, or threads=n"
    return ArgumentError("expected grid and block, or threads", remedy=remedy)


def check_extents(name: str, value: Dim, largest: Extents, least: int = 1) -> Extents:
    """Return `value` extended to three dimensions. Raises :class:`ArgumentError` if it exceeds `largest`."""
    try:
        extents = [operator.index(e) for e in (value if isinstance(value, (tuple, list)) else (value,))]
    except TypeError:
        extents = []
    if not 1 <= len(extents) <= 3:
        remedy = "round up with -(-n // size)" if isinstance(value, float) else ""
        raise ArgumentError(f"expected an int or up to three, found {value!r}", where=name, remedy=remedy)
    x, y, z = (*extents, 1, 1)[:3]
    if not all(least <= extent <= limit for extent, limit in zip((x, y, z), largest, strict=True)):
        raise ArgumentError(f"expected at least {least} and at most {largest}, found {value!r}", where=name)
    return x, y, z


def check_count(name: str, value: SupportsIndex, expected: str) -> int:
    """Return `value` as an int. Raises :class:`ArgumentError` if it is negative or not an integer."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise ArgumentError(f"expected {expected}, found {value!r}", where=name)
    return number


def _divide(threads: int, options: LaunchOptions, kernel: LoadedKernel) -> tuple[Extents, Extents]:
    """Divide at least `threads` threads into a grid and blocks, by default of the best occupancy."""
    if options.block is None:
        block = (kernel.best_block(operator.index(options.shared)), 1, 1)
    else:
        block = check_extents("block", options.block, kernel.device.largest_block)
    grid = max(1, -(-threads // math.prod(block)))
    if grid > (most := kernel.device.largest_grid[0]):
        raise ArgumentError(
            f"expected at most {most * math.prod(block)} in blocks of {math.prod(block)}, found {threads}",
            where="threads",
        )
    return (grid, 1, 1), block


def _check_cluster(value: Dim, grid: Extents, kernel: LoadedKernel) -> Extents:
    device = kernel.device
    if not device.supports_clusters:
        raise ArgumentError(
            f"this GPU, {device}, has no clusters", where="cluster", remedy="clusters require sm_90 or newer"
        )
    cluster = check_extents("cluster", value, grid)
    if any(blocks % size for blocks, size in zip(grid, cluster, strict=True)):
        raise ArgumentError(f"expected divisors of the grid {grid}, found {value!r}", where="cluster")
    size = math.prod(cluster)
    if size > PORTABLE_CLUSTER:
        kernel.allow_large_clusters()
    if size > (most := kernel.most_blocks_of_a_cluster):
        raise ArgumentError(
            f"expected at most {most} blocks on this GPU, {device}, found {size}: {cluster}", where="cluster"
        )
    return cluster


def _check_cooperative(grid: Extents, threads: int, shared: int, kernel: LoadedKernel) -> None:
    device = kernel.device
    if not device.supports_cooperative_launches:
        raise ArgumentError(f"this GPU, {device}, cannot launch cooperatively", where="cooperative")
    resident = kernel.blocks_per_multiprocessor(threads, shared)
    blocks = resident * device.multiprocessors
    if math.prod(grid) > blocks:
        raise ArgumentError(
            f"expected at most {blocks} blocks, since all cooperative blocks run at once, found "
            f"{math.prod(grid)}",
            where="grid",
            remedy=f"that is {resident} blocks of {threads} threads on each of "
            f"{device.multiprocessors} multiprocessors",
        )
