"""The door for setuptools: ``build_cuda``, a step of ``build`` in projects with a ``[tool.cuda_ext]`` table.

Nothing but the table is needed. The entry points of this package lead setuptools here at three moments,
for every project that it builds on this machine:

* :func:`before_configuration` when a project is opened;
* :func:`after_configuration` when its metadata is written and its files are listed;
* :class:`build_cuda` when the command is run, by ``build`` or by name.

A project without the table is left as it is.
"""

from __future__ import annotations

import logging
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ClassVar

from setuptools import Command, Distribution
from setuptools.command.build import build
from setuptools.discovery import FlatLayoutPackageFinder, find_package_path

from cuda_ext.errors import BuildError
from cuda_ext.integrations.exit_with_error import check_names, one_message

if TYPE_CHECKING:
    from cuda_ext.builder.package.generate import Package
    from cuda_ext.builder.project import Project

__all__ = ["after_configuration", "before_configuration", "build_cuda"]


def before_configuration(distribution: Distribution) -> None:
    """Make ``build_cuda`` a step of ``build`` and of ``build_ext``.

    setuptools comes here several times per build and has read no configuration yet.
    """
    table = _table(distribution)
    if table is None:
        return
    # [tool.setuptools.cmdclass] will replace distribution.cmdclass as a whole. So the step goes where a
    # class named there inherits it from, and into a class that setup.py has named already.
    for named in (build, distribution.cmdclass.get("build", build)):
        for class_ in named.__mro__:
            steps = vars(class_).get("sub_commands")
            if steps and _STEP not in steps:
                class_.sub_commands = [*steps, _STEP]
    # build_ext has no sub-commands. An alias reaches it on the command line, which is where `--inplace` is
    # said, and leaves its class alone: Cython, torch and many projects bring their own.
    distribution.get_option_dict("aliases").setdefault("build_ext", ("cuda_ext", "build_cuda build_ext"))
    # In a flat layout setuptools takes every directory for a package, and refuses to choose between two.
    directories = _device_directories(distribution, table)
    names = [name for directory in directories for name in (directory, f"{directory}.*")]
    FlatLayoutPackageFinder.DEFAULT_EXCLUDE = tuple(
        dict.fromkeys([*FlatLayoutPackageFinder.DEFAULT_EXCLUDE, *names])
    )


@one_message()
def after_configuration(command: Command, _basename: str, _file: str) -> None:
    """Refuse a ``build`` that would leave the kernels out; keep generated packages out of the sdist."""
    distribution = command.distribution
    if _table(distribution) is None:
        return
    named = distribution.get_command_class("build")
    if "build_cuda" not in dict(named.sub_commands):
        raise BuildError(
            f"{named.__module__}.{named.__qualname__}: its sub_commands leave out the kernels; "
            'begin them with *setuptools.command.build.build.sub_commands, or add ("build_cuda", None)'
        )
    from cuda_ext.filesystem.ownership import is_generated

    # setuptools finds in the source tree what an in-place build has left there.
    names = distribution.packages or ()
    distribution.exclude(packages=[n for n in names if is_generated(_source_directory(distribution, n))])
    # When a wheel is built, build_py comes first and has taken its list already.
    distribution.get_command_obj("build_py").packages = distribution.packages


class build_cuda(Command):  # type: ignore[misc]  # noqa: N801 - commands are spelled as they are called
    """Compile the project's device sources into importable packages.

    They go into ``build_lib``, which then holds no other generated package, and with ``inplace`` into the
    source tree too. A mistake in the project ends the build with one message.
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
        self.build_lib = self.inplace = None  # type: ignore[assignment]  # None is "not given"
        self.jobs = self.report = self.trace = None
        self.editable_mode = False
        self._outputs: dict[str, str] = {}

    @one_message()
    def finalize_options(self) -> None:
        from cuda_ext.builder.project import Project

        self.set_undefined_options("build", ("build_lib", "build_lib"))
        self.set_undefined_options("build_ext", ("inplace", "inplace"))
        # A lenient editable install imports from the source tree, a strict one links to it.
        self.inplace = self.inplace or self.editable_mode
        project = Project.required(_root(self.distribution), self.distribution.packages or ())
        find = partial(_source_directory, self.distribution)
        check_names(project, self.distribution.packages or (), find, "setuptools")
        self.project = project

    @one_message()
    def run(self) -> None:
        self._remove_generated()
        from cuda_ext.builder.package.in_place import in_place
        from cuda_ext.toolchain.process import ending_in_order

        said = {"MAX_JOBS": self.jobs, "CUDA_EXT_REPORT": self.report, "CUDA_EXT_TRACE": self.trace}
        environ = os.environ | {name: value for name, value in said.items() if value}
        with ending_in_order():
            packages = self._build(lambda line: self.announce(line, logging.INFO), environ)
        for package in packages:
            built = Path(self.build_lib, *package.name.split("."))
            source = _source_directory(self.distribution, package.name)
            package.write(built)
            if self.inplace:
                in_place(package).write(source)
            self._outputs.update({str(built / name): str(source / name) for name in package.files})

    def _build(self, report: Callable[[str], None], environ: Mapping[str, str]) -> list[Package]:
        if not self.editable_mode:
            return list(self.project.build(report, environ))
        from cuda_ext.builder.package.editable import build_editable

        return build_editable(self.project, partial(_source_directory, self.distribution), report, environ)

    @one_message()
    def get_source_files(self) -> list[str]:
        """The device sources and headers, for the sdist. No compiler is needed."""
        return [str(path) for path in self.project.source_files()]

    def get_outputs(self) -> list[str]:
        """The generated files in ``build_lib``; none before :meth:`run`, since compiling decides on them."""
        return list(self._outputs)

    def get_output_mapping(self) -> dict[str, str]:
        """Each generated file in ``build_lib``, and the same file in the source tree."""
        return dict(self._outputs) if self.inplace else {}

    def _remove_generated(self) -> None:
        """Take out of ``build_lib`` what earlier builds left and what ``build_py`` found of in-place ones."""
        from cuda_ext.filesystem.atomic_directory import remove_remains
        from cuda_ext.filesystem.ownership import is_generated

        wanted = {module.name for module in self.project.modules}
        built = Path(self.build_lib)
        own = {built / name.partition(".")[0] for name in (*self.distribution.packages, *wanted)}
        for top in own:
            remove_remains(top)
        found = {file.parent for top in own for file in top.rglob("__init__.py")}
        for directory in sorted(found, reverse=True):
            name = ".".join(directory.relative_to(built).parts)
            source = _source_directory(self.distribution, name)
            if name in wanted or is_generated(directory) or is_generated(source):
                shutil.rmtree(directory)


_STEP = ("build_cuda", lambda command: _table(command.distribution) is not None)


def _root(distribution: Distribution) -> Path:
    return Path(distribution.src_root or os.curdir)


def _table(distribution: Distribution) -> object:
    """What pyproject.toml says in our table; ``None`` where there is none."""
    try:
        document = tomllib.loads((_root(distribution) / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # it is not there, or setuptools will say what is wrong with it
    match document:
        case {"tool": {"cuda_ext": table} | {"cuda-ext": table}}:  # build_cuda says how it is spelled
            return table
    return None


def _strings(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from _strings(item)
        case list():
            for item in value:
                yield from _strings(item)


def _source_directory(distribution: Distribution, package: str) -> Path:
    return Path(find_package_path(package, distribution.package_dir or {}, _root(distribution)))


def _device_directories(distribution: Distribution, table: object) -> list[str]:
    """The project's top-level directories that `table`, right or wrong, names and that hold no Python."""
    from cuda_ext.builder.config.keys import Settings

    tops = {PurePosixPath(text).parts[:1] for text in (*Settings().sources, *_strings(table))}
    directories = [_root(distribution) / name for (name,) in filter(None, tops) if name.isidentifier()]
    return sorted(d.name for d in directories if d.is_dir() and not any(d.rglob("*.py")))
