"""NVRTC, in this process, through ``cuda.bindings.nvrtc``: no host compiler, no driver, no GPU."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from cuda_ext.compiler.compile_options import NOT_WITH_DEBUG, include_directories, nvrtc_options
from cuda_ext.compiler.products import HEADER, NO_TRACE, CompiledImage, Signatures, Span, Trace
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError, ToolchainError
from cuda_ext.formats.architecture import Architecture
from cuda_ext.manifest import ImageKind
from cuda_ext.toolchain import cuda_packages
from cuda_ext.toolchain.bindings import binding, library_files
from cuda_ext.toolchain.diagnostics import VERBOSE, attach_log, read_time_trace
from cuda_ext.toolchain.header_dependencies import header_names

__all__ = ["Nvrtc"]

# A header within NVRTC itself.
_BUILT_IN = "__nv_nvrtc_builtin_header.h"


class Nvrtc:
    """The :class:`~cuda_ext.compiler.translation_unit.Compiler` that needs nothing but wheels.

    With a `scratch` directory it records which headers it reads, and with `timed` how long each phase takes.
    Raises :class:`~cuda_ext.errors.ToolchainError`, when it is first needed, if NVRTC cannot be loaded.
    """

    name = "nvrtc"
    # Set once a traced compilation has failed in this process: NVRTC 13.5 then writes the trace of the next
    # one to the file ".json" in the working directory, unless that names a file of its own.
    _traces_all = False

    def __init__(self, scratch: Path | None = None, timed: bool = False) -> None:
        self._scratch = scratch
        self._timed = timed

    @cached_property
    def _nvrtc(self) -> Any:
        return binding("nvrtc")

    def remember(self, version: str) -> None:
        self.__dict__["version"] = version

    @cached_property
    def version(self) -> str:
        _, major, minor = self._nvrtc.nvrtcVersion()
        return f"{major}.{minor}"

    def files(self) -> Sequence[Path]:
        return library_files("nvrtc")

    @cached_property
    def header_directories(self) -> list[Path]:
        """The directories of CUDA's and CCCL's headers, and of other CUDA libraries from the registry."""
        major, minor = map(int, self.version.split("."))
        bundled = cuda_packages.unpacked_headers(self.version)
        # NVRTC unpacks headers since 13.3; cuda-bindings may be older.
        if not bundled and (major, minor) >= (13, 3) and hasattr(self._nvrtc, "nvrtcInstallBundledHeaders"):
            bundled = cuda_packages.unpack_headers(self.version, self._unpack_headers)
        own = [bundled, bundled / "cccl"] if bundled else []
        return own + cuda_packages.header_directories(major, next(iter(self.files()), None))

    def search_path(self, unit: TranslationUnit) -> Sequence[Path]:
        return [*include_directories(unit.options), *self.header_directories]

    def capabilities(self) -> tuple[int, ...]:
        _, architectures = self._nvrtc.nvrtcGetSupportedArchs()
        return tuple(sorted(architectures))

    @cache  # noqa: B019 - one instance lives as long as the build
    def supports(self, architecture: Architecture) -> bool:
        if not architecture.suffix:
            return architecture.number in self.capabilities()
        program = _Program(self._nvrtc, TranslationUnit("empty.cu", b""))
        return program.compile([f"-arch=compute_{architecture.target}"])

    def compile(
        self, unit: TranslationUnit, architectures: Sequence[Architecture]
    ) -> tuple[CompiledImage, ...]:
        # A build without changes opens the compiler for its files alone.
        from cuda_ext.compiler.reflection import read_image

        # On the way to a cubin comes the PTX of its virtual architecture.
        last = min(architectures)
        options = [*self._options(unit), *_target(last), *(VERBOSE if last.kind == "cubin" else ())]
        names_directory = last.kind == "ltoir" or _WITH_LINES.intersection(options)
        program, trace = self._run(unit, options, _nameless_directory() if names_directory else nullcontext())
        images = [read_image(a, program.image(a.kind)) for a in architectures]
        return tuple(attach_log(image, program.log, trace) for image in images)

    def reflect(self, unit: TranslationUnit, architecture: Architecture) -> Signatures:
        from cuda_ext.compiler.reflection import reflect_debug_ptx

        # pyelftools, which reads DWARF, takes as long to import as NVRTC takes for a small source.
        with suppress(RuntimeError):  # the system may refuse another thread
            threading.Thread(target=_import_dwarf, daemon=True).start()
        options = [o for o in self._options(unit) if o not in NOT_WITH_DEBUG]
        # Nothing of this pass ships, so line tables may name the working directory.
        program, trace = self._run(
            unit, [*options, f"-arch=compute_{architecture.target}", "-G"], nullcontext()
        )
        signatures = reflect_debug_ptx(program.image("ptx"), {unit.name, *unit.headers})
        names = {expression: program.lowered_name(expression) for expression in unit.instantiate}
        return replace(signatures, names=names, trace=trace)

    def _run(
        self, unit: TranslationUnit, options: list[str], environment: AbstractContextManager[None]
    ) -> tuple[_Program, Trace]:
        """Compile `unit` in that `environment`; return the program and its trace."""
        with environment, self._time_trace(unit) as (tracing, spans):
            for more in ([_MINIMAL], []) if _is_simple(unit) else ([],):
                program = _Program(self._nvrtc, unit)
                if succeeded := program.compile([*options, *more, *tracing]):
                    break
        if not succeeded:
            Nvrtc._traces_all = Nvrtc._traces_all or bool(tracing)
            from cuda_ext.toolchain.remedies.failed_compilation import explain  # rarely used

            # Finding the directories may unpack the headers.
            raise CompilationError(explain(program.log, unit, lambda: self.header_directories))
        if self._scratch is None:
            return program, NO_TRACE
        opened = [span.detail for span in spans if span.name == HEADER and span.detail != _BUILT_IN]
        # Without a header, the search path is not needed; finding it may unpack NVRTC's own headers.
        reads = header_names(opened, unit, self.search_path(unit) if opened else ())
        return program, Trace(reads, tuple(spans) if self._timed else ())

    @contextmanager
    def _time_trace(self, unit: TranslationUnit) -> Iterator[tuple[list[str], list[Span]]]:
        """Yield the options for a time trace, and a list that receives its spans at the end."""
        spans: list[Span] = []
        # A source that includes nothing reads no header, and tracing takes time.
        silent = not (self._timed or unit.may_include or self._traces_all)
        if self._scratch is None or silent:
            yield [], spans
            return
        yield [f"-fdevice-time-trace={self._scratch / 'trace'}"], spans
        file = self._scratch / "trace.json"
        with suppress(FileNotFoundError):
            content = file.read_bytes()
            file.unlink()  # NVRTC would append to it
            spans += read_time_trace(content)

    def _options(self, unit: TranslationUnit) -> list[str]:
        # Finding the directories may take unpacking the headers.
        directories = self.header_directories if _needs_toolkit(unit) else []
        return [*nvrtc_options(unit.name, unit.options), *(f"-I{directory}" for directory in directories)]

    def _unpack_headers(self, directory: Path) -> None:
        status, *_ = self._nvrtc.nvrtcInstallBundledHeaders(os.fsencode(directory), 0)
        if int(status) != 0:
            raise ToolchainError(
                f"NVRTC could not unpack its headers: {status.name}",
                where=directory,
                remedy="set CUDA_EXT_CACHE to a directory with room for 30 MB",
            )


# Omits the declarations of the CUDA runtime that precede every source and take a third of the time of a small
# compilation. The images are the same.
_MINIMAL = "--minimal"


def _is_simple(unit: TranslationUnit) -> bool:
    """Whether `unit` most likely needs none of those declarations."""
    return not unit.may_include and not re.search(rb"cuda|tex|surf|<<<", unit.source)


def _needs_toolkit(unit: TranslationUnit) -> bool:
    """Whether `unit` may include a header that is not the project's; those of the project are in quotes."""
    texts = (unit.source, *unit.headers.values())
    if unit.options.pre_include or unit.options.raw:
        return True
    return any(re.search(rb'include(?![ \t]*")', text) for text in texts)


def _import_dwarf() -> None:
    with suppress(ImportError, ToolchainError):  # reading raises it again
        import_module("cuda_ext.formats.dwarf")


def _target(architecture: Architecture) -> list[str]:
    if architecture.kind == "ltoir":
        return [f"-arch=compute_{architecture.target}", "-dlto"]
    return [f"-arch={architecture}"]


_WITH_LINES = {"-lineinfo", "--generate-line-info", "-G", "--device-debug"}
_environment = threading.Lock()


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


class _Program:
    """One ``nvrtcProgram``, destroyed with the object."""

    def __init__(self, nvrtc: Any, unit: TranslationUnit) -> None:
        self._nvrtc = nvrtc
        names, contents = list(unit.headers), list(unit.headers.values())
        status, self._handle = nvrtc.nvrtcCreateProgram(
            unit.source, unit.name.encode(), len(names), contents, [n.encode() for n in names]
        )
        self._check(status)
        for expression in unit.instantiate:
            self._check(nvrtc.nvrtcAddNameExpression(self._handle, expression.encode())[0])

    def compile(self, options: Sequence[str]) -> bool:
        """Compile, and return whether it succeeded. :attr:`log` has the compiler's text either way."""
        arguments = [option.encode() for option in options]
        (status,) = self._nvrtc.nvrtcCompileProgram(self._handle, len(arguments), arguments)
        return int(status) == 0

    @property
    def log(self) -> str:
        return self._result("ProgramLog").rstrip(b"\0 \n").decode(errors="replace")

    def image(self, kind: ImageKind) -> bytes:
        data = self._result(kind.upper())
        return data.rstrip(b"\0") if kind == "ptx" else data

    def _result(self, kind: str) -> bytes:
        """The program's ``PTX``, ``CUBIN``, ``LTOIR`` or ``ProgramLog``."""
        status, size = getattr(self._nvrtc, f"nvrtcGet{kind}Size")(self._handle)
        self._check(status)
        buffer = bytes(size)
        self._check(getattr(self._nvrtc, f"nvrtcGet{kind}")(self._handle, buffer)[0])
        return buffer

    def lowered_name(self, expression: str) -> str:
        status, name = self._nvrtc.nvrtcGetLoweredName(self._handle, expression.encode())
        self._check(status)
        return str(name.decode())

    def _check(self, status: Any) -> None:
        if int(status) != 0:
            raise CompilationError(f"NVRTC: {status.name}")

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._nvrtc.nvrtcDestroyProgram(self._handle)
