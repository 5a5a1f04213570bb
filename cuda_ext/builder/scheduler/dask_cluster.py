"""Compilation on a Dask cluster: tasks travel with their sources, as bytes.

Dask assigns tasks to workers, and repeats what is lost with a worker. The workers need the same packages as
the build and share nothing else with it; the scheduler needs none of them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import re
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

import cuda_ext
from cuda_ext.builder.scheduler.task import Task, TaskResult
from cuda_ext.errors import BuildError, CompilationError, ConfigError, ToolchainError
from cuda_ext.time_limit import call_within, time_limit, too_slow

_VARIABLE = "CUDA_EXT_DASK_SCHEDULER"
_ADDRESS = re.compile(r"[a-z]+://(?:\[[^][/\s]+\]|[^][:/\s]+):[0-9]{1,5}")
# Seconds to wait for the scheduler's first answer, and for a worker, at first or after all are lost.
_CONNECT = 5
_WORKER = 60


def dask_executor(environ: Mapping[str, str]) -> Executor:
    """Open an executor for tasks on the cluster that `environ` names.

    Raises :class:`ConfigError` if it names none, :class:`ToolchainError` if the cluster cannot be used.
    """
    address = environ.get(_VARIABLE, "").strip()
    if not _ADDRESS.fullmatch(address):
        problem = f"{address!r} is not the address of a Dask scheduler" if address else "is not set"
        raise ConfigError(
            problem,
            where=_VARIABLE,
            remedy=f'executor = "dask" needs it, as in {_VARIABLE}=tcp://host:8786',
        )
    return DaskExecutor(address)


class DaskExecutor(Executor):
    """Runs tasks on the workers of the scheduler at `address`, those of highest priority first.

    Raises :class:`ToolchainError` if there is no such scheduler. Workers may appear later.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._distributed = _distributed()
        self._failure: ToolchainError | None = None
        self._outcomes: set[asyncio.Task[TaskResult]] = set()
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._talk, name="dask", daemon=True)
        self._thread.start()
        try:
            self._opened.result()
        except BaseException:
            self.shutdown(cancel_futures=True)
            raise

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if args or kwargs or not isinstance(fn, Task):
            raise TypeError("only tasks can be submitted")
        content = zlib.compress(pickle.dumps(fn, pickle.HIGHEST_PROTOCOL), level=1)
        call = pickle.dumps(_Call(_perform, (cuda_ext.__version__, content)), pickle.HIGHEST_PROTOCOL)
        return asyncio.run_coroutine_threadsafe(self._outcome(fn, call), self._loop)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster when all tasks are done or, with `cancel_futures`, at once."""
        with suppress(RuntimeError):  # the loop has ended
            if wait and not cancel_futures:
                asyncio.run_coroutine_threadsafe(self._all_done(), self._loop).result()
            self._loop.call_soon_threadsafe(self._closing.set)
        if wait:
            self._thread.join()

    def _talk(self) -> None:
        """Communicate with the cluster, in a thread of its own."""
        with _silence(), asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:
                self._opened.set_exception(error)

    async def _serve(self) -> None:
        client = await self._connect()
        try:
            self._client = client
            await self._check_versions()
            watch = asyncio.create_task(self._watch())
            self._opened.set_result(None)
            await self._closing.wait()
            watch.cancel()
            for outcome in self._outcomes:
                outcome.cancel()
            await self._all_done()
        finally:
            await _leave(client)

    async def _connect(self) -> Any:
        client = None
        try:
            client = self._distributed.Client(
                self._address, asynchronous=True, timeout=_CONNECT, set_as_default=False
            )
            # Dask itself waits forever for the first message if another program listens there.
            return await asyncio.wait_for(client, _CONNECT + 1)
        except Exception as error:
            if client:
                await _leave(client)
            reason = str(error).partition("\n")[0] or "no answer in Dask's protocol"
            raise ToolchainError(
                f"no Dask scheduler answers at {self._address} within {_CONNECT} seconds ({reason})",
                remedy=f"start one with `dask scheduler`, or correct {_VARIABLE}",
            ) from None

    async def _check_versions(self) -> None:
        """Raise :class:`ToolchainError` if a machine of the cluster has another Dask or cuda-ext."""
        try:
            versions = await asyncio.wait_for(self._client.get_versions(packages=["cuda-ext"]), _CONNECT)
        except OSError:
            return  # a worker is lost or busy
        own = versions["client"]["packages"]
        others = {f"the scheduler {self._address}": versions["scheduler"]}
        others |= {f"the worker {address}": found for address, found in versions["workers"].items()}
        for package in ("distributed", "dask", "cuda-ext"):
            for place, found in others.items():
                there = found["packages"].get(package)
                if there and there != own[package]:
                    raise ToolchainError(
                        f"{place} has {package} {there}, and this build {own[package]}",
                        remedy="install the same on every machine of the cluster",
                    )

    async def _outcome(self, task: Task, call: bytes) -> TaskResult:
        """Return the result of `task` from some worker, and leave nothing on the cluster."""
        waiting = cast("asyncio.Task[TaskResult]", asyncio.current_task())
        self._outcomes.add(waiting)
        future = None
        try:
            # The scheduler unpickles this function too, so it must be one of the standard library.
            future = self._client.submit(
                pickle.loads, call, key=f"cuda_ext-{uuid4()}", pure=False, priority=task.priority
            )
            answer = await future
        except self._distributed.KilledWorker as error:
            raise CompilationError(
                f"each of the {error.allowed_failures + 1} Dask workers that compiled it died, "
                f"at last {error.last_worker.address}",
                where=str(task),
                remedy="their logs may show why, such as a lack of memory",
            ) from None
        except asyncio.CancelledError:
            if self._failure:
                raise self._failure from None
            raise
        except CancelledError:
            raise ToolchainError(
                f"the Dask scheduler {self._address} was lost, or cancelled the build",
                remedy="build again, which continues where this build ended",
            ) from None
        except Exception as error:
            raise ToolchainError(
                f"a Dask worker could not begin to compile {task} ({type(error).__name__}: {error})",
                remedy=f"install cuda-ext {cuda_ext.__version__} with its compiler on every machine of the "
                "cluster",
            ) from None
        finally:
            self._outcomes.discard(waiting)
            if future:
                future.release()
        if isinstance(answer, BuildError):
            raise answer
        return cast("TaskResult", answer)

    async def _all_done(self) -> None:
        await asyncio.gather(*self._outcomes, return_exceptions=True)

    async def _watch(self) -> None:
        """Fail all tasks when the cluster has had no worker for too long, which Dask does not report."""
        seen = time.monotonic()
        while True:
            problem = "has had no worker"
            try:
                workers = await asyncio.wait_for(self._client.nthreads(), _WORKER)
            except OSError:
                workers, problem = {}, "has not answered"
            now = time.monotonic()
            if workers:
                seen = now
            elif now - seen >= _WORKER:
                self._failure = ToolchainError(
                    f"the Dask scheduler {self._address} {problem} for {_WORKER} seconds",
                    remedy=f"start some with `dask worker {self._address} --nthreads 1`",
                )
                for outcome in self._outcomes:
                    outcome.cancel()
            await asyncio.sleep(min(1, _WORKER / 10))


async def _leave(client: Any) -> None:
    """Close `client`, in any state of it and of the cluster."""
    with suppress(Exception):
        await asyncio.wait_for(client.close(), _CONNECT)


def _distributed() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import distributed
    except ImportError as error:
        raise ToolchainError(
            f'executor = "dask" needs distributed ({error})', remedy='install "cuda-ext[dask]"'
        ) from None
    return distributed


@contextmanager
def _silence() -> Iterator[None]:
    """Suppress Dask's logs and warnings, such as those about versions, which are checked here."""
    loggers = [
        logger
        for name, logger in logging.root.manager.loggerDict.items()
        if name.partition(".")[0] in ("distributed", "tornado") and isinstance(logger, logging.Logger)
    ]
    levels = [(logger, logger.level) for logger in loggers if logger.level]
    for logger, _ in levels:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="distributed")
            yield
    finally:
        for logger, level in levels:
            logger.setLevel(level)


class _Call:
    """A call that becomes its result where it is unpickled."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._reduced = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._reduced


def _perform(version: str, content: bytes) -> TaskResult | BuildError:
    """Do a task in this worker. Errors are returned, since Dask would shorten the text of raised ones."""
    address = _distributed().get_worker().address
    try:
        if version != cuda_ext.__version__:
            raise ToolchainError(
                f"has cuda-ext {cuda_ext.__version__}, and the build {version}",
                remedy="install the same on every machine",
            )
        task: Task = pickle.loads(zlib.decompress(content))  # noqa: S301 - from the build
        limit = time_limit(os.environ)
        return replace(call_within(limit, task), worker=address)
    except TimeoutError:
        return too_slow(str(task), limit)
    except CompilationError as error:
        return error
    except (BuildError, OSError) as error:
        return ToolchainError(str(error), where=f"Dask worker {address}")
