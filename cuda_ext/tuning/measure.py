"""The process that measures the candidates of a case, seen from outside: it may hang or end at any time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from typing import Any

from cuda_ext.tuning.measuring_process import Reply, serve

_START = 60.0  # the seconds in which the process has to start, and to make the arguments of a case


class Bench:
    """Measures kernels of `module`, the candidates of each case in a process of their own.

    A candidate may take `patience` seconds. One that fails ends its process, and the next one gets another.
    """

    def __init__(self, module: str, patience: float) -> None:
        self._module = module
        self._patience = patience
        self._process: Any = None
        self._asked: object = None
        self._listed: Reply = {}

    def ask(
        self,
        name: str,
        case: Mapping[str, Any],
        configuration: Mapping[str, str] | None = None,
        stage: int = 0,
    ) -> Reply:
        """Measure a candidate of the kernel `name`, or list them without one; ``failed`` has the reason."""
        if self._process is None or self._asked != (name, case):
            self.close()
            self._asked = name, case
            self._connection, other = multiprocessing.get_context("spawn").Pipe()
            self._process = multiprocessing.get_context("spawn").Process(
                target=serve, args=(self._module, name, case, other), daemon=True
            )
            self._process.start()
            other.close()
            self._listed = self._receive(_START)
        if configuration is None or "failed" in self._listed:
            return self._listed
        self._connection.send((configuration, stage))
        return self._receive(self._patience)

    def close(self) -> None:
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
        self._process = None

    def _receive(self, seconds: float) -> Reply:
        reply: Reply = {"failed": f"hangs: it takes more than {seconds:g} seconds"}
        try:
            if self._connection.poll(seconds):
                reply = self._connection.recv()
        except (EOFError, OSError):
            self._process.join(5)
            reply = {"failed": f"ends the process, with {self._process.exitcode}"}
        if "failed" in reply:
            self.close()
        return reply
