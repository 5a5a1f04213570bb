"""NVRTC, in process, through ``cuda.bindings.nvrtc``: no host compiler, no driver, no GPU."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from cuda_ext.compiler import toolkit
from cuda_ext.compiler.architectures import Architecture
from cuda_ext.compiler.bindings import binding
from cuda_ext.compiler.diagnostics import explain
from cuda_ext.compiler.image import read_image
from cuda_ext.compiler.survey import NOT_WITH_DEBUG, survey_of_debug_ptx
from cuda_ext.compiler.translation_unit import CompiledImage, Survey, TranslationUnit
from cuda_ext.errors import CompilationError, ToolchainError

__all__ = ["Nvrtc"]


class Nvrtc:
    """The :class:`~cuda_ext.compiler.translation_unit.Compiler` that needs nothing but wheels.

    Raises :class:`~cuda_ext.errors.ToolchainError` if NVRTC cannot be loaded.
    """

    name = "nvrtc"

    def __init__(self) -> None:
        self._nvrtc = binding("nvrtc")
        _, major, minor = self._nvrtc.nvrtcVersion()
        self._major = major
        # NVRTC can since 13.3; cuda-bindings may be older.
        self._bundles_headers = (major, minor) >= (13, 3) and hasattr(
            self._nvrtc, "nvrtcInstallBundledHeaders"
        )
        self.version = f"{major}.{minor}"

    @cached_property
    def header_directories(self) -> list[Path]:
        """Where CUDA's and CCCL's headers are, and those of other CUDA libraries from the registry."""
        found = []
        if self._bundles_headers:
            bundled = toolkit.bundled_headers(self.version, self._unpack_headers)
            found = [bundled, bundled / "cccl"]
        return found + toolkit.header_directories(self._major)

    def capabilities(self) -> tuple[int, ...]:
        _, architectures = self._nvrtc.nvrtcGetSupportedArchs()
        return tuple(sorted(architectures))

    @cache  # noqa: B019 - one instance lives as long as the build
    def supports(self, architecture: Architecture) -> bool:
        if not architecture.suffix:
            return architecture.number in self.capabilities()
        program = _Program(self._nvrtc, TranslationUnit("empty.cu", b""))
        return program.compile([f"-arch=compute_{architecture.target}"])

    def compile(self, unit: TranslationUnit, architecture: Architecture) -> CompiledImage:
        program = _Program(self._nvrtc, unit)
        options = [*self._options(unit), *self._target(architecture)]
        if not program.compile(options):
            raise CompilationError(self._explained(program.log, unit))
        data = program.result({"cubin": "CUBIN", "ptx": "PTX", "ltoir": "LTOIR"}[architecture.kind])
        if architecture.kind == "ptx":
            data = data.rstrip(b"\0")
        names = {e: program.lowered_name(e) for e in unit.instantiate}
        return read_image(architecture, data, names, program.log)

    def survey(self, unit: TranslationUnit, architecture: Architecture) -> Survey:
        program = _Program(self._nvrtc, unit)
        options = [o for o in self._options(unit) if o not in NOT_WITH_DEBUG]
        if not program.compile([*options, f"-arch=compute_{architecture.target}", "-G"]):
            raise CompilationError(self._explained(program.log, unit))
        return survey_of_debug_ptx(program.result("PTX").rstrip(b"\0"), {unit.name, *unit.headers})

    def _options(self, unit: TranslationUnit) -> list[str]:
        # Without a seed, internal names hold the time and the process id.
        options = [f"--frandom-seed={unit.name}"]
        if unit.options.relaxed_constexpr:
            # NVRTC has no --expt-relaxed-constexpr. This does more: what has no annotation is device code.
            options.append("--device-as-default-execution-space")
        if unit.options.relocatable:
            options.append("--relocatable-device-code=true")
        options += unit.options.spelled()
        return [*options, *(f"-I{directory}" for directory in self.header_directories)]

    def _target(self, architecture: Architecture) -> list[str]:
        if architecture.kind == "ltoir":
            return [f"-arch=compute_{architecture.target}", "-dlto"]
        return [f"-arch={architecture}"]

    def _explained(self, log: str, unit: TranslationUnit) -> str:
        return explain(
            log,
            source=unit.source,
            header_directories=self.header_directories,
            host_headers=False,
        )

    def _unpack_headers(self, directory: str) -> None:
        status, *_ = self._nvrtc.nvrtcInstallBundledHeaders(directory.encode(), 0)
        if int(status) != 0:
            raise ToolchainError(f"{directory}: NVRTC could not unpack its headers: {status.name}")


_WITH_LINES = {"-lineinfo", "--generate-line-info", "-G", "--device-debug"}
_environment = threading.Lock()


@contextmanager
def _nameless_directory() -> Iterator[None]:
    """Keep the working directory out of line tables.

    NVRTC takes its name from the environment, if that name leads there; this one does in every process.
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
        """Compile; whether it succeeded. :attr:`log` has the compiler's text either way."""
        arguments = [option.encode() for option in options]
        with _nameless_directory() if _WITH_LINES.intersection(options) else nullcontext():
            (status,) = self._nvrtc.nvrtcCompileProgram(self._handle, len(arguments), arguments)
        return int(status) == 0

    @property
    def log(self) -> str:
        return self.result("ProgramLog").rstrip(b"\0 \n").decode(errors="replace")

    def result(self, kind: str) -> bytes:
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
