"""The types that the stubs of generated packages refer to."""

from __future__ import annotations

from cuda_ext.runtime.kernel import Kernel
from cuda_ext.runtime.launch.arguments import Pointer
from cuda_ext.runtime.launch.configuration import Dim
from cuda_ext.runtime.launch.streams import Stream
from cuda_ext.runtime.lookup import KernelTemplate, Namespace, TemplateArguments
from cuda_ext.runtime.symbol import Symbol
from cuda_ext.runtime.variants import Variants

__all__ = [
    "Dim",
    "Kernel",
    "KernelTemplate",
    "Namespace",
    "Pointer",
    "Stream",
    "Symbol",
    "TemplateArguments",
    "Variants",
]
