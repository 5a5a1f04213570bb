"""The step that checks and plans all modules of a project when CMake has read it.

Each call of ``cuda_ext_add_module`` left its arguments in a directory. The step writes what the other steps
need there, and what CMake needs for its rules. A mistake in one module does not hide those in others.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from glob import escape, has_magic
from pathlib import Path
from typing import NamedTuple

import cuda_ext
from cuda_ext.builder.config.modules import ModuleConfig
from cuda_ext.builder.project import Project
from cuda_ext.builder.session import plan as plan_modules
from cuda_ext.builder.sources.globs import find_headers
from cuda_ext.compiler.architectures import from_cmake
from cuda_ext.compiler.spelled_settings import IN_CMAKE
from cuda_ext.errors import BuildError, ConfigError, ToolchainError, describe_error
from cuda_ext.filesystem.atomic_directory import replace_file
from cuda_ext.integrations.cmake.module_call import Call, call_of, check_calls_apart
from cuda_ext.integrations.cmake.parse_call import parse_call, spell_error

_SEPARATOR = "\x1f"  # between arguments


def configure(version: str, directories: Sequence[str], show: Callable[[str], None]) -> int:
    """Check the calls in the `directories` before ``--``; those after it only for names that collide.

    `version` is that of the CMake package. Return the exit status.
    """
    if version != cuda_ext.__version__:
        return 1  # CMake explains it
    own = list(map(_Request.read, directories[: directories.index("--")]))
    planned = list(map(_Request.read, directories[directories.index("--") + 1 :]))
    calls = list(map(_read, planned))
    failures: list[str] = []
    for request in own:
        with _collecting(failures, request):
            calls.append(_read(request))
    by_call = {call_of(request.target): request for request in (*planned, *own)}
    if not failures:
        try:
            check_calls_apart(calls)
        except ConfigError as error:
            failures.append(_describe(error, by_call[str(error.where)]))
    for request, call in zip(own, calls[len(planned) :], strict=True) if not failures else ():
        with _collecting(failures, request):
            _plan(request, call, show)
    if failures:
        show("\n".join(failures))
    return bool(failures)


class _Request(NamedTuple):
    """A call as CMake made it: ``words`` after ``target``, in the file ``lists`` of a project in ``root``.

    ``current`` is CMake's current source directory, ``binary`` the project's binary directory, and
    ``architectures`` the default. ``embed`` is ``none`` where C++ is not enabled. ``machine`` is the
    processor if object files are ELF. If ``exported`` is ``ON``, there is to be a compilation database. The
    build makes the sources at the paths ``generated``.
    """

    directory: Path
    target: str
    root: Path
    current: Path
    binary: Path
    lists: str
    architectures: str
    embed: str
    generator: str
    exported: str
    machine: str
    words: Sequence[bytes]
    generated: Sequence[str] = ()

    @classmethod
    def read(cls, directory: str) -> _Request:
        arguments = Path(directory, "arguments.txt").read_bytes().split(_SEPARATOR.encode())
        target, root, current, binary, *others = map(os.fsdecode, arguments[:10])
        lists, architectures, embed, generator, exported, machine = others
        paths = Path(directory), target, Path(root), Path(current), Path(binary)
        generated = Path(directory, "generated.txt").read_text(encoding="utf-8").split("\n")
        rest = arguments[10:], generated
        return cls(*paths, lists, architectures, embed, generator, exported, machine, *rest)

    @property
    def place(self) -> str:
        """The file and, if it can be found there, the line of the call."""
        with suppress(OSError):
            text = Path(self.lists).read_text(encoding="utf-8", errors="replace")
            pattern = rf'\bcuda_ext_add_module\s*\(\s*"?{re.escape(self.target)}["\s)]'
            if len(found := list(re.finditer(pattern, text, re.IGNORECASE))) == 1:
                return f"{self.lists}:{text.count(chr(10), 0, found[0].start()) + 1}"
        return self.lists


@contextmanager
def _collecting(failures: list[str], request: _Request) -> Iterator[None]:
    """Add an error to `failures`. It spells settings as they are written: in pyproject.toml or here."""
    if b"FROM_PYPROJECT" not in request.words:
        os.environ[IN_CMAKE] = "1"
    try:
        yield
    except Exception as error:
        failures.append(_describe(error, request))
    finally:
        os.environ.pop(IN_CMAKE, None)


def _describe(error: Exception, request: _Request) -> str:
    call = call_of(request.target)
    text = spell_error(error, call) if isinstance(error, BuildError) else describe_error(error)
    return f"{call} in {request.place}: {text.removeprefix(f'{call}: ')}"


def _read(request: _Request) -> Call:
    """Read a call. Raises :class:`ConfigError`."""
    words = [_decode(word, request.target) for word in request.words]
    paths = request.root, request.current, request.binary, request.generated
    call = parse_call(words, request.target, *paths)
    # enable_language(CUDA) takes OFF for the compiler's default.
    default = request.architectures
    call = dataclasses.replace(
        call,
        architectures=[] if default.upper() in ("OFF", "FALSE") else from_cmake(default),
        cudaarchs=os.environ.get("CUDAARCHS", ""),
        machine=request.machine,
        embed=call.choose_embed(request.embed, request.machine),
        restores_byproducts="Makefiles" not in request.generator,
    )
    return dataclasses.replace(call, name=call.project().modules[0].name)


def _plan(request: _Request, call: Call, show: Callable[[str], None]) -> None:
    """Write ``module.json`` for the other steps, ``module.cmake``, and perhaps a compilation database.

    Raises :class:`BuildError`; a failure of the database is a warning.
    """
    project = call.project_before_the_build()
    (config,) = project.modules
    for name in config.settings.include_dirs:
        if name.partition("/")[0] in project.outside:  # the build may make it
            Path(project.tree.path(name)).mkdir(parents=True, exist_ok=True)
    # Architectures and the compiler are checked here, so that mistakes stop CMake.
    (plan,) = plan_modules(project, call.environ())
    _check_launcher(config)
    units = [unit for library in plan.libraries for unit in library.units]
    sources = sorted({unit.name for unit in units})
    embedded = find_headers(config, project.tree)
    headers = {name for unit in units for name in unit.header_files}.union(plan.headers, embedded)
    _check_names([*sources, *sorted(headers)], call.target)
    call = dataclasses.replace(call, files=(*sources, *embedded))
    replace_file(request.directory / "module.cmake", _variables(call, config).encode())
    call.write(request.directory)
    if request.exported == "ON":
        _export_commands(request, project, call, show)


def _export_commands(request: _Request, project: Project, call: Call, show: Callable[[str], None]) -> None:
    from cuda_ext.builder.sources import compilation_database as editors

    try:
        commands = editors.list_commands(project, call.environ())
    except ToolchainError as error:
        show(f"{call_of(call.target)}: {editors.FILE_NAME} is not written: {error}")
    else:
        editors.write(request.directory / editors.FILE_NAME, commands)


def _variables(call: Call, config: ModuleConfig) -> str:
    """Write the variables of ``module.cmake``. Raises :class:`ConfigError`."""
    root = Path(call.root)

    def spell(pattern: str) -> str:
        first, _, rest = pattern.partition("/")
        inside = first not in call.outside
        # CMake's globs have the same wildcards.
        return f"{escape(call.root)}/{pattern}" if inside else f"{escape(call.outside[first])}/{rest}"

    patterns = [p for p in (*config.settings.sources, *config.settings.headers) if has_magic(p)]
    variables: Mapping[str, Sequence[str]] = {
        "name": [config.name],
        "on_demand": ["ON"] if call.jit or config.settings.headers else [],
        "globs": [spell(pattern) for pattern in patterns if "**" not in pattern],
        "recursive_globs": [spell(p.replace("**/", "")) for p in patterns if "**" in p],
        "pyproject": [str(root / "pyproject.toml")] if call.pyproject else [],
    }
    if split := [value for values in variables.values() for value in values if ";" in value]:
        problem = f"{split[0]!r} has a semicolon, which separates values in CMake"
        raise ConfigError(problem, where=call_of(call.target), remedy="rename it")
    quoted = {name: re.sub(r'([\\"$])', r"\\\1", ";".join(values)) for name, values in variables.items()}
    return "".join(f'set(cuda_ext_{name} "{text}")\n' for name, text in quoted.items())


def _decode(text: bytes, target: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"an argument has the byte {text[error.start]:#04x}, which is not UTF-8",
            where=call_of(target),
            remedy="save the CMakeLists.txt as UTF-8",
        ) from None


def _check_names(names: Iterable[str], target: str) -> None:
    """No file has a name that CMake, Ninja or Make would change or divide."""
    for name in names:
        if found := re.search(r'["%*:;<>^`|]', name):
            raise ConfigError(
                f"{name!r} has the character {found[0]!r}, which build tools do not accept in file names",
                where=call_of(target),
                remedy="rename it",
            )


def _check_launcher(config: ModuleConfig) -> None:
    if (launcher := config.settings.launcher) and not shutil.which(launcher):
        where = config.key_path("launcher")
        raise ConfigError(f"{launcher!r} is not on PATH", where=where, remedy="install it, or leave it out")
