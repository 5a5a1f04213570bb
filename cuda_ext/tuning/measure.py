"""Measuring the candidates of a case, in a process that may hang or end: what one breaks ends with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from importlib import import_module
from multiprocessing.connection import Connection
from numbers import Integral
from typing import Any, TypeAlias

from cuda_ext.compiler.front_ends.kernel_description import DTYPES
from cuda_ext.errors import CudaExtError
from cuda_ext.facts.candidates import Tuning
from cuda_ext.runtime.driver.driver import Device, open_driver
from cuda_ext.runtime.kernel import Kernel
from cuda_ext.runtime.launch.python_arguments import values_of_constant
from cuda_ext.runtime.module import library_of
from cuda_ext.toolchain.process import signals_blocked
from cuda_ext.tuning.measured_arguments import Inputs
from cuda_ext.tuning.timing import Timer

Reply: TypeAlias = dict[str, Any]

# How many times are measured of a candidate in each round of successive halving.
ROUNDS = (3, 9, 11)
_COLD = 7
# The seconds in which the process has to start, and to make the arguments of a case.
_START = 60.0
_DTYPES = {dtype.cpp: f"torch.{dtype.torch}" for dtype in DTYPES}


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
                target=_serve, args=(self._module, name, case, other), daemon=True
            )
            with signals_blocked():  # the process would show a traceback: see _serve
                self._process.start()
            other.close()
            self._listed = self._exchange(None, _START)
        if configuration is None or "failed" in self._listed:
            return self._listed
        return self._exchange((configuration, stage), self._patience)

    def close(self) -> None:
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
        self._process = None

    def _exchange(self, request: object, seconds: float) -> Reply:
        reply: Reply = {"failed": f"hangs: it takes more than {seconds:g} seconds"}
        try:
            if request:
                self._connection.send(request)
            if self._connection.poll(seconds):
                reply = self._connection.recv()
        except (EOFError, OSError):
            self._process.join(5)
            reply = {"failed": f"ends the process, with {self._process.exitcode}"}
        if "failed" in reply:
            self.close()
        return reply


def _serve(module: str, name: str, case: Mapping[str, Any], connection: Connection) -> None:
    """List the candidates of the kernel `name` in `module`; then measure each that is requested.

    The first failure is the last answer. Interruptions are for the process that asks, which ends this one.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.name == "posix":  # replace the signal mask inherited from the parent
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        device = open_driver().current_device()
        with device.current():
            measured = _MeasuredCase(device, import_module(module), name, case)
            connection.send(measured.describe())
            while True:
                connection.send(measured.measure(*connection.recv()))
    except EOFError:
        pass
    except Exception as error:  # functions of the author may raise anything
        text = str(error) if isinstance(error, CudaExtError) else f"{type(error).__name__}: {error}"
        connection.send({"failed": text.splitlines()[0]})


class _MeasuredCase:
    """The candidates of a kernel with the arguments of a case, and what the default computes of them."""

    def __init__(self, device: Device, module: Any, name: str, case: Mapping[str, Any]) -> None:
        self._kernel, self._name = module[name], name
        self._tuning: Tuning = self._kernel.tuning
        self._manifest = library_of(module).manifest
        self._timer = Timer(device)
        facts = self._facts = self._kernel._kernel
        self._inputs = Inputs(device.driver, self._timer.stream, facts, self._tuning, case)
        self._given = {**self._inputs.arguments, "stream": self._timer.stream}
        self._names = {**self._given, **case}
        self._candidates: list[Kernel] = self._kernel.configurations(**self._given)
        self._launch_of(self._candidates[-1])()
        self._expected = self._inputs.results()

    def describe(self) -> Reply:
        """List the candidates, the one that a launch takes, and what the entry of each begins with."""
        facts, key = self._facts, self._tuning.key
        constants = {
            name: values_of_constant(facts.constants[name])[0] for name in key if name in facts.constants
        }
        names = {**self._names, **constants}
        if missing := [name for name in key if name not in names]:
            raise CudaExtError(f"the case has no {missing[0]}", remedy=f"give {', '.join(key)}")
        for name in {*key} - {*constants}:
            if not isinstance(names[name], Integral):
                raise CudaExtError(f"{name} is {names[name]!r}", remedy="a key consists of integers")
            names[name] = int(names[name])  # also of a boolean, and of an integer of numpy
        compiler = self._manifest.units[facts.unit].compiler  # of a function in Python
        dtypes = [_DTYPES.get(p.element, p.element) for p in facts.parameters if compiler and p.element]
        return {
            "candidates": [dict(each._kernel.configuration) for each in self._candidates],
            "taken": dict(self._kernel.taken(**self._given)._kernel.configuration),
            "entry": {
                "kernel": self._name.partition("<")[0] if compiler else self._name,
                "key": [*(names[name] for name in key), *dtypes],
                "compiler": compiler or f"{self._manifest.compiler} {self._manifest.version}",
                "source": self._tuning.source,
            },
        }

    def measure(self, configuration: Mapping[str, str], stage: int) -> Reply:
        """Measure a candidate; in the first round, compare its results with those of the default."""
        candidate = next(each for each in self._candidates if each._kernel.configuration == configuration)
        launch = self._launch_of(candidate)
        if not stage:
            self._inputs.reset()
            launch()
            self._inputs.compare(self._expected, self._tuning.tolerance)
        time, spread = self._timer.warm(launch, ROUNDS[stage])
        is_last = stage == len(ROUNDS) - 1
        times = {"time": time, "spread": spread}
        times |= {"cold": self._timer.cold(launch, _COLD)} if is_last else {}
        return {**{name: float(f"{each:.4g}") for name, each in times.items()}, "runs": ROUNDS[stage]}

    def _launch_of(self, candidate: Kernel) -> Callable[[], Any]:
        facts = candidate._kernel
        grid = self._inputs.grid({**facts.constants, **facts.configuration})
        return lambda: candidate(**self._given, grid=grid)
