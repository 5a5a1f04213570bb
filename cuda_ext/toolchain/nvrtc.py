"""NVRTC, in this process, without a host compiler, a driver or a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from cuda_ext.compiler.compile_options import (
    include_directories,
    is_assembled_by_link,
    link_options,
    nvrtc_options,
    option_for_files,
)
from cuda_ext.compiler.jobs import LinkInput
from cuda_ext.compiler.products import HEADER, NO_TRACE, CompiledImage, Signatures, Span, Trace
from cuda_ext.compiler.signatures.attempt import Attempt, first_attempt
from cuda_ext.compiler.signatures.layouts import members_of
from cuda_ext.compiler.signatures.probes import (
    addresses_to_keep,
    declarations_of,
    known_subjects,
    may_be_declared,
    without_unused_variables,
)
from cuda_ext.compiler.signatures.reflection import describe, match_probes, read_image, unknown_subjects
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.toolchain import cuda_packages
from cuda_ext.toolchain.cuda_libraries import library_files, library_version, open_library
from cuda_ext.toolchain.diagnostics import without_warnings_in
from cuda_ext.toolchain.programs.header_dependencies import header_names, reachable_headers
from cuda_ext.toolchain.programs.nvrtc_program import OWN_HEADERS, NvrtcProgram, minimal_options
from cuda_ext.toolchain.programs.nvrtc_traces import (
    is_untraced,
    measure_phases,
    trace_headers,
    traces_headers,
)
from cuda_ext.toolchain.programs.precompiled_headers import PrecompiledHeaders

# Modules that sources without headers do not need are imported where they are used.
if TYPE_CHECKING:
    from pathlib import Path


class _Attempt(NamedTuple):
    """One compilation: names and types to ask for, and options that it may go without."""

    asked: Attempt
    minimal: list[str]
    precompiled: list[str]
    tracing: list[str]
    has_restored_headers: bool = False

    @property
    def more_options(self) -> list[str]:
        return [*self.minimal, *self.precompiled, *self.tracing]


class Nvrtc:
    """The :class:`~cuda_ext.compiler.translation_unit.Compiler` that needs nothing but wheels.

    With a `scratch` directory it records the headers that it reads; if `timed`, it measures each phase.
    Raises :class:`~cuda_ext.errors.ToolchainError`, at its first use, if NVRTC cannot be loaded.
    """

    name = "nvrtc"
    # True once a trace has named a header, as traces do since CUDA 13.0.
    _traces_headers = False

    def __init__(self, scratch: Path | None = None, timed: bool = False, lean: bool = True) -> None:
        self._scratch = scratch
        self._timed = timed
        self._lean = lean
        # The include directives to precompile, with which the next units begin; empty for none.
        self.shared_headers = b""
        self._precompiled = PrecompiledHeaders(scratch) if scratch else None

    @cached_property
    def version(self) -> str:
        major, minor = library_version("nvrtc")
        return f"{major}.{minor}"

    def files(self) -> Sequence[Path]:
        from pathlib import Path

        return [Path(file) for name in ("nvrtc", "nvjitlink") for file in library_files(name)]

    @cached_property
    def header_directories(self) -> list[Path]:
        """The directories of CUDA's and CCCL's headers, and of other CUDA libraries from the registry."""
        from cuda_ext.toolchain.programs.bundled_headers import complete_headers

        return self._directories_with(complete_headers(self.version))

    @cached_property
    def _searched_directories(self) -> list[Path]:
        """The same directories, before anything is compiled."""
        from cuda_ext.toolchain.programs.bundled_headers import unpacked_headers

        bundled = unpacked_headers(self.version)
        return self._directories_with(bundled) if bundled else self.header_directories

    def _directories_with(self, bundled: Path | None) -> list[Path]:
        from pathlib import Path

        major = int(self.version.partition(".")[0])
        own = [bundled, bundled / "cccl"] if bundled else []
        library = next(iter(library_files("nvrtc")), None)
        return [*own, *map(Path, cuda_packages.header_directories(major, library))]

    def search_path(self, unit: TranslationUnit) -> Sequence[Path]:
        standard = cuda_packages.standard_headers(unit.options)
        return [*include_directories(unit.options), *self._searched_directories, *standard]

    def capabilities(self) -> tuple[int, ...]:
        nvrtc, count = open_library("nvrtc"), ctypes.c_int()
        nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        nvrtc.nvrtcGetSupportedArchs(numbers)
        return tuple(sorted(numbers))

    @cache  # noqa: B019 - one instance lives as long as the build
    def supports(self, architecture: Architecture) -> bool:
        if not architecture.suffix:
            return architecture.number in self.capabilities()
        program = NvrtcProgram(TranslationUnit("empty.cu", b""))
        return program.compile([f"-arch=compute_{architecture.target}"])

    def compile(
        self, unit: TranslationUnit, architectures: Sequence[Architecture]
    ) -> tuple[CompiledImage, ...]:
        if not unit.options.skip_host_code:
            return self._compile(unit, architectures)
        from cuda_ext.toolchain.programs.without_host_code import compile_device_code  # rarely used

        front_end = [*_target(min(architectures).as_kind("ptx")), _FRONT_END_ONLY]
        return compile_device_code(
            unit,
            self.search_path(unit),
            lambda part: NvrtcProgram.log_of([*self._options(part), *front_end], part),
            lambda part: self._compile(part, architectures),
        )

    def _compile(
        self, unit: TranslationUnit, architectures: Sequence[Architecture]
    ) -> tuple[CompiledImage, ...]:
        last = min(architectures)
        linking = self._link_options(unit) if last.kind != "ltoir" else None
        if linking is not None and (images := self._compile_lean(unit, architectures, linking)):
            return images
        # Compiling to a cubin also yields the PTX of its virtual architecture.
        options = [*self._options(unit), *_target(last)]
        asked = first_attempt(unit)
        program, trace = self._run(unit, options, asked, precompiles=True)
        return tuple(
            self._finish(unit, a, program.image(a.kind), program, self._log(program, unit), trace)
            for a in architectures
        )

    def compile_tiles(self, unit: TranslationUnit, architecture: Architecture) -> tuple[NvrtcProgram, Trace]:
        """Compile the tile kernels of `unit` for this GPU; the program has their Tile IR."""
        options = [*self._options(unit), *_target(architecture.as_kind("ltoir"))]
        return self._run(unit, options, Attempt(unit.instantiate, subjects=known_subjects(unit)))

    def _compile_lean(
        self, unit: TranslationUnit, architectures: Sequence[Architecture], linking: Sequence[str]
    ) -> tuple[CompiledImage, ...]:
        """Compile `unit` to LTO-IR, and link this to images without unused variables.

        Return nothing if that fails, so that the error is NVRTC's own.
        """
        from cuda_ext.toolchain.nvjitlink import list_variables, optimise

        options = [*self._options(unit), *_target(architectures[0].as_kind("ltoir"))]
        addresses, is_certain = addresses_to_keep(unit)
        asked = first_attempt(unit, addresses)
        program, trace = self._run(unit, options, asked, precompiles=True)
        ltoir = LinkInput(unit.name, "ltoir", program.image("ltoir"))
        kept = list(program.answers.addresses)
        try:
            if not is_certain or len(kept) < len(addresses):
                kept += may_be_declared(unit, list_variables(ltoir, architectures[0]))
            linked = [optimise(ltoir, architecture, linking, kept) for architecture in architectures]
        except CompilationError:
            return ()
        images = []
        for architecture, (data, log) in zip(architectures, linked, strict=True):
            log = "\n".join(filter(None, (self._log(program, unit), log)))
            images.append(self._finish(unit, architecture, data, program, log, trace))
        return tuple(images)

    def _finish(
        self,
        unit: TranslationUnit,
        architecture: Architecture,
        data: bytes,
        program: NvrtcProgram,
        log: str,
        trace: Trace,
    ) -> CompiledImage:
        image = read_image(architecture, data)
        text = b""
        if architecture.kind == "cubin" and self._lean and is_assembled_by_link(unit.options):
            whole = program.image("ptx")
            text = without_unused_variables(whole, [unit])
            if len(text) > _WORTH_ASSEMBLING * len(whole):
                text = b""
        signatures = self.describe(unit, image, program)
        return replace(
            image, log=log, names=program.answers.names, signatures=signatures, text=text, trace=trace
        )

    def describe(self, unit: TranslationUnit, image: CompiledImage, program: NvrtcProgram) -> Signatures:
        """Return the signatures of everything in `image`, which `program` made."""
        answers = program.answers
        if image.architecture.kind == "ltoir":  # it shows no names
            architecture = image.architecture.as_kind("ptx")
            options = [*self._options(unit), *_target(architecture)]
            asked = Attempt(unit.instantiate, subjects=known_subjects(unit), members=members_of(unit))
            program, _ = self._run(unit, options, asked)
            image = read_image(architecture, program.image("ptx"))
        known = program.answers.types
        types = match_probes(image, program.answers.names, known)
        unknown = unknown_subjects(unit, image, types)
        if more := tuple(subject for subject in unknown if subject not in known):
            options = [*self._options(unit), *_target(image.architecture.as_kind("ltoir")), _FRONT_END_ONLY]
            asked = Attempt(unit.instantiate, subjects=more, members=members_of(unit))
            known.update(self._run(unit, options, asked)[0].answers.types)  # for another image, too
            # Those that cannot be read with their layouts.
            if unreadable := tuple(subject for subject in more if subject not in known):
                asked = Attempt(unit.instantiate, subjects=unreadable)
                known.update(self._run(unit, options, asked)[0].answers.types)
        types |= {name: known[subject] for subject, name in unknown.items() if subject in known}
        return describe(unit, image, types, answers.meanings, answers.constants)

    def _link_options(self, unit: TranslationUnit) -> list[str] | None:
        """Return the options to make lean images of `unit`; ``None`` if it is better compiled directly."""
        # Unused variables come from headers. Linked units are not optimised as one program.
        if not self._lean or unit.options.relocatable or not unit.may_include:
            return None
        # NVRTC itself defines variables that are only declared. The link leaves them undefined.
        if declarations_of(unit).has_extern:
            return None
        from cuda_ext.toolchain.nvjitlink import can_optimise

        return link_options(unit.options) if can_optimise() else None

    def _run(
        self, unit: TranslationUnit, options: list[str], asked: Attempt, precompiles: bool = False
    ) -> tuple[NvrtcProgram, Trace]:
        """Compile `unit` with the probes in `asked`, except those that it rejects.

        With `precompiles`, the shared headers are precompiled. Returns the program and its trace.
        """
        earlier: list[Span] = []
        precompiled = self._precompile(unit, options, earlier) if precompiles else []
        minimal = minimal_options(unit)
        with self._time_trace(unit, options) as (tracing, spans):
            attempt = _Attempt(asked, minimal, precompiled, tracing)
            while True:
                program = NvrtcProgram(unit, attempt.asked)
                succeeded = program.compile([*options, *attempt.more_options])
                following = self._reduce(attempt, program, succeeded)
                if following is None:
                    break
                attempt = following
            if not succeeded:
                from cuda_ext.toolchain.remedies.failed_compilation import explain  # rarely used

                log_of = partial(NvrtcProgram.log_of, [*options, *attempt.tracing])
                raise explain(self._log(program, unit), unit, lambda: self._directories_for(unit), log_of)
        if self._scratch is None:
            return program, NO_TRACE
        reads = self._header_names(unit, attempt.tracing, spans)
        if attempt.precompiled and self._precompiled:
            reads |= self._precompiled.names
        if not self._timed:
            return program, Trace(reads)
        began = max((span.start + span.duration for span in earlier), default=0.0)
        return program, Trace(reads, (*earlier, *(s._replace(start=s.start + began) for s in spans)))

    def _reduce(self, attempt: _Attempt, program: NvrtcProgram, succeeded: bool) -> _Attempt | None:
        """Return `attempt` without the first part that `program` rejects; ``None`` if its result counts."""
        if attempt.tracing and is_untraced(program.log):
            return attempt._replace(tracing=[])
        rejected = set() if succeeded else program.rejected()
        if attempt.precompiled:
            is_answer = succeeded or attempt.asked.without(rejected, program.log) != attempt.asked
            if not (program.used_precompiled_headers and is_answer):
                # Without these, the image or the error is the final one.
                if self._precompiled and not program.used_precompiled_headers:
                    self._precompiled.forget()
                return attempt._replace(precompiled=[])
        if succeeded:
            return None
        if attempt.minimal:
            return attempt._replace(minimal=[])
        if asked := attempt.asked.after(rejected, program.log):
            return attempt._replace(asked=asked)
        if not attempt.has_restored_headers and self._restore_headers():
            return attempt._replace(has_restored_headers=True)
        return None

    def _header_names(
        self, unit: TranslationUnit, tracing: Sequence[str], spans: Sequence[Span]
    ) -> frozenset[str]:
        """List the headers that `unit` depends on, from the `spans` that the options `tracing` gave.

        Without a trace of headers, these are all headers that it may include.
        """
        opened = {span.detail for span in spans if span.name == HEADER}
        Nvrtc._traces_headers = Nvrtc._traces_headers or bool(opened)
        if unit.may_include and not (traces_headers(tracing) and Nvrtc._traces_headers):
            opened = reachable_headers(unit, self.search_path(unit))
        opened.difference_update(OWN_HEADERS)
        # A unit without headers needs no search path; finding it may unpack NVRTC's own headers.
        return header_names(opened, unit, self.search_path(unit) if opened else ())

    def _log(self, program: NvrtcProgram, unit: TranslationUnit) -> str:
        """Return NVRTC's messages, without its warnings about headers of the tool chain."""
        log = program.log
        return without_warnings_in(log, self._directories_for(unit)) if ": warning " in log else log

    def _precompile(self, unit: TranslationUnit, options: Sequence[str], spans: list[Span]) -> list[str]:
        """Return the options to use the shared headers in `unit`, if they are to be used.

        `spans` receives the time trace if they are precompiled now.
        """
        if not self.shared_headers or self._precompiled is None:
            return []
        headers = TranslationUnit("headers.cu", self.shared_headers, options=unit.options)

        def compile_headers(more: Sequence[str]) -> tuple[str, frozenset[str]] | None:
            with self._time_trace(headers, options) as (tracing, own):
                program = NvrtcProgram(headers)
                if not program.compile([*options, *more, *tracing]):
                    return None
            spans.extend(own)
            return program.log, self._header_names(headers, tracing, own)

        return self._precompiled.use(headers.source, options, unit.headers, compile_headers)

    def _time_trace(
        self, unit: TranslationUnit, options: Sequence[str]
    ) -> AbstractContextManager[tuple[list[str], list[Span]]]:
        """Yield the options for a time trace, and a list that receives its spans at the end."""
        # With a time trace, NVRTC generates different code for some kernels, but the same LTO-IR.
        if self._scratch and unit.may_include and _LTOIR in options:
            return trace_headers(self._scratch, unit)
        return measure_phases(self._scratch) if self._scratch and self._timed else nullcontext(([], []))

    def _options(self, unit: TranslationUnit) -> list[str]:
        if option := option_for_files(unit.options):
            raise CompilationError(
                f"{option!r} leaves files behind",
                where="options",
                remedy="take it out: shared headers are precompiled without it, and --report has the times",
            )
        # Finding the directories may unpack the headers.
        directories = self._directories_for(unit) if unit.needs_toolkit else []
        return [*nvrtc_options(unit.name, unit.options), *(f"-I{directory}" for directory in directories)]

    def _directories_for(self, unit: TranslationUnit) -> list[Path]:
        """Return the directories of headers of the tool chain that `unit` may include, in order."""
        return [*self.header_directories, *cuda_packages.standard_headers(unit.options)]

    def _restore_headers(self) -> bool:
        """Unpack NVRTC's own headers again if some have vanished; return True if they had."""
        from cuda_ext.toolchain.programs.bundled_headers import count_bundled, count_headers

        before: list[Path] | None = self.__dict__.get("header_directories")
        if not before or not count_bundled() or count_headers(before[0]) == count_bundled():
            return False
        del self.header_directories
        return self.header_directories == before


# The share of its PTX that may remain of a unit that the link assembles again. If more remains, most of it is
# code, and the saved bytes are not worth the time.
_WORTH_ASSEMBLING = 0.75


def _target(architecture: Architecture) -> list[str]:
    is_ltoir = architecture.kind == "ltoir"
    return [f"-arch=compute_{architecture.target}", _LTOIR] if is_ltoir else [f"-arch={architecture}"]


_LTOIR = "-dlto"
# Checks the source, and lowers names.
_FRONT_END_ONLY = "-fdevice-syntax-only"
