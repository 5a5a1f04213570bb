"""The environment variables that the package reads, as ``cuda-ext --help`` and doctor describe them."""

from __future__ import annotations

__all__ = ["VARIABLES"]

# By name. A test compares the names with docs/reference/environment.md and with what the sources read.
VARIABLES = {
    "CUDA_EXT_CACHE": "the cache: a directory, or the URL of a shared one",
    "CUDA_EXT_CACHE_SIZE": "the maximum size of the cache, such as 5G; 0 turns it off",
    "CUDA_EXT_JIT": "0 turns compilation on demand off",
    "CUDA_EXT_DEBUG": "1 checks every launch before and after it, which is slow",
    "CUDA_EXT_REPORT": "the HTML report that a build writes",
    "CUDA_EXT_TRACE": "the trace for Perfetto that a build writes",
    "CUDA_EXT_DASK_SCHEDULER": 'the scheduler of builds with executor = "dask"',
    "CUDAARCHS": "architectures that replace those of the project",
    "MAX_JOBS": "the number of processes that compile at once",
    "CUDA_EXT_TIMEOUT": "the seconds that one compilation may take",
    "CUDA_PATH": "a CUDA toolkit",
    "CUDA_HOME": "a CUDA toolkit, after CUDA_PATH",
    "NVCC_CCBIN": "the host compiler of nvcc",
    "CUDA_VISIBLE_DEVICES": "the GPUs that a process sees",
}
