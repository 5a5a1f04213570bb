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
from typing import NamedTuple

from cuda_ext.compiler.compile_options import KEEPS_PROBES, include_directories
from cuda_ext.compiler.products import NO_TRACE, CompiledImage, Trace
from cuda_ext.compiler.signatures.attempt import Answers, Attempt, first_attempt
from cuda_ext.compiler.signatures.layouts import members_of
from cuda_ext.compiler.signatures.probes import Probed, without_unused_variables
from cuda_ext.compiler.signatures.reflection import describe, match_probes, read_image, unknown_subjects
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


class _Compiled(NamedTuple):
    """The result of one run of nvcc. If it failed, it has only the compiler's text."""

    ended: process.Completed
    log: str
    data: bytes = b""
    trace: Trace = NO_TRACE
    succeeded: bool = False


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
        # Programs such as sccache change no image; a script may, and is edited.
        path = shutil.which(self.launcher, path=self._environ.get("PATH")) if self.launcher else None
        found += [Path(path)] if path and _is_script(path) else []
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
        try:
            with tempfile.TemporaryDirectory(prefix="cuda_ext-", dir=self.scratch) as name:
                return self._compile_in(Path(name), unit, architectures)
        except OSError as error:
            raise self._cannot_run(error) from None

    def _compile_in(
        self, directory: Path, unit: TranslationUnit, architectures: Sequence[Architecture]
    ) -> tuple[CompiledImage, ...]:
        first = architectures[0]
        is_apart = first.kind == "ltoir" or not KEEPS_PROBES.isdisjoint(unit.options.raw)
        options = [o for o in options_of(unit, first) if not (is_apart and o in KEEPS_PROBES)]
        options = [*target_options(first.as_kind("ptx")), *options]
        asked = first_attempt(unit)
        compiled, answers = self._ask_in(directory, unit, options, asked)
        text = without_unused_variables(without_probes(compiled.data), [unit])
        types: dict[str, Probed] = {}
        images = []
        for architecture in architectures:
            result = compiled._replace(data=text)
            if is_apart:
                own = [*target_options(architecture), *options_of(unit, architecture)]
                result = self._compile_plain(directory, unit, own)
            elif architecture.kind == "cubin":
                result = self._assemble(directory, unit, result, architecture)
            image = read_image(architecture, result.data)
            shown = read_image(first.as_kind("ptx"), text) if architecture.kind == "ltoir" else image
            types |= match_probes(shown, answers.names, answers.types)
            if unknown := unknown_subjects(unit, shown, types):
                more = Attempt(unit.instantiate, subjects=tuple(unknown), members=members_of(unit))
                found = self._ask_in(directory, unit, options, more)[1].types
                types |= {unknown[subject]: type_ for subject, type_ in found.items()}
            signatures = describe(unit, shown, types, answers.meanings, answers.constants)
            described = replace(image, log=result.log, names=answers.names, signatures=signatures)
            images.append(replace(described, trace=result.trace))
        return tuple(images)

    def _ask_in(
        self, directory: Path, unit: TranslationUnit, options: Sequence[str], asked: Attempt
    ) -> tuple[_Compiled, Answers]:
        """Compile `unit` to PTX with the probes in `asked`, except those that nvcc rejects."""
        while True:
            compiled = self._try(directory, unit, with_probes(unit, asked), options)
            if compiled.succeeded:
                return compiled, asked.read(lowered_names(compiled.data))
            rejected = {line - FIRST_LINE for line in name_map_lines(compiled.log)}
            following = asked.after(rejected, compiled.log)
            if following is None:
                self._compile_plain(directory, unit, options)  # for an error without probes
                raise _failure(compiled.log, unit, compiled.ended)
            asked = following

    def _compile_plain(self, directory: Path, unit: TranslationUnit, options: Sequence[str]) -> _Compiled:
        """Compile without probes. Raises :class:`~cuda_ext.errors.CompilationError`."""
        compiled = self._try(directory, unit, with_instantiations(unit), options)
        if compiled.succeeded:
            return compiled

        def compile_again(changed: TranslationUnit) -> str:
            return self._try(directory, changed, changed.source, options).log

        raise _failure(compiled.log, unit, compiled.ended, compile_again)

    def _assemble(
        self, directory: Path, unit: TranslationUnit, compiled: _Compiled, architecture: Architecture
    ) -> _Compiled:
        """Assemble PTX, as nvcc itself does with it, to a cubin."""
        file = Path(unit.name).with_suffix(".ptx").name
        (directory / file).write_bytes(compiled.data)
        options = [*target_options(architecture), *options_of(unit, architecture), *self._timing]
        command = [str(self.executable), *options, file, "-o", _OUTPUT]
        ended = _run(command, directory, unit, {**self._environ, "TMPDIR": str(directory)})
        if ended.exit_code != 0:
            raise _failure(ended.output.strip(), unit, ended)
        log = "\n".join(filter(None, (compiled.log, ended.output.strip())))
        trace = _with_times(compiled.trace, directory)
        return _Compiled(ended, log, (directory / _OUTPUT).read_bytes(), trace)

    def _try(
        self, directory: Path, unit: TranslationUnit, source: bytes, options: Sequence[str]
    ) -> _Compiled:
        """Compile `source` in place of the unit's own."""
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
            *self._timing,
            *("-x", "cu", unit.name, "-o", _OUTPUT),
        ]
        # The files of a killed compiler are removed with the directory; the server that sccache leaves
        # running needs a permanent one.
        environ = self._environ if self.launcher else {**self._environ, "TMPDIR": str(directory)}
        ended = _run(command, directory, unit, environ)
        log = _without_directory(ended.output, directory)
        log = log.replace(f"ptxas {_OUTPUT}", f"ptxas {Path(unit.name).stem}.ptx")
        if ended.exit_code == 0 and (directory / _OUTPUT).is_file():
            data = (directory / _OUTPUT).read_bytes()
            return _Compiled(ended, log, data, self._trace(directory, unit), succeeded=True)
        if self.launcher:
            self._check_launcher(self.launcher, ended)
        return _Compiled(ended, log)

    @property
    def _timing(self) -> list[str]:
        # With -fdevice-time-trace, which also knows the headers, nvcc generates different code.
        return [f"--time={_TIMES}"] if self.timed and not self.launcher else []

    def _trace(self, directory: Path, unit: TranslationUnit) -> Trace:
        opened = make_dependencies((directory / _READ).read_text())
        names = {os.path.normpath(directory / path).removeprefix(f"{directory}/") for path in opened}
        reads = header_names(names - {unit.name}, unit, self.search_path(unit))
        return _with_times(Trace(reads), directory)

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


def _is_script(path: str) -> bool:
    with Path(path).open("rb") as file:
        return file.read(2) == b"#!"


def ignored_variables(environ: Mapping[str, str]) -> list[str]:
    """List the variables that are set for compilers, and do not reach nvcc: they would change images."""
    values = {name: _HOST_COMPILER.sub("", environ.get(name, "")) for name in (*_FLAGS, *_SEARCH)}
    return [name for name, value in values.items() if value.strip()]


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


def _run(
    command: Sequence[str], directory: Path, unit: TranslationUnit, environ: Mapping[str, str]
) -> process.Completed:
    """Run nvcc in `directory`, without the outputs of an earlier run: it appends to the times."""
    for name in (_OUTPUT, _TIMES):
        (directory / name).unlink(missing_ok=True)
    return process.run(command, environ=environ, directory=directory, compiles=unit.name)


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
