"""An ``nvrtcProgram``, with requests for images, lowered names, and types."""

from __future__ import annotations

import ctypes
import os
import re
from _thread import allocate_lock
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, cached_property
from typing import NamedTuple

from cuda_ext.compiler.signatures.probes import PROBES, Probed, probe, probe_type, read_probe
from cuda_ext.compiler.signatures.spellings import (
    NO_QUESTIONS,
    Questions,
    append_questions,
    read_answers,
    rejected_lines,
)
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
_DISPENSABLE = ("--frandom-seed=", "--minimal", "-fdevice-syntax-only", "--time=")


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


class Attempt(NamedTuple):
    """One compilation of a unit: the parts that it may go without."""

    subjects: Sequence[str]
    addresses: Sequence[str]
    questions: Questions
    minimal: list[str]
    precompiled: list[str]
    tracing: list[str]
    has_restored_headers: bool = False

    @property
    def more_options(self) -> list[str]:
        return [*self.minimal, *self.precompiled, *self.tracing]


class NvrtcProgram:
    """One ``nvrtcProgram``, destroyed with the object.

    It lowers the names of instantiations and of the variables at `addresses`, and has probes for `subjects`
    and for the `questions` about spellings.
    """

    def __init__(
        self,
        unit: TranslationUnit,
        subjects: Sequence[str] = (),
        addresses: Sequence[str] = (),
        questions: Questions = NO_QUESTIONS,
    ) -> None:
        self._handle = ctypes.c_void_p()
        self._nvrtc = open_library("nvrtc")
        self._name = unit.name
        self._requested = unit.instantiate
        self._addresses = addresses
        self._probes = {probe(subject, index): subject for index, subject in enumerate(subjects)}
        self._questions = questions
        asked = enumerate(questions.types.items(), len(subjects))
        self._asked = {probe_type(type_, index): name for index, (name, type_) in asked}
        # A header of the project keeps its name, which macros do not make then.
        named = {name.removeprefix(NAMED): text for name, text in unit.headers.items()}
        headers = {**named, **unit.headers, _PROBES: PROBES.encode()}
        names, contents = (_pointers(each) for each in ([n.encode() for n in headers], headers.values()))
        source, name = append_questions(unit.source, questions), unit.name.encode()
        handle = ctypes.byref(self._handle)
        self._check(self._nvrtc.nvrtcCreateProgram(handle, source, name, len(names), contents, names))
        for expression in (*unit.instantiate, *addresses, *self._probes, *self._asked):
            self._check(self._nvrtc.nvrtcAddNameExpression(self._handle, expression.encode()))

    def compile(self, options: Sequence[str]) -> bool:
        """Compile, and return True on success. :attr:`log` has the compiler's text in any case.

        Options of ours that this version lacks are left out.
        """
        # Without a probe, too: units can only use precompiled headers that begin with the same header.
        options = [*filter(_is_known, options), f"--pre-include={_PROBES}"]
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
    def names(self) -> dict[str, str]:
        """The lowered name of each requested instantiation."""
        return {expression: self._lowered_name(expression) for expression in self._requested}

    @property
    def addresses(self) -> list[str]:
        """The lowered names of the variables."""
        return list(map(self._lowered_name, self._addresses))

    @cached_property
    def probed(self) -> dict[str, Probed]:
        """The types of the subjects."""
        types = {s: read_probe(self._lowered_name(expression)) for expression, s in self._probes.items()}
        return {subject: found for subject, found in types.items() if found is not None}

    @cached_property
    def answers(self) -> dict[str, str]:
        """The meanings of the names in the questions."""
        lowered = {asked: self._lowered_name(expression) for expression, asked in self._asked.items()}
        return read_answers(self._questions, lowered)

    def rejected(self) -> set[str]:
        """The subjects and addresses that were rejected.

        The compiler knows no such name or several, or a kernel has a parameter of an anonymous namespace.
        """
        names, subjects = self._refused_expressions(), list(self._probes.values())
        unknown = {subject for expression, subject in self._probes.items() if expression in names}
        indices = (int(index) for index in re.findall(_INTERNAL, self.log))
        internal = {subjects[index] for index in indices if index < len(subjects)}
        return unknown | internal | (names & set(self._addresses))

    @property
    def accepted_questions(self) -> Questions:
        """The questions without the rejected ones."""
        names = self._refused_expressions()
        internal = set(map(int, re.findall(_INTERNAL, self.log)))
        asked = enumerate(self._asked.items(), len(self._probes))
        rejected = [name for i, (expression, name) in asked if expression in names or i in internal]
        return self._questions.accepted(rejected, rejected_lines(self.log))

    def _refused_expressions(self) -> set[str]:
        expressions = {*self._requested, *self._addresses, *self._probes, *self._asked}
        in_order = sorted(expressions, key=str.encode)
        return {in_order[line - _FIRST_LINE] for line in name_map_lines(self.log)}

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
