"""nvcc: found on this machine, run as a process, its output independent of the directory it runs in.

It needs a host compiler, even for device code alone, and reads the host's C++ headers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from cuda_ext.compiler import process, ptx, toolkit
from cuda_ext.compiler.architectures import Architecture
from cuda_ext.compiler.diagnostics import explain
from cuda_ext.compiler.image import read_image
from cuda_ext.compiler.survey import NOT_WITH_DEBUG, survey_of_debug_ptx
from cuda_ext.compiler.translation_unit import CompiledImage, Survey, TranslationUnit
from cuda_ext.errors import CompilationError, ToolchainError

__all__ = ["Nvcc", "find_nvcc"]


def find_nvcc(configured: str | None, environ: Mapping[str, str]) -> Nvcc:
    """The nvcc to use: `configured` and no other, or else the first that works.

    The order is ``CUDA_PATH``, ``CUDA_HOME``, the registry's wheel, ``PATH``. Raises
    :class:`~cuda_ext.errors.ToolchainError` that tells why each of them was passed over.
    """
    passed_over = []
    for origin, candidate in _candidates(configured, environ):
        if isinstance(candidate, Path):
            try:
                return Nvcc(candidate, environ)
            except ToolchainError as error:
                candidate = str(error)
        passed_over.append(f"  {origin}: {candidate}".replace("\n", "\n    "))
    raise ToolchainError(
        "\n".join(["no nvcc can be used:", *passed_over])
        + '\ninstall "cuda-ext[nvcc-cu13]", or set CUDA_PATH to a CUDA toolkit; '
        'compiler = "nvrtc" needs neither nvcc nor a host compiler'
    )


def _candidates(configured: str | None, environ: Mapping[str, str]) -> Iterator[tuple[str, Path | str]]:
    """Where nvcc may be: each place with a path, or with the reason why there is none."""
    search_path = environ.get("PATH", "")
    if configured is not None:
        yield "configured", Path(shutil.which(configured, path=search_path) or configured)
        return
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        value = environ.get(variable)
        yield variable, Path(value, "bin", "nvcc") if value else "not set"
    # Those for CUDA 12, under other names, hold ptxas and libNVVM but no nvcc.
    directories = [
        d for package in toolkit.nvidia_packages() for d in sorted(package.glob("cu*/bin"), reverse=True)
    ]
    wheel = shutil.which("nvcc", path=os.pathsep.join(map(str, directories)))
    yield "nvidia-cuda-nvcc", Path(wheel) if wheel else "not installed"
    found = shutil.which("nvcc", path=search_path)
    yield "PATH", Path(found) if found else "holds no nvcc"


@dataclass(frozen=True, slots=True)
class _Description:
    """What a pass of its own tells of a unit: its survey, and the name map of what it instantiates."""

    survey: Survey
    names: Mapping[str, str]


class Nvcc:
    """The :class:`~cuda_ext.compiler.translation_unit.Compiler` that can read the host's C++ headers.

    Of `environ` it heeds where programs are, and nothing that would change an image. Raises
    :class:`~cuda_ext.errors.ToolchainError` if `executable` does not run, or finds no host compiler.
    """

    name = "nvcc"

    def __init__(self, executable: Path, environ: Mapping[str, str]) -> None:
        self.executable = executable.absolute()
        self._environ = _environment(environ)
        self._descriptions: dict[tuple[object, ...], dict[str, _Description]] = {}
        version = re.search(r"release (\d+\.\d+)", self._ask("--version").output)
        if version is None:
            raise ToolchainError(f"{executable} does not tell its version")
        self.version = version[1]
        # The host compiler preprocesses.
        preprocessed = self._ask("-E", "--allow-unsupported-compiler", "-x", "cu", os.devnull)
        if preprocessed.exit_code != 0:
            reason = preprocessed.output.strip().partition("\n")[0]
            raise ToolchainError(
                f"{executable} ({self.version}) has no usable host compiler ({reason}); "
                "put g++ or clang++ on PATH, or name one in NVCC_CCBIN"
            )

    @cached_property
    def _header_directories(self) -> list[Path]:
        """Where headers are that nvcc does not find by itself."""
        plan = self._ask("--dryrun", "-x", "cu", "empty.cu").output
        top = re.search(r"^#\$ TOP=(.+)$", plan, re.MULTILINE)
        own = Path(top[1] if top else self.executable.parent.parent).resolve()
        found = toolkit.header_directories(int(self.version.partition(".")[0]))
        return [directory for directory in found if not directory.resolve().is_relative_to(own)]

    @cache  # noqa: B019 - one instance lives as long as the build
    def capabilities(self) -> tuple[int, ...]:
        return tuple(sorted(map(int, re.findall(r"sm_(\d+)", self._ask("--list-gpu-code").output))))

    @cache  # noqa: B019 - one instance lives as long as the build
    def supports(self, architecture: Architecture) -> bool:
        if not architecture.suffix:
            return architecture.number in self.capabilities()
        return self._ask("--dryrun", *_target(architecture), "-x", "cu", "empty.cu").exit_code == 0

    def compile(self, unit: TranslationUnit, architecture: Architecture) -> CompiledImage:
        # A reference from host code makes nvcc compile an instantiation, and leaves no other trace.
        source = _with_name_map(unit, "static void* const")
        options = [*_target(architecture), *_options(unit, architecture)]
        data, log = self._run(unit, source, options)
        image = read_image(architecture, data, log=log)
        return dataclasses.replace(image, names=self._names(unit, architecture, image.entries))

    def survey(self, unit: TranslationUnit, architecture: Architecture) -> Survey:
        return self._described(unit, architecture).survey

    def _names(
        self, unit: TranslationUnit, architecture: Architecture, entries: Sequence[str]
    ) -> Mapping[str, str]:
        """The name map of the image that holds `entries`."""
        if not unit.instantiate:
            return {}
        # CUDA forbids signatures and instantiations that depend on the architecture, so one description
        # serves the images of all architectures; for code that does so all the same, each has its own.
        for known in self._known(unit, architecture).values():
            if set(known.names.values()) <= set(entries):
                return known.names
        return self._described(unit, architecture).names

    def _described(self, unit: TranslationUnit, architecture: Architecture) -> _Description:
        known = self._known(unit, architecture)
        if architecture.target not in known:
            source = _with_name_map(unit, "static __device__ void* const")
            options = [o for o in _options(unit, architecture) if o not in NOT_WITH_DEBUG]
            assembly, _ = self._run(unit, source, [*_target(architecture.as_kind("ptx")), "-G", *options])
            lowered = ptx.addresses(assembly, _NAME_MAP)
            known[architecture.target] = _Description(
                survey_of_debug_ptx(assembly, {unit.name, *unit.headers}),
                dict(zip(unit.instantiate, lowered, strict=True)),
            )
        return known[architecture.target]

    def _known(self, unit: TranslationUnit, architecture: Architecture) -> dict[str, _Description]:
        """The descriptions of `unit` so far, by target."""
        key = (unit.sha256, repr(unit.options), unit.instantiate, _relocatable(unit, architecture))
        return self._descriptions.setdefault(key, {})

    def _run(self, unit: TranslationUnit, source: bytes, options: Sequence[str]) -> tuple[bytes, str]:
        """Compile `source` in place of the unit's own; the output and the compiler's text."""
        try:
            with tempfile.TemporaryDirectory(prefix="cuda_ext-") as directory:
                ended = self._run_in(Path(directory), unit, source, options)
                output = Path(directory, _OUTPUT)
                data = output.read_bytes() if output.is_file() else None
        except OSError as error:
            raise ToolchainError(f"{self.executable} cannot be run: {error}") from None
        log = re.sub(r"(?<![\w./])\./", "", ended.output.replace(f"{directory}/", "")).strip()
        if ended.exit_code == 0 and data is not None:
            return data, log
        explained = explain(
            log,
            source=unit.source,
            header_directories=self._header_directories,
            host_headers=True,
            expressions=unit.instantiate,
        )
        raise CompilationError(explained or str(ended))

    def _run_in(
        self, directory: Path, unit: TranslationUnit, source: bytes, options: Sequence[str]
    ) -> process.Completed:
        for name, content in {**unit.headers, unit.name: source}.items():
            _write(directory / name, content)
        _write(directory / _HOST_OPTIONS, _host_options(unit, self._header_directories))
        seed = hashlib.sha256(unit.name.encode()).hexdigest()[:16]
        command = [
            str(self.executable),
            "-I.",
            # Names of internal linkage hold a hash of the source's full path, or, in a unit without any
            # other name, the number of the process.
            f"-Xcicc=--orig_src_path_name,{seed}",
            f"-frandom-seed={seed}",
            # Otherwise intermediate files have random names, and debug information tells them.
            "--keep",
            f"-Xcompiler=@{_HOST_OPTIONS}",
            *options,
            *("-x", "cu", unit.name, "-o", _OUTPUT),
        ]
        # What a killed compiler leaves behind goes with the directory.
        environ = {**self._environ, "TMPDIR": str(directory)}
        return process.run(command, environ=environ, directory=directory)

    def _ask(self, *arguments: str) -> process.Completed:
        try:
            return process.run([str(self.executable), *arguments], environ=self._environ)
        except OSError as error:
            raise ToolchainError(f"{self.executable} cannot be run: {error.strerror}") from None


_OUTPUT = "cuda_ext.image"
_HOST_OPTIONS = "cuda_ext.rsp"
_NAME_MAP = "cuda_ext_name_map"

_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_SEARCH = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
_HOST_COMPILER = re.compile(r"(?:-ccbin|--compiler-bindir)[=\s]\s*(\S+)")


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without what would change an image unseen."""
    kept = {name: value for name, value in environ.items() if name not in {*_FLAGS, *_SEARCH}}
    # What goes into an image is said in pyproject.toml, where everyone who builds it reads it. But which
    # host compiler this machine has is the machine's to say, and conda-forge says it in these flags.
    if named := _HOST_COMPILER.findall(" ".join(environ.get(name, "") for name in _FLAGS)):
        kept["NVCC_CCBIN"] = named[-1]
    return kept | {
        # The front end takes this for its directory when it leads there: debug information then names the
        # same files on every machine, and a debugger finds them when it runs in the project's root.
        "PWD": "/proc/self/cwd",
        "SOURCE_DATE_EPOCH": "0",  # __DATE__ and __TIME__
        "TZ": "UTC",  # __TIMESTAMP__
        "LC_ALL": "C",
    }


def _target(architecture: Architecture) -> list[str]:
    match architecture.kind:
        case "cubin":
            return ["-cubin", f"-arch=sm_{architecture.target}"]
        case "ptx":
            return ["-ptx", f"-arch=compute_{architecture.target}"]
        case "ltoir":
            return ["-ltoir", "-dlto", f"-arch=sm_{architecture.target}"]


def _relocatable(unit: TranslationUnit, architecture: Architecture) -> bool:
    # LTO-IR is always relocatable, which shows in names of internal linkage.
    return unit.options.relocatable or architecture.kind == "ltoir"


def _options(unit: TranslationUnit, architecture: Architecture) -> list[str]:
    return [
        *(["--expt-relaxed-constexpr"] if unit.options.relaxed_constexpr else []),
        *(["-rdc=true"] if _relocatable(unit, architecture) else []),
        *dataclasses.replace(unit.options, define={}).spelled(),
    ]


def _host_options(unit: TranslationUnit, header_directories: Sequence[Path]) -> bytes:
    """A response file for the host compiler, which preprocesses.

    nvcc gives options to a shell, unquoted; what is in a file stays as it is.
    """
    options = [
        *unit.options.definitions(),
        # Headers are found below "-I.", and are to be named as the project names them.
        "-fmacro-prefix-map=./=",
        # After the headers of nvcc's own toolkit: they must be of its version.
        *(f"-idirafter{directory}" for directory in header_directories),
    ]
    return "\n".join(re.sub(r"([\s\\'\"])", r"\\\1", option) for option in options).encode()


def _with_name_map(unit: TranslationUnit, declaration: str) -> bytes:
    """The source and, behind it, a table of the kernels to instantiate, with line numbers of its own."""
    if not unit.instantiate:
        return unit.source
    table = [
        ";",  # a source that breaks off is in error here, before the table
        '#line 1 "__nv_name_map"',
        f"[[maybe_unused]] {declaration} {_NAME_MAP}[] = {{",
        *(f"(void*)&{expression}," for expression in unit.instantiate),
        "};",
    ]
    return unit.source + "\n".join(["", *table, ""]).encode()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (0, 0))  # line information has the time of modification
