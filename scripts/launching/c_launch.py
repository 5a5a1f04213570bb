"""Call ``cuLaunchKernel`` from C, compiled here: the lower limit for a launch from Python."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

_SOURCE = """
#include <time.h>
typedef int Launch(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   unsigned shared, void* stream, void** parameters, void** extra);
typedef int Change(void* argument);

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

double launch_many(Launch* launch, void* function, void* stream, void** parameters, int times,
                   unsigned block, unsigned shared,
                   Change* enter, void* context, Change* leave, void* other) {
  const double began = now();
  for (int i = 0; i < times; i++) {
    if (enter && enter(context)) return -1;
    if (launch(function, 1, 1, 1, block, 1, 1, shared, stream, parameters, 0)) return -1;
    if (leave && leave(other)) return -1;
  }
  return (now() - began) / times;
}
"""


class ContextChange(NamedTuple):
    """Functions that make the context of a launch current and restore the other one, with arguments."""

    enter: Any
    context: Any
    leave: Any
    other: Any

    @classmethod
    def pushed(cls, context: int) -> ContextChange:
        driver = ctypes.CDLL("libcuda.so.1")
        popped = ctypes.pointer(ctypes.c_void_p())
        return cls(driver.cuCtxPushCurrent_v2, ctypes.c_void_p(context), driver.cuCtxPopCurrent_v2, popped)

    @classmethod
    def set(cls, context: int, other: int) -> ContextChange:
        change = ctypes.CDLL("libcuda.so.1").cuCtxSetCurrent
        return cls(change, ctypes.c_void_p(context), change, ctypes.c_void_p(other))


class CLaunch:
    """A compiled loop of launches. Raises :class:`RuntimeError` without a C compiler."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise RuntimeError("no C compiler is installed")
        source, library = directory / "launch.c", directory / "launch.so"
        source.write_text(_SOURCE)
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        self._many = ctypes.CDLL(str(library)).launch_many
        self._many.restype = ctypes.c_double
        self._launch = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p)

    def seconds(
        self,
        function: int,
        stream: int,
        values: Sequence[Any],
        times: int,
        block: int = 32,
        shared: int = 0,
        change: ContextChange | None = None,
    ) -> float:
        """Launch one block `times` times, each within a `change`; return the seconds per launch."""
        parameters = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        pointers = ctypes.c_void_p(function), ctypes.c_void_p(stream)
        taken = float(
            self._many(self._launch, *pointers, parameters, times, block, shared, *(change or [None] * 4))
        )
        if taken < 0:
            raise RuntimeError("cuLaunchKernel failed")
        return taken
