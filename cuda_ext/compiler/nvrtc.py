"""NVRTC, in process, through ``cuda.bindings.nvrtc``: no host compiler, no driver, no GPU."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from cuda_ext.compiler import toolkit
from cuda_ext.compiler.architectures import Architecture
from cuda_ext.compiler.bindings import binding, library_files
from cuda_ext.compiler.diagnostics import explain
from cuda_ext.compiler.image import read_image
from cuda_ext.compiler.preamble import Headers, led
from cuda_ext.compiler.reads import looked_up
from cuda_ext.compiler.survey import NOT_WITH_DEBUG, survey_of_debug_ptx
from cuda_ext.compiler.trace import Span, Trace, headers_of, read_time_trace
from cuda_ext.compiler.translation_unit import CompiledImage, Survey, TranslationUnit
from cuda_ext.compiler.usage import VERBOSE
from cuda_ext.errors import CompilationError, ToolchainError
from cuda_ext.manifest import ImageKind

__all__ = ["Nvrtc"]


class Nvrtc:
    """The :class:`~cuda_ext.compiler.translation_unit.Compiler` that needs nothing but wheels.

    With a `scratch` directory it tells which headers it read, keeps there what it precompiles, and with
    `timed` how long it took for what. Raises :class:`~cuda_ext.errors.ToolchainError`, when it is first
    needed, if NVRTC cannot be loaded.
    """

    name = "nvrtc"

    def __init__(self, scratch: Path | None = None, timed: bool = False) -> None:
        self._scratch = scratch
        self._timed = timed
        self._known: dict[tuple[str | bytes, ...], list[_Precompiled]] = {}

    @cached_property
    def _nvrtc(self) -> Any:
        nvrtc = binding("nvrtc")
        if self._scratch and hasattr(nvrtc, "nvrtcSetPCHHeapSize"):  # from 12.8 on
            nvrtc.nvrtcSetPCHHeapSize(_PRECOMPILED_HEAP)
        return nvrtc

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
        """Where CUDA's and CCCL's headers are, and those of other CUDA libraries from the registry."""
        major, minor = map(int, self.version.split("."))
        bundled = toolkit.unpacked_headers(self.version)
        # NVRTC can since 13.3; cuda-bindings may be older.
        if not bundled and (major, minor) >= (13, 3) and hasattr(self._nvrtc, "nvrtcInstallBundledHeaders"):
            bundled = toolkit.unpack_headers(self.version, self._unpack_headers)
        own = [bundled, bundled / "cccl"] if bundled else []
        return own + toolkit.header_directories(major)

    def search_path(self, unit: TranslationUnit) -> Sequence[Path]:
        return [*unit.options.include_directories(), *self.header_directories]

    def led_source(self, unit: TranslationUnit) -> bytes:
        """The source as NVRTC gets it. It depends on nothing but the unit and the headers that it reads."""
        if unit.options.pre_include or any("include" in option for option in unit.options.raw):
            return unit.source  # it begins with something else
        return led(unit.source, unit.headers, _headers(tuple(self.search_path(unit))))

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
        self, unit: TranslationUnit, architectures: Sequence[Architecture], preamble: bytes | None = None
    ) -> tuple[CompiledImage, ...]:
        # On the way to a cubin comes the PTX of its virtual architecture.
        last = min(architectures)
        options = [*self._options(unit), *_target(last), *(VERBOSE if last.kind == "cubin" else ())]
        program, trace = self._run(unit, options, preamble)
        return tuple(
            read_image(a, program.image(a.kind), program.log if a == last else "", trace)
            for a in architectures
        )

    def survey(
        self, unit: TranslationUnit, architecture: Architecture, preamble: bytes | None = None
    ) -> Survey:
        options = [o for o in self._options(unit) if o not in NOT_WITH_DEBUG]
        program, trace = self._run(unit, [*options, f"-arch=compute_{architecture.target}", "-G"], preamble)
        survey = survey_of_debug_ptx(program.image("ptx"), {unit.name, *unit.headers})
        names = {expression: program.lowered_name(expression) for expression in unit.instantiate}
        return replace(survey, names=names, trace=trace)

    def _run(
        self, unit: TranslationUnit, options: list[str], preamble: bytes | None
    ) -> tuple[_Program, Trace]:
        """Compile `unit`; the program, and its own account of how it came about."""
        unit = replace(unit, source=self.led_source(unit))
        program = _Program(self._nvrtc, unit)
        opened: frozenset[str] = frozenset()
        if made := self._precompiled(unit, options, preamble):
            options = [*options, f"--use-pch={made.path}"]
            opened = made.opened
        with self._time_trace(unit) as (tracing, spans):
            succeeded = program.compile([*options, *tracing])
        if not succeeded:
            raise CompilationError(
                explain(
                    program.log,
                    source=unit.source,
                    header_directories=self.header_directories,
                    host_headers=False,
                )
            )
        opened = opened.union(headers_of(spans))
        reads = looked_up(opened, unit, self.search_path(unit)) if self._scratch else opened
        return program, Trace(reads, tuple(spans) if self._timed else ())

    def _precompiled(
        self, unit: TranslationUnit, options: list[str], preamble: bytes | None
    ) -> _Precompiled | None:
        """`preamble`, which `unit` begins with, precompiled for `options`.

        ``None`` if it has a mistake, which is then the source's own, or if there is none or no place for it.
        """
        if self._scratch is None or preamble is None:
            return None
        # The seed is for what has no name outside its source, which a header has not.
        options = [option for option in options if not option.startswith(_SEED)]
        known = self._known.setdefault((*options, preamble), [])
        for made in known:
            # It may have been made from other headers of the same names.
            if all(made.headers.get(n, b"") == unit.headers.get(n, b"") for n in made.opened):
                return made
        path = self._scratch / f"{sum(map(len, self._known.values()))}.pch"
        head = replace(unit, name="preamble", source=preamble, instantiate=())
        with self._time_trace(head) as (tracing, spans):
            _Program(self._nvrtc, head).compile([*options, *tracing, f"--create-pch={path}"])
        if not path.is_file():
            return None
        known.append(_Precompiled(path, frozenset(headers_of(spans)), unit.headers))
        return known[-1]

    @contextmanager
    def _time_trace(self, unit: TranslationUnit) -> Iterator[tuple[list[str], list[Span]]]:
        """The options that make NVRTC keep account, and what it wrote at the end."""
        spans: list[Span] = []
        # What includes nothing reads nothing, and keeping account takes time.
        including = b"include" in unit.source or unit.options.pre_include or unit.options.raw
        silent = not (self._timed or including)
        if self._scratch is None or silent:
            yield [], spans
            return
        yield [f"-fdevice-time-trace={self._scratch / 'trace'}"], spans
        file = self._scratch / "trace.json"
        with suppress(FileNotFoundError):
            spans += read_time_trace(file.read_bytes())
            file.unlink()  # or NVRTC adds to it

    def _options(self, unit: TranslationUnit) -> list[str]:
        # Without a seed, internal names hold the time and the process id.
        options = [f"{_SEED}{unit.name}"]
        if unit.options.relaxed_constexpr:
            # NVRTC has no --expt-relaxed-constexpr. This does more: what has no annotation is device code.
            options.append("--device-as-default-execution-space")
        if unit.options.relocatable:
            options.append("--relocatable-device-code=true")
        options += unit.options.spelled()
        return [*options, *(f"-I{directory}" for directory in self.header_directories)]

    def _unpack_headers(self, directory: str) -> None:
        status, *_ = self._nvrtc.nvrtcInstallBundledHeaders(directory.encode(), 0)
        if int(status) != 0:
            raise ToolchainError(f"{directory}: NVRTC could not unpack its headers: {status.name}")


@cache
def _headers(search_path: tuple[Path, ...]) -> Headers:
    def find(name: str) -> bytes | None:
        for directory in search_path:
            with suppress(OSError):
                return (directory / name).read_bytes()
        return None

    return Headers(find)


@dataclass(frozen=True, slots=True)
class _Precompiled:
    """A precompiled beginning: where it is, what it ``opened``, and the ``headers`` that there were."""

    path: Path
    opened: frozenset[str]
    headers: Mapping[str, bytes]


def _target(architecture: Architecture) -> list[str]:
    if architecture.kind == "ltoir":
        return [f"-arch=compute_{architecture.target}", "-dlto"]
    return [f"-arch={architecture}"]


_SEED = "--frandom-seed="
# What NVRTC says of precompiled headers, used or passed over.
_ABOUT_PRECOMPILED = re.compile(
    r'^"[^"\n]*": (?:using|creating) precompiled header file ".*"$\n?'
    r"|^.*Warning #\d+-D: .*precompiled header file.*$\n+(?:Remark: The warnings can be suppressed.*$\n*)?",
    re.MULTILINE,
)
# Virtual memory; CUB takes 700 MB of it.
_PRECOMPILED_HEAP = 1 << 30
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
        text = self._result("ProgramLog").rstrip(b"\0 \n").decode(errors="replace")
        return _ABOUT_PRECOMPILED.sub("", text)

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
