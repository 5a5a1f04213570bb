"""How a specialised launch hands checked arguments to the driver.

In C, where ``_launch.c`` was compiled with this package: arguments go from Python objects onto the stack, and
from there to the driver. Otherwise they are packed into memory that no other launch uses, and cuda-bindings
calls the driver.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cuda_ext.runtime.driver.driver import Driver
from cuda_ext.runtime.launch.arguments import Field

if TYPE_CHECKING:
    from cuda_ext.runtime.launch.launcher import Launcher

__all__ = ["Submission", "submission"]

_PACK = """
        buffer = pop_buffer()
        memory, addresses, _ = buffer
        pack_into(memory, 0, {values})
"""
_END = """
    except amiss:
        pass
    else:
"""
_LAUNCH_IN_C = """
        status = launch(entry, {how}{values})
        if status:
"""
_LAUNCH_IN_PYTHON = """
        try:
            status, = launch({how}addresses, 0)
        except ValueError as error:
            status = error
        push_buffer(buffer)
        if status is not success:
"""

# What conversions raise. Anything else, such as what the handler of a signal raises, is for the caller.
_AMISS = (
    *(ArithmeticError, AttributeError, BufferError, LookupError, RuntimeError, TypeError, ValueError),
    struct.error,
)

# What _launch.c knows, besides bytes, and how many.
_LETTERS = frozenset("bhiqBHIQfd")
_MOST = 256


@dataclass(frozen=True, slots=True)
class Submission:
    """The ``text`` from the end of a ``try`` block up to the condition of a failure, and what it refers to.

    What goes wrong within the block has launched nothing. It stands where ``loaded`` and the launch
    configuration are known, and ``v0``, ``v1``, ... are the values.
    """

    text: str
    names: dict[str, Any]


def submission(launcher: Launcher, driver: Driver, *, configured: bool) -> Submission:
    """For the arguments of `launcher`, through ``cuLaunchKernelEx`` if `configured`."""
    function = "cuLaunchKernelEx" if configured else "cuLaunchKernel"
    values = "".join(f"v{i}, " for i in range(len(launcher.fields)))
    shape = "x, y, z, u, v, w, shared, handle, "
    if (entry := _entry(launcher.fields, driver, function)) is not None:
        from cuda_ext.runtime.launch import _launch  # type: ignore[attr-defined]

        how = "address, pointer, " if configured else f"loaded.address, {shape}"
        launch = _launch.launch_configured if configured else _launch.launch
        text = _END + _LAUNCH_IN_C.format(how=how, values=values)
        return Submission(text, {"amiss": _AMISS, "launch": launch, "entry": entry})
    how = "config, function, " if configured else f"loaded.function, {shape}"
    text = _PACK.format(values=values) + _END + _LAUNCH_IN_PYTHON.format(how=how)
    names = {
        "amiss": _AMISS,
        "launch": getattr(driver.api, function),
        "pack_into": launcher.packing.pack_into,
        "pop_buffer": launcher.buffers.pop,
        "push_buffer": launcher.buffers.append,
        "success": driver.api.CUresult.CUDA_SUCCESS,
    }
    return Submission(text, names)


def _entry(fields: Sequence[Field], driver: Driver, function: str) -> bytes | None:
    """The driver's `function` and the letters of `fields`, for ``_launch.c`` if there is that."""
    if os.environ.get("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", "0") != "0":
        return None  # cuda-bindings then calls other functions
    try:
        from cuda_ext.runtime.launch import _launch  # type: ignore[attr-defined]  # noqa: F401
    except ImportError:
        return None
    letters = "".join("s" if field.format.endswith("s") else field.format for field in fields)
    if len(letters) > _MOST or not _LETTERS | {"s"} >= set(letters):
        return None
    address, _ = driver.call("cuGetProcAddress", function.encode(), 12000, 0)
    return struct.pack("P", int(address)) + letters.encode()
