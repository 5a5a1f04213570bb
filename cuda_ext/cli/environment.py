"""The variables of the environment that are heeded, and what they do."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["VARIABLES", "Variable"]


@dataclass(frozen=True, slots=True)
class Variable:
    """``does`` is what setting it does; ``is_ours`` tells those that nobody else reads."""

    name: str
    does: str

    @property
    def is_ours(self) -> bool:
        return self.name.startswith("CUDA_EXT_")


VARIABLES = (
    Variable("CUDA_EXT_CACHE", "the cache: a directory, or the URL of one that machines share"),
    Variable("CUDA_EXT_CACHE_SIZE", "the bound of the cache, such as 5G; 0 turns it off"),
    Variable("CUDA_EXT_JIT", "0 turns compilation on demand off"),
    Variable("CUDA_EXT_DEBUG", "1 looks at every launch before and after it, which is slow"),
    Variable("CUDA_EXT_REPORT", "where a build writes an HTML page about itself"),
    Variable("CUDA_EXT_TRACE", "where a build writes a trace for Perfetto"),
    Variable("CUDA_EXT_DASK_SCHEDULER", 'the scheduler of builds with executor = "dask"'),
    Variable("CUDAARCHS", "architectures that replace those of the project"),
    Variable("MAX_JOBS", "how many processes compile at once"),
    Variable("CUDA_PATH", "a CUDA toolkit"),
    Variable("CUDA_HOME", "a CUDA toolkit, after CUDA_PATH"),
    Variable("NVCC_CCBIN", "the host compiler of nvcc"),
    Variable("CUDA_VISIBLE_DEVICES", "the GPUs that processes see"),
)
