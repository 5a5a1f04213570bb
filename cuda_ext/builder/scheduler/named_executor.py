"""An executor that the environment names, instead of worker processes of this machine.

``CUDA_EXT_EXECUTOR=module:function`` names a function that returns a :class:`concurrent.futures.Executor`.
``CUDA_EXT_DASK_SCHEDULER`` is the address of a Dask cluster: it assigns tasks to workers, and repeats those
of a lost worker. The processes of an executor need the packages of the build, but none of its files.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from functools import partial
from importlib import import_module
from typing import Any

import cuda_ext
from cuda_ext.builder.scheduler.task import Task, TaskResult
from cuda_ext.errors import BuildError, ToolchainError
from cuda_ext.time_limit import call_within, too_slow

# Seconds to wait for the first answer of a Dask scheduler, and for its first worker.
_CONNECT = 10
_WORKER = 60


def open_named_executor(environ: Mapping[str, str], limit: float) -> NamedExecutor | None:
    """Open the executor that `environ` names; ``None`` if it names none.

    A task may take `limit` seconds. Raises :class:`ToolchainError` if there is no such executor.
    """
    for variable, open_executor, remedy in _WAYS:
        if name := environ.get(variable, "").strip():
            try:
                return NamedExecutor(variable, open_executor(name), limit)
            except Exception as error:
                problem = f"no executor from {name!r} ({type(error).__name__}: {error})"
                raise ToolchainError(problem, where=variable, remedy=remedy) from None
    return None


def _call(name: str) -> Executor:
    """Call the function ``module:function``."""
    module, _, function = name.partition(":")
    executor = getattr(import_module(module), function)()
    if not isinstance(executor, Executor):
        raise TypeError(f"it returned {executor!r}")
    return executor


def _connect_to_dask(address: str) -> Executor:
    """Connect to the scheduler at `address`, and wait for its first worker."""
    from distributed import Client
    from distributed.cfexecutor import ClientExecutor

    class DaskExecutor(ClientExecutor):  # type: ignore[misc]  # distributed has no types
        def shutdown(self, wait: bool = True) -> None:
            """Leave the cluster, too."""
            super().shutdown(wait)
            self._client.close()

    # Dask itself waits forever for the first message if another program listens there.
    client = call_within(_CONNECT + 1, partial(Client, address, timeout=_CONNECT, set_as_default=False))
    try:
        client.wait_for_workers(1, timeout=_WORKER)
    except BaseException:
        client.close()
        raise
    return DaskExecutor(client, pure=False)


# Variables of the environment, functions that open an executor, and remedies if they fail.
_WAYS = (
    (
        "CUDA_EXT_EXECUTOR",
        _call,
        "write module:function, of a module on PYTHONPATH that returns a concurrent.futures.Executor",
    ),
    (
        "CUDA_EXT_DASK_SCHEDULER",
        _connect_to_dask,
        'install "cuda-ext[dask]", and have `dask scheduler` and `dask worker` run at this address',
    ),
)


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
            try:
                result = done.result()
                error = result if isinstance(result, BuildError) else None
            except Exception as raised:  # cancelled, for instance, or its machine is lost
                error = self._failure(fn, f"{type(raised).__name__}: {raised}")
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
