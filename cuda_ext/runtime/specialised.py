"""Python functions, each made for one kernel, that launch it in the least time.

The text of a function holds numbers and the names given here, and nothing of what a manifest says. It
converts the arguments that are common; whenever anything is amiss or out of the ordinary, it starts over in
:class:`~cuda_ext.runtime.launcher.Launcher`, which knows everything. So all that is here is about speed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from cuda_ext.runtime.arguments import Field
from cuda_ext.runtime.driver import Prepared, open_driver
from cuda_ext.runtime.elements import accepted_dtypes
from cuda_ext.runtime.launch import Launch, LaunchOptions, extents
from cuda_ext.runtime.launcher import Configs, Launcher
from cuda_ext.runtime.loaded_kernel import LoadedKernel
from cuda_ext.runtime.streams import stream_handle

__all__ = ["bound", "call", "torch_is_loaded"]

_CALL = """
def call(self, /, {parameters}*more, grid=None, block=None, shared=0, stream=None, **others):
    try:
        if others or more{absent}:
            raise Uncommon
{conversions}
        loaded = ready[device]
        if stream is None:
            handle = {ambient}
        elif type(stream) is int and 0 <= stream < 0x10000000000000000:
            handle = stream
        else:
            handle = stream_handle(stream)
        if (
            type(grid) is int and 0 < grid <= loaded.most_blocks
            and type(block) is int and 0 < block <= loaded.most_threads
            and type(shared) is int and 0 <= shared <= loaded.allowed
        ):
            x = grid
            y = z = v = w = 1
            u = block
        else:
            x, y, z, u, v, w = shape(loaded, grid, block, shared)
        buffer = buffers.pop()
        memory, addresses, _ = buffer
        pack_into(memory, 0, {values})
    except Exception:
        pass
    else:
        status, = launch(loaded.function, x, y, z, u, v, w, shared, handle, addresses, 0)
        buffers.append(buffer)
        if status is not success:
            failed(status, (x, y, z), (u, v, w), ({arguments}), shared, stream)
        return
    carefully(({arguments}*more,), others, grid, block, shared, stream)
"""

_BOUND = """
def bound({parameters}*more, **named):
    try:
        if named or more{absent}:
            raise Uncommon
{conversions}
        handle = {ambient}
        function, config = configs[device, handle]
        buffer = buffers.pop()
        memory, addresses, _ = buffer
        pack_into(memory, 0, {values})
    except Exception:
        pass
    else:
        status, = launch(config, function, addresses, 0)
        buffers.append(buffer)
        if status is not success:
            failed(status, ({arguments}))
        return
    carefully(({arguments}*more,), named)
"""

# How each kind of parameter takes its commonest arguments. All others go through the field's conversion.
_NUMBER = """
        v{i} = a{i} if type(a{i}) is {common} else convert{i}(a{i})
"""
_ADDRESS = """
        if type(a{i}) is Tensor{dtype} and (v{i} := data_ptr(a{i})):
            d{i} = get_device(a{i})
            s{i} = torch_stream
        elif type(a{i}) is int:
            v{i} = a{i}
            d{i} = s{i} = None
        else:
            memory = convert{i}(a{i})
            v{i} = memory.address
            d{i} = memory.device
            s{i} = memory.stream
"""


class _Uncommon(Exception):
    pass


class _Absent:
    """Stands for an argument that was not given."""


_absent = _Absent()


def torch_is_loaded() -> bool:
    """Whether there may be tensors in device memory: PyTorch is imported, and made for CUDA."""
    return hasattr(getattr(sys.modules.get("torch"), "_C", None), "_cuda_getCurrentRawStream")


def call(launcher: Launcher, outdated: Callable[[], None]) -> Callable[..., None]:
    """``Kernel.__call__`` for one kernel. `outdated` is called once PyTorch is there that was not before."""
    knows_torch = torch_is_loaded()

    def carefully(
        arguments: tuple[object, ...],
        others: dict[str, Any],
        grid: Any,
        block: Any,
        shared: Any,
        stream: Any,
    ) -> None:
        if not knows_torch and torch_is_loaded():
            outdated()
        chosen = {name: others.pop(name) for name in _OPTIONS & others.keys()}
        options = LaunchOptions(grid, block, shared=shared, **chosen)
        launcher.launch([a for a in arguments if a is not _absent], others, options, stream)

    def failed(
        status: Any, grid: Any, block: Any, arguments: tuple[object, ...], shared: int, stream: Any
    ) -> None:
        if not _lacks_context(status):
            _refused(launcher, status, Launch(grid, block, shared))
        carefully(arguments, {}, grid, block, shared, stream)

    names = {"ready": launcher.ready, "shape": _shape, "carefully": carefully, "failed": failed}
    return _made("call", _CALL, launcher, "cuLaunchKernel", names, None)


def bound(launcher: Launcher, options: LaunchOptions, stream: object) -> Callable[..., None]:
    """What ``Kernel.bind`` returns."""
    configs: Configs = Prepared()

    def carefully(arguments: tuple[object, ...], named: dict[str, Any]) -> None:
        given = [a for a in arguments if a is not _absent]
        launcher.launch(given, named, options, stream, configs)

    def failed(status: Any, arguments: tuple[object, ...]) -> None:
        if not _lacks_context(status):
            loaded = launcher.ready[None]
            _refused(launcher, status, Launch.checked(options, loaded))
        carefully(arguments, {})

    names = {"configs": configs, "carefully": carefully, "failed": failed}
    handle = None if stream is None else stream_handle(stream)
    return _made("bound", _BOUND, launcher, "cuLaunchKernelEx", names, handle)


_OPTIONS = {"threads", "cluster", "cooperative", "dependent"}


def _made(
    name: str, template: str, launcher: Launcher, function: str, names: dict[str, Any], stream: int | None
) -> Callable[..., None]:
    driver = open_driver()
    numbered = list(enumerate(launcher.fields))
    count = len(numbered)
    pointers = [i for i, field in numbered if field.is_pointer]
    conversions = [_conversion(i, field) for i, field in numbered]
    conversions.append(f"        device = {_agreed([f'd{i}' for i in pointers])}\n")
    text = template.format(
        parameters="".join(f"a{i}=absent, " for i in range(count)),
        # Arguments are given in order, so that the last one tells.
        absent=f" or a{count - 1} is absent" if count else "",
        conversions="".join(conversions),
        ambient=_ambient([f"s{i}" for i in pointers]) if stream is None else str(stream),
        values="".join(f"v{i}, " for i in range(count)),
        arguments="".join(f"a{i}, " for i in range(count)),
    )
    everything: dict[str, Any] = {
        **names,
        **_of_torch(launcher.fields),
        **{f"convert{i}": field.convert for i, field in numbered},
        "Uncommon": _Uncommon,
        "absent": _absent,
        "agree": _agree,
        "buffers": launcher.buffers,
        "launch": getattr(driver.api, function),
        "pack_into": launcher.packing.pack_into,
        "stream_handle": stream_handle,
        "success": driver.api.CUresult.CUDA_SUCCESS,
    }
    exec(compile(text, f"<cuda_ext: a launch with {count} arguments>", "exec"), everything)  # noqa: S102
    made: Callable[..., None] = everything[name]
    return made


def _conversion(i: int, field: Field) -> str:
    if not field.is_pointer:
        common = {"f": "float", "d": "float"}.get(field.format) or (
            "int" if field.parameter.kind in ("integer", "unsigned") and len(field.format) == 1 else "absent"
        )
        return _NUMBER.format(i=i, common=common).lstrip("\n")
    count = len(_dtypes(field))
    dtype = (
        "" if not count else f" and a{i}.dtype is dtype{i}" if count == 1 else f" and a{i}.dtype in dtype{i}"
    )
    return _ADDRESS.format(i=i, dtype=dtype).lstrip("\n")


def _dtypes(field: Field) -> list[str]:
    """The dtypes of the tensors that fit; empty if any does. Complex ones may be conjugated views."""
    accepted = accepted_dtypes(field.parameter.element) if field.parameter.element else ()
    return [name for name in accepted if not name.startswith(("complex", "V"))] if accepted else []


def _agreed(devices: list[str]) -> str:
    if len(devices) < 2:
        return devices[0] if devices else "None"
    return f"{devices[0]} if {' == '.join(devices)} else agree({', '.join(devices)})"


def _agree(*devices: int | None) -> int | None:
    (known,) = {device for device in devices if device is not None}
    return known


def _ambient(streams: list[str]) -> str:
    if not streams:
        return "0"
    return f"stream_of(device) if (stream_of := {' or '.join(streams)}) else 0"


def _of_torch(fields: Iterable[Field]) -> dict[str, Any]:
    """PyTorch's tensors, and how to read them; nothing is of that type as long as it is not loaded."""
    if not torch_is_loaded():
        return {"Tensor": _Absent}
    torch: Any = sys.modules["torch"]
    names = {
        "Tensor": torch.Tensor,
        "data_ptr": torch.Tensor.data_ptr,
        "get_device": torch.Tensor.get_device,
        "torch_stream": torch._C._cuda_getCurrentRawStream,
    }
    for i, field in enumerate(fields):
        if field.is_pointer:
            dtypes = tuple(getattr(torch, name) for name in _dtypes(field) if hasattr(torch, name))
            names[f"dtype{i}"] = dtypes[0] if len(dtypes) == 1 == len(_dtypes(field)) else dtypes
    return names


def _shape(loaded: LoadedKernel, grid: Any, block: Any, shared: Any) -> tuple[int, int, int, int, int, int]:
    x, y, z = extents("grid", grid, loaded.device.largest_grid)
    u, v, w = extents("block", block, loaded.device.largest_block)
    if u * v * w > loaded.most_threads or type(shared) is not int or not 0 <= shared <= loaded.allowed:
        raise _Uncommon
    return x, y, z, u, v, w


def _lacks_context(status: Any) -> bool:
    # CUDA_ERROR_INVALID_CONTEXT: the default stream belongs to the context that is current.
    return int(status) == 201


def _refused(launcher: Launcher, status: Any, launch: Launch) -> None:
    driver = open_driver()
    launcher.refused(driver.error("a launch", status), driver, launch)
