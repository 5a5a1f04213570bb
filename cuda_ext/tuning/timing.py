"""Times of launches on a GPU: graphs of launches between events, with a warm and with a cold L2 cache."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from statistics import median, quantiles

from cuda_ext.runtime.driver.driver import Device
from cuda_ext.runtime.driver.functions import OUT

_L2_SIZE = 38  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_MICROSECONDS = 1000.0  # of the milliseconds that the driver counts in
# The microseconds of a graph, and its most launches. Times of shorter graphs vary with the GPU's clocks: on
# an H200, those of a small matrix product vary by 40 % with graphs of 0.3 ms, and by 1 % with these.
_LONG = 5000.0
_MOST = 1000


class Timer:
    """Measures launches in its own ``stream`` on `device`, whose context must be current."""

    def __init__(self, device: Device) -> None:
        self._driver = device.driver
        self.stream = self._driver.query("cuStreamCreate", OUT, _NON_BLOCKING)
        self._events = [self._driver.query("cuEventCreate", OUT, 0) for _ in range(2)]
        self._flushed = max(2 * device.attribute(_L2_SIZE), 1 << 20)
        self._memory = 0

    def warm(self, launch: Callable[[], object], rounds: int) -> tuple[float, float]:
        """Return the median microseconds of a launch, and the distance of the quartiles relative to it."""
        launch()
        once = self._between(launch)
        count = max(1, min(_MOST, round(_LONG / max(once, 1e-3))))
        call = self._driver.call
        call("cuStreamBeginCapture", self.stream, _RELAXED)
        try:
            for _ in range(count):
                launch()
        finally:
            graph = self._driver.query("cuStreamEndCapture", self.stream, OUT)
        executable = self._driver.query("cuGraphInstantiate", OUT, graph, 0)
        try:
            start = partial(call, "cuGraphLaunch", executable, self.stream)
            self._between(start)  # uploads the graph
            return _summarize([self._between(start) / count for _ in range(rounds)])
        finally:
            call("cuGraphExecDestroy", executable)
            call("cuGraphDestroy", graph)

    def cold(self, launch: Callable[[], object], rounds: int) -> float:
        """Return the median microseconds of a launch behind a write that fills the L2 cache."""
        self._memory = self._memory or self._driver.query("cuMemAlloc", OUT, self._flushed)
        times = []
        for _ in range(rounds):
            self._driver.call("cuMemsetD8Async", self._memory, 0, self._flushed, self.stream)
            times.append(self._between(launch))
        return median(times)

    def _between(self, work: Callable[[], object]) -> float:
        first, last = self._events
        self._driver.call("cuEventRecord", first, self.stream)
        work()
        self._driver.call("cuEventRecord", last, self.stream)
        self._driver.call("cuEventSynchronize", last)
        bits = self._driver.query("cuEventElapsedTime", OUT, first, last)
        (milliseconds,) = struct.unpack("<f", struct.pack("<Q", bits)[:4])
        return float(milliseconds) * _MICROSECONDS


def _summarize(times: list[float]) -> tuple[float, float]:
    middle = median(times)
    low, _, high = quantiles(times, n=4)
    return middle, (high - low) / middle if middle else 0.0
