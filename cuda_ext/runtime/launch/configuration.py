"""How a kernel is launched, apart from its arguments."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

from cuda_ext.errors import ArgumentError

if TYPE_CHECKING:
    from cuda_ext.runtime.driver.loaded_kernel import LoadedKernel

__all__ = ["Dim", "Extents", "Launch", "LaunchOptions"]

Dim: TypeAlias = (
    SupportsIndex
    | tuple[SupportsIndex]
    | tuple[SupportsIndex, SupportsIndex]
    | tuple[SupportsIndex, SupportsIndex, SupportsIndex]
)
Extents: TypeAlias = tuple[int, int, int]

# What every GPU with clusters takes; more may need leave.
_PORTABLE_CLUSTER = 8


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """What a call says about its launch, not checked yet; see :meth:`Kernel.__call__`."""

    grid: Dim | None = None
    block: Dim | None = None
    threads: SupportsIndex | None = None
    shared: SupportsIndex = 0
    cluster: Dim | None = None
    cooperative: bool = False
    dependent: bool = False
    wait: bool = True


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch configuration that a kernel can have. ``shared`` counts bytes, ``cluster`` blocks."""

    grid: Extents
    block: Extents
    shared: int = 0
    cluster: Extents | None = None
    cooperative: bool = False
    dependent: bool = False

    @classmethod
    def checked(cls, options: LaunchOptions, kernel: LoadedKernel) -> Launch:
        """Raises :class:`ArgumentError` for what `kernel` cannot do on its GPU."""
        device = kernel.device
        shared = _whole("shared", options.shared, "a number of bytes")
        kernel.allow_shared(shared)
        if options.threads is not None:
            if options.grid is not None:
                raise ArgumentError("threads: counts all threads of the grid; give either that or grid")
            grid, block = _spread(_whole("threads", options.threads, "a number of threads"), options, kernel)
        elif options.grid is None or options.block is None:
            raise ArgumentError("expected grid and block, or threads")
        else:
            grid = extents("grid", options.grid, device.largest_grid)
            block = extents("block", options.block, device.largest_block)
        if (count := math.prod(block)) > kernel.most_threads:
            why = "" if kernel.most_threads == device.most_threads else ", as the kernel was compiled"
            raise ArgumentError(
                f"block: expected at most {kernel.most_threads} threads{why}, found {count}: {block}"
            )
        cluster = None if options.cluster is None else _cluster(options.cluster, grid, kernel)
        if options.cooperative:
            _check_cooperative(grid, math.prod(block), shared, kernel)
        return cls(grid, block, shared, cluster, bool(options.cooperative), bool(options.dependent))

    @property
    def plain(self) -> bool:
        """Whether ``cuLaunchKernel`` can do it."""
        return self.cluster is None and not self.cooperative and not self.dependent

    def config(self, api: Any, stream: int) -> Any:
        """The ``CUlaunchConfig`` for `stream`."""
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = self.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = self.block
        config.sharedMemBytes = self.shared
        config.hStream = stream
        config.attrs = list(self._attributes(api))
        config.numAttrs = len(config.attrs)
        return config

    def _attributes(self, api: Any) -> list[Any]:
        attributes = []
        names = api.CUlaunchAttributeID
        for wanted, name, field in (
            (self.cooperative, names.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, "cooperative"),
            (
                self.dependent,
                names.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                "programmaticStreamSerializationAllowed",
            ),
        ):
            if wanted:
                attribute = api.CUlaunchAttribute()
                attribute.id = name
                setattr(attribute.value, field, 1)
                attributes.append(attribute)
        if self.cluster:
            attribute = api.CUlaunchAttribute()
            attribute.id = names.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            dimension = attribute.value.clusterDim
            dimension.x, dimension.y, dimension.z = self.cluster
            attributes.append(attribute)
        return attributes

    def __str__(self) -> str:
        parts = [f"grid {self.grid}", f"block {self.block}"]
        parts += [f"{self.shared} bytes of dynamic shared memory"] if self.shared else []
        parts += [f"clusters of {self.cluster}"] if self.cluster else []
        parts += ["cooperative"] if self.cooperative else []
        parts += ["dependent"] if self.dependent else []
        return ", ".join(parts)


def extents(name: str, value: Dim, largest: Extents) -> Extents:
    """`value` filled up with ones. Raises :class:`ArgumentError` for more than `largest`."""
    given = value if isinstance(value, (tuple, list)) else (value,)
    try:
        found = [operator.index(extent) for extent in given]
    except TypeError:
        found = []
    if not 1 <= len(found) <= 3:
        raise ArgumentError(f"{name}: expected an int or up to three, found {value!r}")
    x, y, z = (*found, 1, 1)[:3]
    if not all(1 <= extent <= limit for extent, limit in zip((x, y, z), largest, strict=True)):
        raise ArgumentError(f"{name}: expected at least 1 and at most {largest}, found {value!r}")
    return x, y, z


def _whole(name: str, value: SupportsIndex, expected: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise ArgumentError(f"{name}: expected {expected}, found {value!r}")
    return number


def _spread(threads: int, options: LaunchOptions, kernel: LoadedKernel) -> tuple[Extents, Extents]:
    """A grid of at least `threads` threads, in blocks of the size that occupies the GPU best."""
    if options.block is None:
        block = (kernel.best_block(operator.index(options.shared)), 1, 1)
    else:
        block = extents("block", options.block, kernel.device.largest_block)
    grid = max(1, -(-threads // math.prod(block)))
    if grid > (most := kernel.device.largest_grid[0]):
        raise ArgumentError(
            f"threads: expected at most {most * math.prod(block)} in blocks of {math.prod(block)}, "
            f"found {threads}"
        )
    return (grid, 1, 1), block


def _cluster(value: Dim, grid: Extents, kernel: LoadedKernel) -> Extents:
    device = kernel.device
    if not device.takes_clusters:
        raise ArgumentError(f"cluster: this GPU, {device}, has no clusters; they came with sm_90")
    cluster = extents("cluster", value, grid)
    if any(blocks % size for blocks, size in zip(grid, cluster, strict=True)):
        raise ArgumentError(f"cluster: expected divisors of the grid {grid}, found {value!r}")
    size = math.prod(cluster)
    if size > _PORTABLE_CLUSTER:
        kernel.allow_large_clusters()
    if size > (most := kernel.most_blocks_of_a_cluster):
        raise ArgumentError(
            f"cluster: expected at most {most} blocks on this GPU, {device}, found {size}: {cluster}"
        )
    return cluster


def _check_cooperative(grid: Extents, threads: int, shared: int, kernel: LoadedKernel) -> None:
    device = kernel.device
    if not device.takes_cooperative_launches:
        raise ArgumentError(f"cooperative: this GPU, {device}, cannot launch cooperatively")
    blocks = kernel.blocks_at_once(threads, shared)
    if math.prod(grid) > blocks:
        raise ArgumentError(
            f"grid: expected at most {blocks} blocks, since cooperative ones all run at once, found "
            f"{math.prod(grid)}; that is {blocks // device.multiprocessors} of {threads} threads on each of "
            f"{device.multiprocessors} multiprocessors"
        )
