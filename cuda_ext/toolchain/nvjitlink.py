"""nvJitLink: device-links relocatable code, and assembles PTX and LTO-IR. No driver, no GPU."""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from cuda_ext.compiler.jobs import LinkInput
from cuda_ext.errors import CompilationError, ToolchainError
from cuda_ext.formats import ptx
from cuda_ext.formats.architecture import Architecture
from cuda_ext.formats.cubin import read_cubin
from cuda_ext.toolchain import cuda_packages
from cuda_ext.toolchain.bindings import binding

__all__ = ["can_optimise", "link", "list_variables", "optimise"]

# Lines of a log that only repeat that there was an error.
_STATUS = re.compile(
    r"^ERROR (?:\d+: (?:complete|finish)|NVJITLINK_ERROR_PTX_COMPILE: .*|NVVM_ERROR_COMPILATION .*"
    r"|in nvvmCompileProgram: .*)$\n?",
    re.MULTILINE,
)
_MULTIPLY_DEFINED = re.compile(
    r"(?m)^(?P<name>.+): link error: error: Linking globals named '(?P<symbol>.+)': symbol multiply defined!"
)
_INFORMATION = re.compile(r"^INFO: .*$\n?", re.MULTILINE)


def link(inputs: Sequence[LinkInput], architecture: Architecture) -> bytes:
    """Link `inputs` to one image for `architecture`: a cubin, or PTX where all inputs are LTO-IR.

    The device runtime library is added where they refer to it. Raises
    :class:`~cuda_ext.errors.CompilationError` with the linker's own text.
    """
    _check_defined_once(inputs)
    try:
        return _link(inputs, architecture)[0]
    except CompilationError as error:
        if "__cuda" not in error.problem:
            raise
    library = cuda_packages.cudadevrt(binding("nvjitlink").version()[0])
    if library is None:
        raise CompilationError(
            "the code launches kernels from the device, which needs the device runtime library (cudadevrt)",
            remedy='add "cuda-ext[cu13]" (or "cuda-ext[cu12]") to requires in [build-system], which brings '
            "it, or set CUDA_PATH to a CUDA toolkit",
        )
    return _link(inputs, architecture, [library])[0]


def optimise(
    ltoir: LinkInput, architecture: Architecture, options: Sequence[str], variables: Sequence[str]
) -> tuple[bytes, str]:
    """Compile the LTO-IR of a whole program without the variables that no kernel uses, but `variables`.

    Of all others it assumes that the host does not write them: `variables` must have those that it may write.
    They are parts of lowered names, so a short one keeps more than it names.

    NVRTC itself keeps all variables, such as each ``static constexpr`` member in a header. `options` are
    those that decide on code. Returns the cubin or PTX, and the compiler's messages.
    """
    verbose = ["-Xptxas=-v"] if architecture.kind == "cubin" else []
    used = [f"-variables-used={','.join(variables)}"] if variables else []
    return _link([ltoir], architecture, options=[*_LEAN, *used, *options, *verbose])


def list_variables(ltoir: LinkInput, architecture: Architecture) -> list[str]:
    """The lowered names of all variables in LTO-IR."""
    return list(ptx.variables(_link([ltoir], architecture.as_kind("ptx"))[0]))


@cache
def can_optimise() -> bool:
    """Whether there is an nvJitLink that :func:`optimise` can use."""
    try:
        nvjitlink = binding("nvjitlink")
        options = ["-arch=sm_90", "-lto", *_LEAN]
        nvjitlink.destroy(nvjitlink.create(len(options), options))
    except (ToolchainError, RuntimeError):
        return False
    return True


_LEAN = ("-optimize-unused-variables",)


def _link(
    inputs: Sequence[LinkInput],
    architecture: Architecture,
    libraries: Sequence[Path] = (),
    options: Sequence[str] = (),
) -> tuple[bytes, str]:
    """Link in a thread of its own.

    nvJitLink keeps state for each thread. After a fatal error, such as an unsupported version of PTX, every
    further link in that thread accepts undefined functions, or crashes.
    """
    outcome: list[tuple[bytes, str] | Exception] = []

    def run() -> None:
        try:
            outcome.append(_link_here(inputs, architecture, libraries, options))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _link_here(
    inputs: Sequence[LinkInput],
    architecture: Architecture,
    libraries: Sequence[Path],
    options: Sequence[str],
) -> tuple[bytes, str]:
    nvjitlink = binding("nvjitlink")
    options = [f"-arch=sm_{architecture.target}", *options]
    if any(i.kind == "ltoir" for i in inputs):
        options.append("-lto")
    if architecture.kind == "ptx":
        options.append("-ptx")
    try:
        handle = nvjitlink.create(len(options), options)
    except nvjitlink.nvJitLinkError as error:
        raise CompilationError(
            f"nvJitLink refuses {architecture}: {error}",
            remedy='install nvJitLink and the compiler of one CUDA, as "cuda-ext[cu13]" does',
        ) from None
    # The linker refers to names until its end.
    names = {item.name: item.name.encode() for item in inputs}
    try:
        for item in inputs:
            input_type = getattr(nvjitlink.InputType, item.kind.upper())
            if status := _add_data()(handle, input_type, item.data, len(item.data), names[item.name]):
                raise nvjitlink.nvJitLinkError(status)
        for library in libraries:
            nvjitlink.add_file(handle, nvjitlink.InputType.LIBRARY, str(library))
        nvjitlink.complete(handle)
        what = "ptx" if architecture.kind == "ptx" else "cubin"
        image = bytearray(getattr(nvjitlink, f"get_linked_{what}_size")(handle))
        getattr(nvjitlink, f"get_linked_{what}")(handle, image)
        data = bytes(image).rstrip(b"\0") if what == "ptx" else bytes(image)
        return data, _INFORMATION.sub("", _log(nvjitlink, handle, "info")).strip()
    except nvjitlink.nvJitLinkError as error:
        text = _STATUS.sub("", _log(nvjitlink, handle, "error")).strip()
        if twice := _MULTIPLY_DEFINED.search(text):
            raise _defined_twice(inputs, architecture, twice["name"], twice["symbol"]) from None
        if "Undefined reference" in text or "Unresolved extern" in text:
            text += "\nname the source that defines it in sources, or leave out what refers to it"
        raise CompilationError(text or str(error)) from None
    finally:
        nvjitlink.destroy(handle)


@cache
def _add_data() -> Callable[..., int]:
    """nvJitLinkAddData itself: that of cuda-bindings frees the name of the input before the link."""
    import ctypes  # slow to import

    functions = importlib.import_module("cuda.bindings._internal.nvjitlink")
    address = functions._inspect_function_pointer("__nvJitLinkAddData")
    arguments = (ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p)
    return ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(address)


def _defined_twice(
    inputs: Sequence[LinkInput], architecture: Architecture, name: str, symbol: str
) -> CompilationError:
    """The error for `symbol`, which the input `name` and another one, which the linker omits, define."""
    others = [item for item in inputs if item.name != name]
    if len(others) > 1:
        (one,) = (item for item in inputs if item.name == name)
        others = [item for item in others if _are_in_conflict([item, one], architecture, symbol)]
    first = others[0].name if others else "another one"
    return CompilationError(
        f"{first} and {name} both define {symbol}", remedy="rename one of them or put it into a namespace"
    )


def _are_in_conflict(inputs: Sequence[LinkInput], architecture: Architecture, symbol: str) -> bool:
    try:
        _link(inputs, architecture)
    except CompilationError as error:
        return error.problem.endswith(f" both define {symbol}")
    return False


def _log(nvjitlink: Any, handle: int, which: Literal["info", "error"]) -> str:
    log = bytearray(getattr(nvjitlink, f"get_{which}_log_size")(handle))
    if log:
        getattr(nvjitlink, f"get_{which}_log")(handle, log)
    return bytes(log).rstrip(b"\0").decode(errors="replace")


def _check_defined_once(inputs: Sequence[LinkInput]) -> None:
    """Find what several cubins define; nvJitLink would silently take the last definition."""
    first: dict[str, str] = {}
    for item in inputs:
        if item.kind != "cubin":
            continue
        cubin = read_cubin(item.data)
        for name, linkage in cubin.defined.items():
            # Weak definitions are equal. Local ones do not collide, but kernels are looked up by name.
            if linkage == "weak" or (linkage == "local" and name not in cubin.kernels):
                continue
            if name in first:
                raise CompilationError(
                    f"{first[name]} and {item.name} both define {name}",
                    remedy="rename one of them or put it into a namespace",
                )
            first[name] = item.name
