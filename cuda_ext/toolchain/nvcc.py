"""Run nvcc as a process. Its output does not depend on the directory that it runs in.

nvcc needs a host compiler, even for device code alone, and reads the host's C++ headers.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path

from cuda_ext.compiler.compile_options import KEEPS_PROBES, include_directories
from cuda_ext.compiler.products import NO_TRACE, CompiledImage, Trace
from cuda_ext.compiler.signatures.probes import (
    Probed,
    known_subjects,
    probe,
    probe_type,
    read_probe,
    without_unused_variables,
)
from cuda_ext.compiler.signatures.reflection import describe, match_probes, read_image, unknown_subjects
from cuda_ext.compiler.signatures.spellings import NO_QUESTIONS, Questions, ask, read_answers, rejected_lines
from cuda_ext.compiler.translation_unit import NAMED, TranslationUnit
from cuda_ext.errors import BuildError, CompilationError, ToolchainError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.codec import sha256
from cuda_ext.toolchain import cuda_packages, process
from cuda_ext.toolchain.diagnostics import name_map_lines, read_phases
from cuda_ext.toolchain.programs.header_dependencies import header_names, make_dependencies
from cuda_ext.toolchain.programs.nvcc_inputs import (
    FIRST_LINE,
    host_options,
    lowered_names,
    options_of,
    target_options,
    with_instantiations,
    with_probes,
    without_probes,
    write_files,
)


class Nvcc:
    """The :class:`~cuda_ext.compiler.translation_unit.Compiler` that can read the host's C++ headers.

    From `environ` it uses the places of programs, and nothing that would change an image. `launcher` is a
    program that runs nvcc, such as ``sccache``. It works below ``scratch``, or in the directory for temporary
    files. If ``timed``, it measures each phase, except under a launcher. Raises
    :class:`~cuda_ext.errors.ToolchainError`, at its first use, if `executable` does not run, or has no
    host compiler.
    """

    name = "nvcc"

    def __init__(
        self,
        executable: Path,
        environ: Mapping[str, str],
        launcher: str | None = None,
        scratch: Path | None = None,
        timed: bool = False,
    ) -> None:
        self.executable = executable.absolute()
        self.launcher = launcher
        self.scratch = scratch
        self.timed = timed
        self._environ = _environment(environ)
        self._command = [*([launcher] if launcher else []), str(self.executable)]
        if launcher and Path(launcher).stem == "ccache":
            self._command.append("-c")  # without it, ccache takes the call for a link

    @cached_property
    def version(self) -> str:
        """Its CUDA version. Raises :class:`~cuda_ext.errors.ToolchainError` if it cannot compile here."""
        version = re.search(r"release (\d+\.\d+)", self._ask("--version").output)
        if version is None:
            raise ToolchainError(f"{self.executable} does not print nvcc's version", remedy="reinstall it")
        # Test the host compiler, which preprocesses.
        preprocessed = self._ask("-E", "--allow-unsupported-compiler", "-x", "cu", os.devnull)
        if preprocessed.exit_code != 0:
            reason = preprocessed.output.strip().partition("\n")[0]
            raise ToolchainError(
                f"{self.executable} ({version[1]}) has no usable host compiler ({reason})",
                remedy="put g++ or clang++ on PATH, or name one in NVCC_CCBIN",
            )
        return version[1]

    def files(self) -> Sequence[Path]:
        own = [root / name for root in self._roots[-1:] for name in _PROGRAMS]
        found = [self.executable, *own, *([self.host_compiler] if self.host_compiler else [])]
        return [path.resolve() for path in found if path.is_file()]

    @property
    def host_compiler(self) -> Path | None:
        """The compiler that preprocesses for nvcc, if there is one."""
        found = shutil.which(self._environ.get("NVCC_CCBIN", "g++"), path=self._environ.get("PATH"))
        return Path(found) if found else None

    def search_path(self, unit: TranslationUnit) -> Sequence[Path]:
        own = [d for root in self._roots for d in (root / "include", *sorted(root.glob("targets/*/include")))]
        return [*include_directories(unit.options), *own, *self._header_directories]

    @cached_property
    def _roots(self) -> list[Path]:
        """The directory of its toolkit, as nvcc spells it, and with links resolved."""
        return [self.executable.parent.parent, self.executable.resolve().parent.parent]

    @cached_property
    def _header_directories(self) -> list[Path]:
        """The directories of headers that nvcc does not find by itself."""
        found = map(Path, cuda_packages.header_directories(int(self.version.partition(".")[0])))
        return [d for d in found if not any(d.resolve().is_relative_to(r.resolve()) for r in self._roots)]

    @cache  # noqa: B019 - one instance lives as long as the build
    def capabilities(self) -> tuple[int, ...]:
        if not (found := re.findall(r"sm_(\d+)", self._ask("--list-gpu-code").output)):
            raise ToolchainError(f"{self.executable} lists no architectures", remedy="reinstall it")
        return tuple(sorted(map(int, found)))

    @cache  # noqa: B019 - one instance lives as long as the build
    def supports(self, architecture: Architecture) -> bool:
        if not architecture.suffix:
            return architecture.number in self.capabilities()
        return self._ask("--dryrun", *target_options(architecture), "-x", "cu", "empty.cu").exit_code == 0

    def compile(
        self, unit: TranslationUnit, architectures: Sequence[Architecture]
    ) -> tuple[CompiledImage, ...]:
        """Compile to PTX with probes, and assemble it without the probes and without unused variables."""
        first = architectures[0]
        is_apart = first.kind == "ltoir" or not KEEPS_PROBES.isdisjoint(unit.options.raw)
        options = [o for o in options_of(unit, first) if not (is_apart and o in KEEPS_PROBES)]
        options = [*target_options(first.as_kind("ptx")), *options]
        text, log, trace, names, probed, answers = self._probe(unit, options, known_subjects(unit), ask(unit))
        text = without_unused_variables(without_probes(text), [unit])
        types: dict[str, Probed] = {}
        images = []
        for architecture in architectures:
            data, messages, times = text, log, trace
            if is_apart:
                data, messages, times = self._compile_apart(unit, architecture)
            elif architecture.kind == "cubin":
                data, messages, times = self._assemble(unit, text, architecture, trace)
                messages = "\n".join(filter(None, (log, messages)))
            image = read_image(architecture, data)
            shown = read_image(first.as_kind("ptx"), text) if architecture.kind == "ltoir" else image
            types |= match_probes(shown, names, probed)
            if unknown := unknown_subjects(unit, shown, types):
                more = self._probe(unit, options, list(unknown))[4]
                types |= {unknown[subject]: found for subject, found in more.items()}
            signatures = describe(unit, shown, types, answers)
            images.append(replace(image, log=messages, names=names, signatures=signatures, trace=times))
        return tuple(images)

    def _compile_apart(self, unit: TranslationUnit, architecture: Architecture) -> tuple[bytes, str, Trace]:
        """Compile without probes."""
        options = [*target_options(architecture), *options_of(unit, architecture)]
        return self._run(unit, with_instantiations(unit), options)

    def _assemble(
        self, unit: TranslationUnit, text: bytes, architecture: Architecture, trace: Trace
    ) -> tuple[bytes, str, Trace]:
        """Assemble PTX, as nvcc itself does with it; return the cubin, the messages, and the whole trace."""
        file = Path(unit.name).with_suffix(".ptx").name
        options = [*target_options(architecture), *options_of(unit, architecture), *self._timing]
        try:
            with tempfile.TemporaryDirectory(prefix="cuda_ext-", dir=self.scratch) as name:
                (Path(name) / file).write_bytes(text)
                command = [str(self.executable), *options, file, "-o", _OUTPUT]
                environ = {**self._environ, "TMPDIR": name}
                ended = process.run(command, environ=environ, directory=Path(name), compiles=unit.name)
                if ended.exit_code == 0:
                    data = (Path(name) / _OUTPUT).read_bytes()
                    return data, ended.output.strip(), _with_times(trace, Path(name))
        except OSError as error:
            raise self._cannot_run(error) from None
        raise _failure(ended.output.strip(), unit, ended)

    def _probe(
        self,
        unit: TranslationUnit,
        options: Sequence[str],
        subjects: Sequence[str],
        questions: Questions = NO_QUESTIONS,
    ) -> tuple[bytes, str, Trace, dict[str, str], dict[str, Probed], dict[str, str]]:
        """Compile to PTX with probes for `subjects` and `questions`, except those that nvcc rejects.

        Returns the PTX, the messages, the trace, the lowered names of the instantiations, the types of the
        subjects, and the answers to the questions.
        """
        first = len(unit.instantiate)
        while True:
            asked = list(questions.types)
            probes = [probe(subject, index) for index, subject in enumerate(subjects)]
            probes += (probe_type(questions.types[name], i) for i, name in enumerate(asked, len(probes)))
            lines: list[int] = []
            try:
                text, log, trace = self._run(unit, with_probes(unit, probes, questions), options, lines)
                break
            except CompilationError as error:
                accepted = [s for index, s in enumerate(subjects, first) if index not in lines]
                rejected = [n for index, n in enumerate(asked, first + len(subjects)) if index in lines]
                answered = questions.accepted(rejected, rejected_lines(error.problem))
                if len(accepted) == len(subjects) and answered == questions:
                    if questions.types:
                        questions = NO_QUESTIONS  # they may be what makes a name ambiguous
                        continue
                    self._run(unit, with_instantiations(unit), options)  # for an error without probes
                    raise
                subjects, questions = accepted, answered
        lowered = lowered_names(text)
        names = dict(zip(unit.instantiate, lowered, strict=False))
        types = map(read_probe, lowered[first : first + len(subjects)])
        probed = {s: found for s, found in zip(subjects, types, strict=True) if found is not None}
        answers = dict(zip(asked, lowered[first + len(subjects) :], strict=True))
        return text, log, trace, names, probed, read_answers(questions, answers)

    def _run(
        self, unit: TranslationUnit, source: bytes, options: Sequence[str], rejected: list[int] | None = None
    ) -> tuple[bytes, str, Trace]:
        """Compile `source` in place of the unit's own; return the output, the messages and the trace.

        `rejected` receives the indices of the rejected lines in the table after the source.
        """
        try:
            with tempfile.TemporaryDirectory(prefix="cuda_ext-", dir=self.scratch) as name:
                directory = Path(name)
                ended = self._run_in(directory, unit, source, [*options, *self._timing])
                output = directory / _OUTPUT
                succeeded = ended.exit_code == 0 and output.is_file()
                data = output.read_bytes() if succeeded else b""
                trace = self._trace(directory, unit) if succeeded else NO_TRACE
        except OSError as error:
            raise self._cannot_run(error) from None
        log = _without_directory(ended.output, directory)
        log = log.replace(f"ptxas {_OUTPUT}", f"ptxas {Path(unit.name).stem}.ptx")
        if succeeded:
            return data, log, trace
        if self.launcher:
            self._check_launcher(self.launcher, ended)
        if rejected is not None:
            rejected += (line - FIRST_LINE for line in name_map_lines(log))

        def compile_again(changed: TranslationUnit) -> str:
            with tempfile.TemporaryDirectory(prefix="cuda_ext-", dir=self.scratch) as name:
                again = self._run_in(Path(name), changed, changed.source, options)
                return _without_directory(again.output, Path(name))

        raise _failure(log, unit, ended, compile_again)

    @property
    def _timing(self) -> list[str]:
        # With -fdevice-time-trace, which also knows the headers, nvcc generates different code.
        return [f"--time={_TIMES}"] if self.timed and not self.launcher else []

    def _trace(self, directory: Path, unit: TranslationUnit) -> Trace:
        opened = make_dependencies((directory / _READ).read_text())
        names = {os.path.normpath(directory / path).removeprefix(f"{directory}/") for path in opened}
        reads = header_names(names - {unit.name}, unit, self.search_path(unit))
        return _with_times(Trace(reads), directory)

    def _run_in(
        self, directory: Path, unit: TranslationUnit, source: bytes, options: Sequence[str]
    ) -> process.Completed:
        write_files(directory, {**unit.headers, unit.name: source})
        seed = sha256(unit.name.encode()).hex()[:16]
        command = [
            *self._command,
            *("-MD", "-MF", _READ),
            # Headers of the project are in quotes, under their names below its root; all others are not.
            "-Xcompiler=-iquote.",
            *([f"-I{NAMED}"] if any(name.startswith(NAMED) for name in unit.headers) else []),
            # Names of internal linkage contain a hash of the source's full path or, in a unit without any
            # other name, the process ID.
            f"-Xcicc=--orig_src_path_name,{seed}",
            f"-frandom-seed={seed}",
            # Otherwise intermediate files have random names, which debug information contains.
            "--keep",
            *host_options(unit, self._header_directories),
            *options,
            *("-x", "cu", unit.name, "-o", _OUTPUT),
        ]
        # The files of a killed compiler are removed with the directory; the server that sccache leaves
        # running needs a permanent one.
        environ = self._environ if self.launcher else {**self._environ, "TMPDIR": str(directory)}
        return process.run(command, environ=environ, directory=directory, compiles=unit.name)

    def _cannot_run(self, error: OSError) -> BuildError:
        if self.launcher and shutil.which(self.launcher, path=self._environ.get("PATH")) is None:
            return ToolchainError(
                f"{self.launcher!r} is not on PATH", where="launcher", remedy="install it, or remove the key"
            )
        return ToolchainError(f"{self.executable} cannot be run: {error}")

    def _check_launcher(self, launcher: str, ended: process.Completed) -> None:
        """Raise :class:`ToolchainError` if `launcher` failed, but not nvcc."""
        if ended.exit_code == 0 or not ended.output.strip():
            raise ToolchainError(
                f"{launcher!r} ended with exit code {ended.exit_code} and wrote no output for a call of nvcc "
                f"{self.version}",
                where="launcher",
                remedy="sccache before 0.18 cannot run nvcc 13.3 or later: update it, use ccache, or remove "
                "the key",
            )
        name = re.escape(Path(launcher).stem)
        if error := re.search(rf"^{name}: (?:error|fatal|caused by)\b.*", ended.output, re.MULTILINE):
            raise ToolchainError(
                f"{launcher!r} failed: {error[0]}",
                where="launcher",
                remedy="correct that, or remove the key",
            )

    def _ask(self, *arguments: str) -> process.Completed:
        try:
            return process.run([str(self.executable), *arguments], environ=self._environ)
        except OSError as error:
            raise ToolchainError(
                f"{self.executable} cannot be run: {error.strerror or error}", remedy="reinstall it"
            ) from None


# The programs and files that determine images, besides nvcc itself.
_PROGRAMS = ("bin/ptxas", "bin/nvcc.profile", "nvvm/bin/cicc", "nvvm/libdevice/libdevice.10.bc")
_OUTPUT = "cuda_ext.image"
_READ = "cuda_ext.d"
_TIMES = "cuda_ext.times"
_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_SEARCH = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
_HOST_COMPILER = re.compile(r"(?:-ccbin|--compiler-bindir)[=\s]\s*(\S+)")


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` without variables that would change an image."""
    kept = {name: value for name, value in environ.items() if name not in {*_FLAGS, *_SEARCH}}
    # Options that change an image belong into pyproject.toml. The host compiler is a property of the machine;
    # conda-forge names it in these flags.
    if named := _HOST_COMPILER.findall(" ".join(environ.get(name, "") for name in _FLAGS)):
        kept["NVCC_CCBIN"] = named[-1]
    return kept | {
        # The front end writes PWD as its directory if PWD leads there: debug information then names the same
        # files on every machine, and a debugger finds them when it runs in the project's root.
        "PWD": "/proc/self/cwd",
        "SOURCE_DATE_EPOCH": "0",  # __DATE__ and __TIME__
        "TZ": "UTC",  # __TIMESTAMP__
        "LC_ALL": "C",
    }


def _with_times(trace: Trace, directory: Path) -> Trace:
    """Add the times of the phases of the compilation in `directory`, if they were recorded."""
    file = directory / _TIMES
    if not file.is_file():
        return trace
    return trace._replace(spans=(*trace.spans, *read_phases(file.read_text(errors="replace"), trace.spans)))


def _without_directory(log: str, directory: Path) -> str:
    """Replace file names in `directory` in `log` by the project's names."""
    return re.sub(r"(?<![\w./])\./", "", log.replace(f"{directory}/", "")).strip()


def _failure(
    log: str,
    unit: TranslationUnit,
    ended: process.Completed,
    compile_again: Callable[[TranslationUnit], str] = lambda _: "",
) -> CompilationError:
    from cuda_ext.toolchain.remedies.failed_compilation import explain  # rarely used

    explained = explain(log, unit, compile_again=compile_again)
    explained.problem = explained.problem or str(ended)
    return explained
