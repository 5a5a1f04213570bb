"""An executor that the environment names, instead of worker processes of this machine.

``CUDA_EXT_EXECUTOR=module:function`` names a function that returns a :class:`concurrent.futures.Executor`.
``CUDA_EXT_DASK_SCHEDULER`` is the address of a Dask cluster, for `dask_executor`.
The processes of an executor need the packages of the build, but none of its files.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any

import cuda_ext
from cuda_ext.builder.scheduler.task import Task, TaskResult
from cuda_ext.errors import BuildError, ConfigError, ToolchainError
from cuda_ext.time_limit import call_within, too_slow

_VARIABLE = "CUDA_EXT_EXECUTOR"
_DASK = "CUDA_EXT_DASK_SCHEDULER"


def open_named_executor(environ: Mapping[str, str], limit: float) -> NamedExecutor | None:
    """Open the executor that `environ` names; ``None`` if it names none.

    A task may take `limit` seconds. Raises :class:`ConfigError` if there is no such function, and
    :class:`ToolchainError` if it fails.
    """
    if name := environ.get(_VARIABLE, "").strip():
        return NamedExecutor(_VARIABLE, _call(name), limit)
    if address := environ.get(_DASK, "").strip():
        try:
            from cuda_ext.builder.scheduler.dask_executor import connect
        except ImportError as error:
            raise ToolchainError(
                f"needs distributed ({error})", where=_DASK, remedy='install "cuda-ext[dask]"'
            ) from None
        try:
            return NamedExecutor(_DASK, connect(address), limit)
        except (OSError, ValueError) as error:
            raise ToolchainError(
                f"no Dask scheduler with workers answers at {address} ({error})",
                where=_DASK,
                remedy="start them with `dask scheduler` and `dask worker`, or correct the address",
            ) from None
    return None


def _call(name: str) -> Executor:
    """Call the function ``module:function``."""
    module, _, function = name.partition(":")
    try:
        executor = getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{name!r} cannot be imported ({error})",
            where=_VARIABLE,
            remedy="write it as module:function, and have the module on PYTHONPATH",
        ) from None
    except Exception as error:
        raise ToolchainError(f"{name} failed ({type(error).__name__}: {error})", where=_VARIABLE) from None
    if not isinstance(executor, Executor):
        raise ConfigError(
            f"{name} returned {executor!r}", where=_VARIABLE, remedy="return a concurrent.futures.Executor"
        )
    return executor


class NamedExecutor(Executor):
    """Lets `executor`, named by `variable`, call tasks. A task may take `limit` seconds."""

    def __init__(self, variable: str, executor: Executor, limit: float) -> None:
        self._variable = variable
        self._executor = executor
        self._limit = limit
        self._open: set[Future[TaskResult | BuildError]] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if args or kwargs or not isinstance(fn, Task):
            raise TypeError("only tasks can be submitted")
        answer: Future[Any] = Future()

        def pass_on(done: Future[TaskResult | BuildError]) -> None:
            self._open.discard(done)
            if done.cancelled():
                error: BuildError | None = self._failure(fn, "it was cancelled, or its machine is lost")
            elif (raised := done.exception()) is not None:
                error = self._failure(fn, f"{type(raised).__name__}: {raised}")
            else:
                result = done.result()
                error = result if isinstance(result, BuildError) else None
            if error:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        content = pickle.dumps(fn, pickle.HIGHEST_PROTOCOL)
        done = self._executor.submit(_perform, cuda_ext.__version__, content, self._limit)
        self._open.add(done)
        done.add_done_callback(pass_on)
        return answer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the executor when all tasks are done. With `cancel_futures`, do not wait for any."""
        if cancel_futures:
            for future in list(self._open):
                future.cancel()
        self._executor.shutdown(wait=wait and not cancel_futures)

    def _failure(self, task: Task, reason: str) -> ToolchainError:
        return ToolchainError(
            f"the executor of {self._variable} did not compile it ({reason})",
            where=str(task),
            remedy=f"see its logs; all its processes need cuda-ext {cuda_ext.__version__} and the compiler",
        )


def _perform(version: str, content: bytes, limit: float) -> TaskResult | BuildError:
    """Perform a pickled task in this process. Errors are returned: some executors change raised ones."""
    task = None
    try:
        if version != cuda_ext.__version__:
            raise ToolchainError(
                f"a process of the executor has cuda-ext {cuda_ext.__version__}, and the build {version}",
                remedy="install the same everywhere",
            )
        task = pickle.loads(content)  # noqa: S301 - from the build
        result: TaskResult = call_within(limit, task)
    except TimeoutError:
        return too_slow(str(task), limit)
    except BuildError as error:
        return error
    return result
