"""The process that launches candidates: what one of them breaks ends with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from cuda_ext.errors import ArgumentError, CudaExtError
from cuda_ext.runtime.driver.driver import Driver, open_driver
from cuda_ext.runtime.kernel import Kernel
from cuda_ext.runtime.variants import Variants
from cuda_ext.tuning.measured_arguments import Inputs, disagreement
from cuda_ext.tuning.timing import Timer

Reply: TypeAlias = dict[str, Any]

# A candidate in each round of successive halving: the times that are measured.
ROUNDS = (3, 9, 11)
_COLD = 7


def serve(module: str, connection: Connection) -> None:
    """Answer requests for kernels of `module` until the other end closes, or the GPU takes no more work.

    A request without a configuration lists the candidates; another one measures a candidate.
    """
    try:
        kernels: Any = import_module(module)
        driver = open_driver()
        device = driver.current_device()
        with device.current():
            timer = Timer(device)
            version = ".".join(map(str, driver.version))
            connection.send({"device": device.name, "sm": device.capability, "driver": version})
            _answer_all(connection, kernels, driver, timer)
    except EOFError:
        pass
    except CudaExtError as error:
        connection.send({"failed": str(error), "ends": True})


def _answer_all(connection: Connection, kernels: Any, driver: Driver, timer: Timer) -> None:
    bench: _Bench | None = None
    while not driver.fault:
        name, case, configuration, stage = connection.recv()
        try:
            if bench is None or (bench.name, bench.case) != (name, case):
                if bench:
                    bench.inputs.free()
                bench = None
                bench = _Bench(driver, timer, kernels[name], name, case)
            reply = bench.measure(configuration, stage) if configuration is not None else bench.describe()
        except Exception as error:  # functions of the author may raise anything
            text = str(error) if isinstance(error, CudaExtError) else f"{type(error).__name__}: {error}"
            reply = {"failed": text.splitlines()[0]}
        connection.send({**reply, "ends": driver.fault is not None})


class _Bench:
    """The candidates of `kernel` with the arguments of a case, and what the default computes of them."""

    def __init__(
        self, driver: Driver, timer: Timer, kernel: Variants, name: str, case: Mapping[str, Any]
    ) -> None:
        tuning = getattr(kernel, "tuning", None)
        if tuning is None:
            raise ArgumentError(f"{name} has no candidates")
        self.name = name
        self.case = case
        self.inputs = Inputs(driver, timer.stream, kernel._kernel, tuning, case)
        self._timer = timer
        self._tolerance = tuning.tolerance
        self._given = {**self.inputs.arguments, "stream": timer.stream}
        self._kernel = kernel
        self._candidates = kernel.configurations(**self._given)
        self._launch_of(self._candidates[-1])()
        self._expected = self.inputs.results()

    def describe(self) -> Reply:
        taken = self._kernel.taken(**self._given)
        return {
            "candidates": [dict(each._kernel.configuration) for each in self._candidates],
            "taken": dict(taken._kernel.configuration),
            "values": {name: value for name, value in self._given.items() if isinstance(value, int)},
        }

    def measure(self, configuration: Mapping[str, str], stage: int) -> Reply:
        """Measure a candidate; in the first round, compare its results with those of the default."""
        candidate = next(each for each in self._candidates if each._kernel.configuration == configuration)
        launch = self._launch_of(candidate)
        if not stage:
            self.inputs.reset()
            launch()
            results = self.inputs.results()
            if problem := disagreement(self.inputs.written, results, self._expected, self._tolerance):
                return {"failed": problem}
        time, spread = self._timer.warm(launch, ROUNDS[stage])
        is_last = stage == len(ROUNDS) - 1
        cold = {"cold": self._timer.cold(launch, _COLD)} if is_last else {}
        return {"time": time, "spread": spread, **cold, "runs": ROUNDS[stage]}

    def _launch_of(self, candidate: Kernel) -> Callable[[], Any]:
        facts = candidate._kernel
        grid = self.inputs.grid({**facts.constants, **facts.configuration})
        return lambda: candidate(**self._given, grid=grid)
