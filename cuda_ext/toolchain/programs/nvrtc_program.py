"""An ``nvrtcProgram``, with requests for images, lowered names, and types."""

from __future__ import annotations

import ctypes
import os
import re
from _thread import allocate_lock
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, cached_property

from cuda_ext.compiler.signatures.attempt import Answers, Attempt
from cuda_ext.compiler.signatures.probes import PROBES
from cuda_ext.compiler.translation_unit import NAMED, TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import ImageKind
from cuda_ext.toolchain.cuda_libraries import open_library
from cuda_ext.toolchain.diagnostics import name_map_lines
from cuda_ext.toolchain.programs.recorded_commands import record_command

# A header within NVRTC, and our header with the declaration of probes.
_PROBES = "cuda_ext_probes.h"
OWN_HEADERS = ("__nv_nvrtc_builtin_header.h", _PROBES)
# Of the first name expression, which are sorted, in the file of which errors about them tell.
_FIRST_LINE = 2
# An error of a probe whose types are of an anonymous namespace.
_INTERNAL = r"cuda_ext_probe::probe<T, ?subject>\(\) \[with [^\n]*?\bsubject=(\d+)"
# A message of each compilation that used precompiled headers. Options may silence the warning of other ones.
_PRECOMPILED = r'(?m)^"[^"\n]*": using precompiled header file "[^"\n]*"\n?'


# Options of ours that older versions lack: the first before 12.9, where internal names differ each time, and
# the others before 12.4.
_NO_IMAGE = "-fdevice-syntax-only"
_DISPENSABLE = ("--frandom-seed=", "--minimal", _NO_IMAGE, "--time=")


@cache
def knows_option(option: str) -> bool:
    """Return True if NVRTC has `option`, without the value after an equals sign.

    A second option, which none has, ends the call before anything is compiled.
    """
    program = NvrtcProgram(TranslationUnit("options.cu", b""))
    program.try_compile([option, "--cuda-ext-none"])
    return f"unrecognized option {option} found" not in program.log


def _is_known(option: str) -> bool:
    """Return False if this version of NVRTC lacks `option`, one that it can do without."""
    return all(knows_option(name) for name in _DISPENSABLE if option.startswith(name))


def minimal_options(unit: TranslationUnit) -> list[str]:
    """Return the option that omits the declarations of textures, surfaces and the device runtime.

    They precede every source, and take a third of the time of a small compilation. The images are the same.
    There is none if `unit` may need one of these declarations.
    """
    texts = (unit.source, *unit.headers.values())
    may_need = unit.needs_toolkit or any(re.search(rb"\b(?:cuda|tex|surf)|<<<", text) for text in texts)
    return [] if may_need else ["--minimal"]


class NvrtcProgram:
    """One ``nvrtcProgram``, destroyed with the object; `asked` are names and types to ask for.

    Without `asked`, these are the lowered names of the unit's instantiations.
    """

    def __init__(self, unit: TranslationUnit, asked: Attempt | None = None) -> None:
        self._handle = ctypes.c_void_p()
        self._nvrtc = open_library("nvrtc")
        self._name = unit.name
        self._asked = asked or Attempt(unit.instantiate)
        self._expressions = self._asked.expressions
        # A header of the project keeps its name, which macros do not make then.
        named = {name.removeprefix(NAMED): text for name, text in unit.headers.items()}
        headers = {**named, **unit.headers, _PROBES: PROBES.encode()}
        names, contents = (_pointers(each) for each in ([n.encode() for n in headers], headers.values()))
        source, name = self._asked.append_to(unit.source), unit.name.encode()
        handle = ctypes.byref(self._handle)
        self._check(self._nvrtc.nvrtcCreateProgram(handle, source, name, len(names), contents, names))
        for expression in self._expressions:
            self._check(self._nvrtc.nvrtcAddNameExpression(self._handle, expression.encode()))

    def compile(self, options: Sequence[str]) -> bool:
        """Compile, and return True on success. :attr:`log` has the compiler's text in any case.

        Options of ours that this version lacks are left out.
        """
        # Without a probe, too: units can only use precompiled headers that begin with the same header.
        options = [*filter(_is_known, options), f"--pre-include={_PROBES}"]
        if _NO_IMAGE in options:
            options.append("-DCUDA_EXT_DEFINE_PROBES")
        record_command("nvrtc", *options, self._name)
        return self.try_compile(options)

    def try_compile(self, options: Sequence[str]) -> bool:
        """Compile with exactly these `options`, and return True on success."""
        arguments = _pointers([option.encode() for option in options])
        with _nameless_directory() if _WITH_NAMES.intersection(options) else nullcontext():
            status: int = self._nvrtc.nvrtcCompileProgram(self._handle, len(arguments), arguments)
        return status == 0

    @staticmethod
    def log_of(options: Sequence[str], unit: TranslationUnit) -> str:
        """Compile `unit` with `options`, and return the compiler's text."""
        program = NvrtcProgram(unit)
        program.compile(options)
        return program.log

    @property
    def log(self) -> str:
        return re.sub(_PRECOMPILED, "", self._messages)

    @property
    def used_precompiled_headers(self) -> bool:
        return re.search(_PRECOMPILED, self._messages) is not None

    @property
    def _messages(self) -> str:
        return self._result("ProgramLog").rstrip(b"\0 \n").decode(errors="replace")

    def image(self, kind: ImageKind) -> bytes:
        data = self._result("TileIR" if kind == "tileir" else kind.upper())
        return data.rstrip(b"\0") if kind == "ptx" else data

    def _result(self, kind: str) -> bytes:
        """The program's ``PTX``, ``CUBIN``, ``LTOIR``, ``TileIR`` or ``ProgramLog``."""
        size = ctypes.c_size_t()
        self._check(self._nvrtc[f"nvrtcGet{kind}Size"](self._handle, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(self._nvrtc[f"nvrtcGet{kind}"](self._handle, buffer))
        return buffer.raw

    @cached_property
    def answers(self) -> Answers:
        return self._asked.read(list(map(self._lowered_name, self._expressions)))

    def rejected(self) -> set[int]:
        """Return the indices of the expressions that were rejected.

        The compiler knows no such name or several, or a kernel has a parameter of an anonymous namespace.
        """
        in_order = sorted(set(self._expressions), key=str.encode)
        names = {in_order[line - _FIRST_LINE] for line in name_map_lines(self.log)}
        unknown = {index for index, expression in enumerate(self._expressions) if expression in names}
        first_probe = len(self._asked.instantiate) + len(self._asked.addresses)
        return unknown | {first_probe + int(index) for index in re.findall(_INTERNAL, self.log)}

    def _lowered_name(self, expression: str) -> str:
        name, lowered = expression.encode(), ctypes.c_char_p()
        self._check(self._nvrtc.nvrtcGetLoweredName(self._handle, name, ctypes.byref(lowered)))
        return (lowered.value or b"").decode()

    def _check(self, status: int) -> None:
        if status:
            self._nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise CompilationError(f"NVRTC: {self._nvrtc.nvrtcGetErrorString(status).decode()}")

    def __del__(self) -> None:
        if self._handle:
            self._nvrtc.nvrtcDestroyProgram(ctypes.byref(self._handle))


def _pointers(texts: Collection[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*texts)


# With these options, line tables and LTO-IR contain the working directory.
_WITH_NAMES = {"-dlto", "-lineinfo", "--generate-line-info", "-G", "--device-debug"}
_environment = allocate_lock()


@contextmanager
def _nameless_directory() -> Iterator[None]:
    """Keep the working directory out of line tables.

    NVRTC takes its name from PWD if that leads to it; ``/proc/self/cwd`` does so in every process.
    """
    with _environment:
        before = os.environ.get("PWD")
        os.environ["PWD"] = "/proc/self/cwd"
        try:
            yield
        finally:
            if before is None:
                del os.environ["PWD"]
            else:
                os.environ["PWD"] = before
