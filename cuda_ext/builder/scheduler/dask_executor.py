"""A Dask cluster as an executor: Dask assigns tasks to workers, and repeats the tasks of a lost worker."""

from __future__ import annotations

from concurrent.futures import Executor

from distributed import Client
from distributed.cfexecutor import ClientExecutor

from cuda_ext.time_limit import call_within

# Seconds to wait for the scheduler's first answer, and for the first worker.
_CONNECT = 10
_WORKER = 60


class _DaskExecutor(ClientExecutor):  # type: ignore[misc]  # distributed has no types
    def shutdown(self, wait: bool = True) -> None:
        """Leave the cluster, too."""
        super().shutdown(wait)
        self._client.close()


def connect(address: str) -> Executor:
    """Connect to the scheduler at `address`, and wait for its first worker.

    Raises :class:`OSError`, or :class:`ValueError` for an invalid address.
    """

    def open_client() -> Client:
        return Client(address, timeout=_CONNECT, set_as_default=False)

    # Dask itself waits forever for the first message if another program listens there.
    client = call_within(_CONNECT + 1, open_client)
    try:
        client.wait_for_workers(1, timeout=_WORKER)
    except BaseException:
        client.close()
        raise
    return _DaskExecutor(client, pure=False)
