"""The types that the stubs of generated packages refer to."""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Protocol,
    SupportsComplex,
    SupportsFloat,
    SupportsIndex,
    TypeAlias,
    TypedDict,
)

from cuda_ext.runtime.arrays.device_memory import DeviceArray
from cuda_ext.runtime.arrays.host_arrays import HasArrayInterface, Out
from cuda_ext.runtime.kernel import Kernel
from cuda_ext.runtime.launch.configuration import Dim, GridFunction
from cuda_ext.runtime.launch.fast_launch import GridLaunch
from cuda_ext.runtime.launch.streams import Stream
from cuda_ext.runtime.lookup import KernelTemplate, Namespace, TemplateArguments
from cuda_ext.runtime.module import KernelModule
from cuda_ext.runtime.structure_types import StructureObject
from cuda_ext.runtime.symbol import Symbol
from cuda_ext.runtime.variants import Variants

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "Complex",
    "ConstPointer",
    "FixedLaunch",
    "Grid",
    "GridKeywords",
    "GridLaunch",
    "Half",
    "Kernel",
    "KernelModule",
    "KernelTemplate",
    "Launch",
    "Namespace",
    "Pointer",
    "Structure",
    "StructureObject",
    "Symbol",
    "TemplateArguments",
    "TensorMap",
    "Variants",
    "Vector",
]


class _CUtensorMap(Protocol):
    """The structure of cuda-bindings."""

    def getPtr(self) -> int: ...  # noqa: N802 - its name there


class _TensorMapDescriptor(Protocol):
    """A tensor map of cuda.core."""

    def replace_address(self, tensor: Any, /) -> None: ...


# Types of arguments. A launch checks which of their values fit.
ConstPointer: TypeAlias = SupportsIndex | DeviceArray | HasArrayInterface | None
Pointer: TypeAlias = ConstPointer | Out
Structure: TypeAlias = "Buffer"
Half: TypeAlias = "SupportsFloat | Buffer"
Complex: TypeAlias = "complex | SupportsComplex | SupportsFloat | Buffer"
Vector: TypeAlias = "tuple[Any, ...] | list[Any] | Buffer"
Grid: TypeAlias = Dim | GridFunction
TensorMap: TypeAlias = "_CUtensorMap | _TensorMapDescriptor | Buffer"


class Launch(TypedDict, total=False):
    """The keywords of a launch: ``grid`` and ``block``, or ``threads``."""

    grid: Dim | GridFunction
    block: Dim | None
    threads: SupportsIndex
    shared: SupportsIndex
    cluster: Dim | None
    cooperative: bool
    dependent: bool
    stream: Stream | None
    like: DeviceArray | None
    wait: bool


class GridKeywords(TypedDict, total=False):
    """The keywords of a launch whose image and grid are fixed: options of Triton repeat what was compiled."""

    stream: Stream | None
    like: DeviceArray | None
    wait: bool
    num_warps: SupportsIndex
    num_stages: SupportsIndex
    num_ctas: SupportsIndex
    maxnreg: SupportsIndex | None


class FixedLaunch(GridKeywords):
    """The keywords of a launch whose image fixes everything else."""

    grid: Dim | GridFunction
