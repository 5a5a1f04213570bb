"""The setuptools command ``build_cuda``, a step of ``build`` in projects with a ``[tool.cuda_ext]`` table.

The table is all that a project needs. Through the entry points of this package, setuptools calls this module
for every project that it builds:

* :func:`before_configuration` when a distribution is created;
* :func:`after_configuration` when metadata is written and files are listed;
* :class:`build_cuda` when the command runs, as a step of ``build`` or by name.

Projects without the table are left unchanged.
"""

from __future__ import annotations

import logging
import os
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ClassVar

import setuptools
from setuptools import Command, Distribution
from setuptools.command.build import build
from setuptools.discovery import FlatLayoutPackageFinder, find_package_path

from cuda_ext.errors import BuildError
from cuda_ext.integrations.backend import build_environment, build_packages, exit_with_error

if TYPE_CHECKING:
    from cuda_ext.builder.project import Project

_OLDEST = 77  # the oldest setuptools that tests build with


@exit_with_error()
def before_configuration(distribution: Distribution) -> None:
    """Make ``build_cuda`` a step of ``build`` and of ``build_ext``.

    setuptools calls this several times per build, before it reads any configuration.
    """
    table = _table(distribution)
    if table is None:
        return
    build_environment()  # settings that are none end the build before anything is built
    if int(setuptools.__version__.partition(".")[0]) < _OLDEST:
        raise BuildError(
            f"setuptools {setuptools.__version__} is too old",
            where="[build-system] requires",
            remedy=f'write "setuptools>={_OLDEST}"',
        )
    # [tool.setuptools.cmdclass] replaces distribution.cmdclass later. Classes named there inherit the step
    # from setuptools' own; a class that setup.py names is here already.
    for command in (build, distribution.cmdclass.get("build", build)):
        for class_ in command.__mro__:
            steps = vars(class_).get("sub_commands")
            if steps and _STEP not in steps:
                class_.sub_commands = [*steps, _STEP]
    # build_ext has no sub-commands. An alias works on the command line, where `--inplace` is given, and
    # leaves the class alone: Cython, torch and many projects bring their own.
    distribution.get_option_dict("aliases").setdefault("build_ext", ("cuda_ext", "build_cuda build_ext"))
    # In a flat layout setuptools takes every directory for a package, and refuses to build with several.
    directories = _device_directories(distribution, table)
    names = [name for directory in directories for name in (directory, f"{directory}.*")]
    FlatLayoutPackageFinder.DEFAULT_EXCLUDE = tuple(
        dict.fromkeys([*FlatLayoutPackageFinder.DEFAULT_EXCLUDE, *names])
    )


@exit_with_error()
def after_configuration(command: Command, _basename: str, _file: str) -> None:
    """Refuse a ``build`` without the step; keep generated packages out of the sdist."""
    distribution = command.distribution
    if _table(distribution) is None:
        return
    command_class = distribution.get_command_class("build")
    if "build_cuda" not in dict(command_class.sub_commands):
        raise BuildError(
            "its sub_commands leave out the kernels",
            where=f"{command_class.__module__}.{command_class.__qualname__}",
            remedy="begin them with *setuptools.command.build.build.sub_commands, or add "
            '("build_cuda", None)',
        )
    from cuda_ext.filesystem.ownership import is_generated

    # Packages of in-place builds lie in the source tree, where setuptools finds them.
    names = distribution.packages or ()
    distribution.exclude(packages=[n for n in names if is_generated(_source_directory(distribution, n))])
    # In the build of a wheel, build_py has already copied the list.
    distribution.get_command_obj("build_py").packages = distribution.packages
    # Package data and MANIFEST.in may name anything in the source tree; what they name is found after this.
    find_sources = command.find_sources

    def find_sources_alone() -> None:
        from cuda_ext.builder.package.build_outputs import build_output_filter

        find_sources()
        is_build_output = build_output_filter()
        files, root = command.filelist.files, _root(distribution)
        files[:] = [name for name in files if not is_build_output(root / name)]

    command.find_sources = find_sources_alone


class build_cuda(Command):  # type: ignore[misc]  # noqa: N801 - commands are spelled as they are called
    """Compile the project's device sources into importable packages.

    They are written to ``build_lib``, from which other generated packages are removed, and with ``inplace``
    also to the source tree. A mistake in the project ends the build with one message.
    """

    description = "compile CUDA kernels into importable packages"
    user_options: ClassVar = [
        ("build-lib=", "b", "directory to put the packages in"),
        ("inplace", "i", "put the packages into the source tree too, among the Python modules"),
        ("jobs=", "j", "compile in so many processes (MAX_JOBS)"),
        ("report=", None, "write an HTML page about the build (CUDA_EXT_REPORT)"),
        ("trace=", None, "write a Chrome or Perfetto trace of the build (CUDA_EXT_TRACE)"),
    ]
    boolean_options: ClassVar = ["inplace"]

    build_lib: str
    inplace: bool
    jobs: str | None
    report: str | None
    trace: str | None
    project: Project

    def initialize_options(self) -> None:
        self.build_lib = self.inplace = None  # type: ignore[assignment]  # None means not given
        self.jobs = self.report = self.trace = None
        self.editable_mode = False
        self._outputs: dict[str, str] = {}

    @exit_with_error()
    def finalize_options(self) -> None:
        from cuda_ext.builder.package.in_place import check_places
        from cuda_ext.builder.project import Project

        self.set_undefined_options("build", ("build_lib", "build_lib"))
        self.set_undefined_options("build_ext", ("inplace", "inplace"))
        # A lenient editable install imports from the source tree, a strict one links to it.
        self.inplace = self.inplace or self.editable_mode
        project = Project.required(_root(self.distribution), self.distribution.packages or ())
        check_places(project, self.distribution.packages or (), self._source_directory, "setuptools")
        self.project = project

    @exit_with_error()
    def run(self) -> None:
        self._remove_generated()
        from cuda_ext.builder.package.in_place import write_in_place

        options = {"MAX_JOBS": self.jobs, "CUDA_EXT_REPORT": self.report, "CUDA_EXT_TRACE": self.trace}
        environ = build_environment() | {name: value for name, value in options.items() if value}
        packages = build_packages(
            self.project,
            lambda line: self.announce(line, logging.INFO),
            environ,
            self._source_directory,
            editable=self.editable_mode,
        )
        for package in packages:
            built = Path(self.build_lib, *package.name.split("."))
            source = self._source_directory(package.name)
            package.write(built)
            self._outputs.update({str(built / name): str(source / name) for name in package.files})
        if self.inplace:
            write_in_place(self.project, packages, {p.name: self._source_directory(p.name) for p in packages})

    def _source_directory(self, package: str) -> Path:
        return _source_directory(self.distribution, package)

    @exit_with_error()
    def get_source_files(self) -> list[str]:
        """Return the device sources and headers, for the sdist. No compiler is needed."""
        return [str(path) for path in self.project.source_files()]

    def get_outputs(self) -> list[str]:
        """Return the generated files in ``build_lib``; none before :meth:`run`, which determines them."""
        return list(self._outputs)

    def get_output_mapping(self) -> dict[str, str]:
        """Each generated file in ``build_lib`` with its copy in the source tree."""
        return dict(self._outputs) if self.inplace else {}

    def _remove_generated(self) -> None:
        """Remove packages from ``build_lib`` that earlier builds left or ``build_py`` copied.

        Outside of the project, other projects may have left some.
        """
        from cuda_ext.filesystem.atomic_directory import remove_remains
        from cuda_ext.filesystem.ownership import is_generated

        wanted = {module.name for module in self.project.modules}
        built = Path(self.build_lib)
        is_own = built.resolve().is_relative_to(self.project.root)
        tops = {built / name.partition(".")[0] for name in (*self.distribution.packages, *wanted)}
        for top in tops if is_own else ():
            remove_remains(top)
        directories = {file.parent for top in tops for file in top.rglob("__init__.py")}
        for directory in sorted(directories, reverse=True):
            name = ".".join(directory.relative_to(built).parts)
            is_left = is_own and (name in wanted or is_generated(directory))
            if is_left or is_generated(self._source_directory(name)):
                shutil.rmtree(directory)


_STEP = ("build_cuda", lambda command: _table(command.distribution) is not None)


def _root(distribution: Distribution) -> Path:
    return Path(distribution.src_root or os.curdir)


def _table(distribution: Distribution) -> object:
    """Return the table ``[tool.cuda_ext]`` of pyproject.toml, or ``None``."""
    try:
        document = tomllib.loads((_root(distribution) / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None  # setuptools reports what is wrong with the file
    match document:
        case {"tool": {"cuda_ext": table} | {"cuda-ext": table}}:  # build_cuda reports the misspelling
            return table
    return None


def _strings(value: object) -> Iterator[str]:
    pending = [value]
    for each in pending:
        match each:
            case str():
                yield each
            case dict():
                pending += each.values()
            case list():
                pending += each


def _source_directory(distribution: Distribution, package: str) -> Path:
    return Path(find_package_path(package, distribution.package_dir or {}, _root(distribution)))


def _device_directories(distribution: Distribution, table: object) -> list[str]:
    """Return the top-level directories without Python that `table`, valid or not, names."""
    from cuda_ext.builder.config.keys import Settings

    tops = {PurePosixPath(text).parts[:1] for text in (*Settings().sources, *_strings(table))}
    directories = [_root(distribution) / name for (name,) in filter(None, tops) if name.isidentifier()]
    return sorted(d.name for d in directories if d.is_dir() and not any(d.rglob("*.py")))
