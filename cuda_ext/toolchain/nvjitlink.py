"""Link relocatable device code, PTX and LTO-IR with nvJitLink, without a driver or a GPU."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from typing import Literal

from cuda_ext.compiler.jobs import LinkInput
from cuda_ext.errors import CompilationError, ToolchainError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.symbols import Symbol
from cuda_ext.formats import ptx
from cuda_ext.formats.cubin import read_cubin
from cuda_ext.time_limit import call_within
from cuda_ext.toolchain import cuda_packages
from cuda_ext.toolchain.cuda_libraries import library_version, open_library
from cuda_ext.toolchain.diagnostics import shorten_output
from cuda_ext.toolchain.programs.recorded_commands import record_command

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
    """Link `inputs` to one image for `architecture`: a cubin, or PTX if all inputs are LTO-IR.

    The device runtime library is added if they refer to it. Raises
    :class:`~cuda_ext.errors.CompilationError` with the linker's own text.
    """
    _check_definitions(inputs)
    inputs = [LinkInput(item.name, "ptx", item.text) if item.text else item for item in inputs]
    try:
        return _link(inputs, architecture)[0]
    except CompilationError as error:
        if "__cuda" not in error.problem:
            raise
    library = cuda_packages.cudadevrt(library_version("nvjitlink")[0], open_library("nvjitlink")._name)
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
    """Compile the LTO-IR of a whole program, and keep `variables` and the variables that kernels use.

    It assumes that the host does not write any other variable: `variables` must contain all that it may
    write.

    NVRTC itself keeps all variables, such as each ``static constexpr`` member in a header. `options` are the
    options that affect code. Returns the cubin or PTX, and the compiler's messages.
    """
    used = [f"-variables-used={','.join(variables)}"] if variables else []
    return _link([ltoir], architecture, options=[*_LEAN, *used, *options])


def list_variables(ltoir: LinkInput, architecture: Architecture) -> list[str]:
    """List the lowered names of all variables in LTO-IR."""
    return list(ptx.variables(_link([ltoir], architecture.as_kind("ptx"), options=["-O0"])[0]))


@cache
def can_optimise() -> bool:
    """Return True if :func:`optimise` can use the installed nvJitLink: it must read NVRTC's output."""
    try:
        if library_version("nvjitlink") < library_version("nvrtc"):
            return False
        _Link(["-arch=sm_90", "-lto", *_LEAN]).close()
    except (ToolchainError, CompilationError):
        return False
    return True


_LEAN = ("-optimize-unused-variables",)


def _link(
    inputs: Sequence[LinkInput],
    architecture: Architecture,
    libraries: Sequence[str] = (),
    options: Sequence[str] = (),
) -> tuple[bytes, str]:
    """Link in a separate thread.

    nvJitLink keeps state for each thread. After a fatal error, such as an unsupported version of PTX, every
    further link in that thread accepts undefined functions, or crashes.
    """
    options = [f"-arch=sm_{architecture.target}", *options]
    if any(i.kind == "ltoir" for i in inputs):
        options.append("-lto")
    if architecture.kind == "ptx":
        options.append("-ptx")
    record_command("nvjitlink", *options, *(i.name for i in inputs), *libraries)
    return call_within(None, _link_here, inputs, architecture, libraries, options)


def _link_here(
    inputs: Sequence[LinkInput],
    architecture: Architecture,
    libraries: Sequence[str],
    options: Sequence[str],
) -> tuple[bytes, str]:
    try:
        opened = _Link(options)
    except CompilationError as error:
        raise CompilationError(
            f"nvJitLink refuses {architecture}: {error}",
            remedy="install an nvJitLink that is as new as the compiler",
        ) from None
    with closing(opened) as linking:
        try:
            for item in inputs:
                linking.add(item)
            for library in libraries:
                linking.call("AddFile", _INPUT_TYPES["library"], os.fsencode(library))
            linking.call("Complete")
            data = linking.read("LinkedPtx" if architecture.kind == "ptx" else "LinkedCubin")
            data = data.rstrip(b"\0") if architecture.kind == "ptx" else data
            return data, _INFORMATION.sub("", linking.log("Info")).strip()
        except CompilationError as error:
            text = _STATUS.sub("", linking.log("Error")).strip()
            if twice := _MULTIPLY_DEFINED.search(text):
                raise _defined_twice(inputs, architecture, twice["name"], twice["symbol"]) from None
            if "Undefined reference" in text or "Unresolved extern" in text:
                text += "\nname the source that defines it in sources, or leave out what refers to it"
            raise CompilationError(shorten_output(text) or str(error)) from None


# Of nvJitLinkInputType.
_INPUT_TYPES = {"cubin": 1, "ptx": 2, "ltoir": 3, "library": 6}


class _Link:
    """An ``nvJitLinkHandle``, which :meth:`close` destroys.

    All other calls raise :class:`CompilationError` with the status if they fail.
    """

    def __init__(self, options: Sequence[str]) -> None:
        self._library = open_library("nvjitlink")
        self._handle = ctypes.c_void_p()
        # The linker refers to the names of its inputs until it is destroyed.
        self._names: list[bytes] = []
        spelled = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        _check(self._library.nvJitLinkCreate(ctypes.byref(self._handle), len(options), spelled))

    def call(self, name: str, *arguments: object) -> None:
        """Call the function ``nvJitLink`` + `name`."""
        _check(self._library[f"nvJitLink{name}"](self._handle, *arguments))

    def add(self, item: LinkInput) -> None:
        self._names.append(item.name.encode())
        kind, size = _INPUT_TYPES[item.kind], ctypes.c_size_t(len(item.data))
        self.call("AddData", kind, item.data, size, self._names[-1])

    def read(self, what: str) -> bytes:
        """Read the output of the functions ``nvJitLinkGet`` + `what`."""
        size = ctypes.c_size_t()
        self.call(f"Get{what}Size", ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        if size.value:
            self.call(f"Get{what}", buffer)
        return buffer.raw

    def log(self, which: Literal["Info", "Error"]) -> str:
        return self.read(f"{which}Log").rstrip(b"\0").decode(errors="replace")

    def close(self) -> None:
        self._library.nvJitLinkDestroy(ctypes.byref(self._handle))


def _check(status: int) -> None:
    if status:
        raise CompilationError(f"error {status}")


def _defined_twice(
    inputs: Sequence[LinkInput], architecture: Architecture, name: str, symbol: str
) -> CompilationError:
    """Return the error for `symbol`, defined by the input `name` and another one that the linker omits."""
    others = [item for item in inputs if item.name != name]
    if len(others) > 1:
        (one,) = (item for item in inputs if item.name == name)
        others = [item for item in others if _are_in_conflict([item, one], architecture, symbol)]
    first = others[0].name if others else "another one"
    return _both_define(first, name, symbol)


def _both_define(one: str, other: str, symbol: str) -> CompilationError:
    return CompilationError(
        f"{one} and {other} both define {symbol}", remedy="rename one of them or put it into a namespace"
    )


def _are_in_conflict(inputs: Sequence[LinkInput], architecture: Architecture, symbol: str) -> bool:
    try:
        _link(inputs, architecture)
    except CompilationError as error:
        return error.problem.endswith(f" both define {symbol}")
    return False


def _check_definitions(inputs: Sequence[LinkInput]) -> None:
    """Find symbols that several cubins define, and variables whose declaration differs from the definition.

    nvJitLink takes the last definition, and links both variables.
    """
    first: dict[str, str] = {}
    variables: dict[str, Symbol] = {}
    cubins = [(item.name, read_cubin(item.data)) for item in inputs if item.kind == "cubin"]
    for item, cubin in cubins:
        for name, linkage in cubin.defined.items():
            # Weak definitions are equal. Local ones do not collide, but kernels are looked up by name.
            if linkage == "weak" or (linkage == "local" and name not in cubin.kernels):
                continue
            if name in first:
                raise _both_define(first[name], item, name)
            first[name] = item
            if name in cubin.variables:
                variables[name] = cubin.variables[name]
    for item, cubin in cubins:
        for name in cubin.external.keys() & variables.keys():
            declared, variable = cubin.external[name], variables[name]
            if declared.space != variable.space or declared.size not in (0, variable.size):
                raise CompilationError(
                    f"{item} declares {name} with {declared.size} bytes of {declared.space} memory, but "
                    f"{first[name]} defines it with {variable.size} bytes of {variable.space} memory",
                    remedy="declare it in a header that both include",
                )
