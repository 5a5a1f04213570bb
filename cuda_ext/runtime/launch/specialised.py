"""Python functions, each made for one kernel, that launch it in the least time.

The text of a function holds numbers and the names given here, and nothing of what a manifest says. It
converts the arguments that are common; whenever anything is amiss or out of the ordinary, it starts over in
:class:`~cuda_ext.runtime.launch.launcher.Launcher`, which knows everything. All that is here is about speed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from cuda_ext.errors import DriverCallError
from cuda_ext.runtime.arrays.device_memory import DeviceMemory
from cuda_ext.runtime.arrays.dtypes import accepted_dtypes
from cuda_ext.runtime.driver.driver import Device, ProcessCache, is_open, open_driver
from cuda_ext.runtime.driver.loaded_kernel import LoadedKernel
from cuda_ext.runtime.launch import debugging
from cuda_ext.runtime.launch.arguments import Field
from cuda_ext.runtime.launch.configuration import Extents, LaunchConfiguration, LaunchOptions
from cuda_ext.runtime.launch.launcher import Configs, Launcher
from cuda_ext.runtime.launch.streams import stream_handle
from cuda_ext.runtime.launch.submission import submission

__all__ = ["bound", "call"]

_CALL = """
def call({parameters}*more, grid=None, block=None, threads=None, shared=0, stream=None, **others):
    try:
        if others or more{absent}:
            raise Uncommon
{conversions}{place}
        loaded = {ready}[device]
        if stream is None:
            handle = {ambient}
        elif type(stream) is int and 0 <= stream < 0x10000000000000000:
            handle = stream
        else:
            handle = stream_handle(stream)
        if shared is not zero and (type(shared) is not int or not 0 <= shared <= loaded.allowed):
            raise Uncommon
        if (
            type(grid) is int and 0 < grid <= loaded.most_blocks
            and type(block) is int and 0 < block <= loaded.most_threads
            and threads is None
        ):
            x = grid
            y = z = v = w = 1
            u = block
        else:
            x, y, z, u, v, w = shape(loaded, grid, block, threads, shared){submission}
            failed(status, (x, y, z), (u, v, w), ({arguments}), shared, handle)
        return
    return carefully(
        ({arguments}*more,), others, grid=grid, block=block, threads=threads, shared=shared, stream=stream
    )
"""

_BOUND = """
def bound({parameters}*more, **named):
    try:
        if named or more{absent}:
            raise Uncommon
{conversions}{place}
        function, config, address, pointer, launched = {configs}[device, {ambient}]{submission}
            failed(status, ({arguments}), launched)
        return
    return carefully(({arguments}*more,), named)
"""

# How each kind of parameter takes its commonest arguments; all others go through the field's conversion. Of
# an array there is its address, what tells the stream that its library works in, and on machines with several
# GPUs where it lies.
_NUMBER = """
        v{i} = a{i} if type(a{i}) is {common} else convert{i}(a{i})
"""
_ADDRESS = """
        if type(a{i}) is Tensor{of_torch} and {on_gpu} and (v{i} := data_ptr(a{i})):
            s{i} = torch_stream
        elif type(a{i}) is int:
            v{i} = a{i}
            d{i} = s{i} = None
        elif type(a{i}) is Array{of_cupy} and (v{i} := a{i}.data.ptr):
            d{i} = a{i}.data.device_id
            s{i} = cupy_stream
        else:
            memory = convert{i}(a{i})
            v{i} = memory.address
            d{i} = {ordinal}
            s{i} = memory.stream
"""


class _Uncommon(ValueError):
    pass


class _Absent:
    """Stands for an argument that was not given, and its class for libraries that are not loaded."""


_absent = _Absent()


def call(launcher: Launcher, outdated: Callable[[], None]) -> Callable[..., Any]:
    """What calling the kernel is. `outdated` is called once a library of arrays is there that was not."""
    libraries = _libraries()

    def carefully(arguments: tuple[object, ...], keywords: dict[str, Any], **more: Any) -> Any:
        if libraries.keys() != _libraries().keys():
            outdated()
        return launcher.call([a for a in arguments if a is not _absent], {**keywords, **more})

    def failed(
        status: Any, grid: Extents, block: Extents, arguments: tuple[object, ...], shared: int, stream: int
    ) -> None:
        if not _launched_nothing(status):
            _refused(launcher, status, LaunchConfiguration(grid, block, shared))
        carefully(arguments, {}, grid=grid, block=block, shared=shared, stream=stream)

    ready = _numbered("ready", [candidate.ready for candidate in launcher.candidates])
    names = {**ready, "shape": _shape, "carefully": carefully, "failed": failed}
    return _made("call", _CALL, launcher, libraries, names, None)


def bound(launcher: Launcher, options: LaunchOptions, stream: object) -> Callable[..., Any]:
    """What ``Kernel.bind`` returns."""
    if debugging.enabled() or not options.wait:
        return lambda *arguments, **named: launcher.launch(arguments, named, options, stream)
    configs: dict[Launcher, Configs] = {candidate: ProcessCache() for candidate in launcher.candidates}

    def carefully(arguments: tuple[object, ...], named: dict[str, Any]) -> Any:
        given = [a for a in arguments if a is not _absent]
        return launcher.launch(given, named, options, stream, configs)

    def failed(status: Any, arguments: tuple[object, ...], launched: LaunchConfiguration) -> None:
        if not _launched_nothing(status):
            _refused(launcher, status, launched)
        carefully(arguments, {})

    def made() -> Callable[..., Any]:
        tables = _numbered("configs", list(configs.values()))
        names = {**tables, "carefully": carefully, "failed": failed}
        return _made("bound", _BOUND, launcher, _libraries(), names, handle)

    def first(*arguments: Any, **named: Any) -> Any:
        result = carefully(arguments, named)
        # Another thread may be about to call what this supersedes.
        later.__setstate__((made(), (), {}, {"superseded": first}))  # type: ignore[attr-defined]
        return result

    handle = None if stream is None else stream_handle(stream)
    # Nothing opens the driver before a launch.
    later = partial(first)
    return made() if is_open() else later


def _made(
    name: str,
    template: str,
    launcher: Launcher,
    libraries: dict[str, Any],
    names: dict[str, Any],
    stream: int | None,
) -> Callable[..., Any]:
    driver = open_driver()
    numbered = list(enumerate(launcher.fields))
    count = len(numbered)
    pointers = [i for i, field in numbered if field.is_pointer]
    ambient = _ambient([f"s{i}" for i in pointers]) if stream is None else str(stream)
    submitted = submission(launcher, driver, configured=template is _BOUND)
    text = template.format(
        # The kernel's own names are other ones, or even these.
        parameters="".join(f"a{i}=absent, " for i in range(count)) + ("/, " if count else ""),
        # Arguments are given in order, so that the last one tells.
        absent=f" or a{count - 1} is absent" if count else "",
        conversions="".join(_conversion(i, field, driver.count) for i, field in numbered),
        place=f"        device = {_place([f'd{i}' for i in pointers], driver.count)}",
        ambient=ambient,
        ready=launcher.choice("ready"),
        configs=launcher.choice("configs"),
        submission=submitted.text.rstrip(),
        arguments="".join(f"a{i}, " for i in range(count)),
    )
    everything: dict[str, Any] = {
        **names,
        **submitted.names,
        **_of_libraries(libraries, launcher.fields),
        **{f"convert{i}": field.convert for i, field in numbered},
        "Uncommon": _Uncommon,
        "absent": _absent,
        "agree": _agree,
        "ordinal": _ordinal,
        "stream_handle": stream_handle,
        "zero": 0,  # small numbers are singletons
    }
    exec(compile(text, f"<cuda_ext: a launch with {count} arguments>", "exec"), everything)  # noqa: S102
    made: Callable[..., Any] = everything[name]
    return made


def _numbered(name: str, values: Sequence[Any]) -> dict[str, Any]:
    return {f"{name}{i}": value for i, value in enumerate(values)}


def _conversion(i: int, field: Field, gpus: int) -> str:
    if not field.is_pointer:
        common = {"f": "float", "d": "float"}.get(field.format) or (
            "int" if field.parameter.kind in ("integer", "unsigned") and len(field.format) == 1 else "Absent"
        )
        return _NUMBER.format(i=i, common=common).lstrip("\n")
    dtypes = _dtypes(field)
    return _ADDRESS.format(
        i=i,
        # Views may be negated; and conjugated, where any dtype will do and it may be a complex one.
        of_torch=(_holds(f"a{i}.dtype", f"torch{i}", dtypes) or f" and not is_conj(a{i})")
        + f" and not is_neg(a{i})",
        of_cupy=_holds(f"a{i}.dtype", f"cupy{i}", dtypes),
        # On the host it is -1.
        on_gpu=f"not get_device(a{i})" if gpus == 1 else f"(d{i} := get_device(a{i})) >= 0",
        ordinal="None" if gpus == 1 else "ordinal(memory)",
    ).lstrip("\n")


def _holds(dtype: str, name: str, dtypes: Sequence[str] | None) -> str:
    """Whether the array's `dtype` is the one called `name`, or among those; the types are singletons."""
    return "" if dtypes is None else f" and {dtype} {'is' if len(dtypes) == 1 else 'in'} {name}"


def _dtypes(field: Field) -> list[str] | None:
    """The dtypes of arrays that fit; ``None`` if any does. A complex one may be a conjugated view."""
    accepted = accepted_dtypes(field.parameter.element) if field.parameter.element else ()
    return [name for name in accepted if not name.startswith(("complex", "V"))] if accepted else None


def _place(devices: list[str], gpus: int) -> str:
    if gpus == 1:
        return "0"
    if len(devices) < 2:
        return devices[0] if devices else "None"
    return f"{devices[0]} if {' == '.join(devices)} else agree({', '.join(devices)})"


def _ordinal(memory: DeviceMemory) -> int | None:
    """Where `memory` lies. Of a mere address nobody knows, and of an array the driver has to be asked."""
    if memory.device is None and memory.stream is not None and memory.address:
        raise _Uncommon
    return memory.device


def _agree(*devices: int | None) -> int:
    (known,) = {device for device in devices if device is not None}
    return known


def _ambient(streams: list[str]) -> str:
    if not streams:
        return "0"
    return f"stream_of(device) if (stream_of := {' or '.join(streams)}) else 0"


def _libraries() -> dict[str, Any]:
    """The libraries that are loaded and have arrays in device memory."""
    found = {}
    for name, attribute in (("torch", "_C._cuda_getCurrentRawStream"), ("cupy", "ndarray")):
        library: Any = sys.modules.get(name)
        if getattr(getattr(library, "__spec__", None), "_initializing", False):
            continue  # another thread is importing it
        for part in attribute.split("."):
            library = getattr(library, part, None)
        if library is not None:  # PyTorch may not be made for CUDA
            found[name] = sys.modules[name]
    return found


def _of_libraries(libraries: dict[str, Any], fields: Sequence[Field]) -> dict[str, Any]:
    """The arrays of `libraries`, and how to read them; nothing is of the type of one that is not loaded."""
    names: dict[str, Any] = {"Absent": _Absent, "Tensor": _Absent, "Array": _Absent}
    types: dict[str, Callable[[str], Any]] = {}
    if torch := libraries.get("torch"):
        names |= {
            "Tensor": torch.Tensor,
            "data_ptr": torch.Tensor.data_ptr,
            "get_device": torch.Tensor.get_device,
            "is_conj": torch.Tensor.is_conj,
            "is_neg": torch.Tensor.is_neg,
            "torch_stream": torch._C._cuda_getCurrentRawStream,
        }
        types["torch"] = lambda name: getattr(torch, name, None)
    if cupy := libraries.get("cupy"):
        current = cupy.cuda.get_current_stream
        names |= {"Array": cupy.ndarray, "cupy_stream": lambda device: current(device).ptr}
        types["cupy"] = lambda name: None if name == "bfloat16" else cupy.dtype(name)
    for library, type_ in types.items():
        for i, field in enumerate(fields):
            if field.is_pointer:
                found = [type_(name) for name in _dtypes(field) or ()]
                names[f"{library}{i}"] = found[0] if len(found) == 1 else tuple(found)
    return names


def _shape(
    loaded: LoadedKernel, grid: Any, block: Any, threads: Any, shared: int
) -> tuple[int, int, int, int, int, int]:
    if threads is not None:
        if type(threads) is not int or threads < 0 or grid is not None or block is not None:
            raise _Uncommon
        u = loaded.best_block(shared)
        x = -(-threads // u) or 1
        if x > loaded.most_blocks:
            raise _Uncommon
        return x, 1, 1, u, 1, 1
    device: Device = loaded.device
    x, y, z = _extents(grid)
    u, v, w = _extents(block)
    xs, ys, zs = device.largest_grid
    us, vs, ws = device.largest_block
    if not (
        0 < x <= xs
        and 0 < y <= ys
        and 0 < z <= zs
        and 0 < u <= us
        and 0 < v <= vs
        and 0 < w <= ws
        and u * v * w <= loaded.most_threads
    ):
        raise _Uncommon
    return x, y, z, u, v, w


def _extents(value: Any) -> Extents:
    if type(value) is int:
        return value, 1, 1
    if type(value) is not tuple or not _INT.issuperset(map(type, value)):
        raise _Uncommon
    return (*value, 1, 1)[:3] if len(value) < 3 else value


_INT = {int}


def _launched_nothing(status: Any) -> bool:
    """Whether to try again with care."""
    # The default stream is that of the current context: there is none (CUDA_ERROR_INVALID_CONTEXT), or it is
    # on another GPU than the kernel (CUDA_ERROR_INVALID_HANDLE). Or _launch.c did not take an argument.
    return not isinstance(status, ValueError) and int(status) in (201, 400, -1)


def _refused(launcher: Launcher, status: Any, launch: LaunchConfiguration) -> None:
    driver = open_driver()
    try:
        error = driver.error("the launch", driver.api.CUresult(int(status)))
    except ValueError as unknown:  # to cuda-bindings, which are older than the driver
        error = DriverCallError(f"the launch failed: {unknown}")
    launcher.raise_launch_error(error, driver, launch)
