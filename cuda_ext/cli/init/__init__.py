"""``cuda-ext init``: write a project to start from. Existing files are replaced only with ``--force``."""

from __future__ import annotations

import keyword
import os
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import click

from cuda_ext.cli.terminal import DIRECTORY, TEXT, Failure
from cuda_ext.filesystem.atomic_directory import replace_file

_BACKENDS = ("setuptools", "scikit-build-core", "hatchling", "meson-python")
# Files by their paths in the project, and their templates.
_RELEASE = ".github/workflows/release.yml"
_FILES = {
    _RELEASE: "release.yml",
    ".github/workflows/test.yml": "workflow.yml",
    ".gitignore": "gitignore",
    "CMakeLists.txt": "CMakeLists.txt",
    "README.md": "README.md",
    "device/axpy.cu": "axpy.cu",
    "meson.build": "meson.build",
    "pyproject.toml": "pyproject.toml",
    "src/{package}/__init__.py": "package.py",
    "src/{package}/py.typed": "py.typed",
    "tests/test_axpy.py": "test_axpy.py",
}
# Files that one backend alone reads.
_ONLY_OF = {"CMakeLists.txt": "scikit-build-core", "meson.build": "meson-python"}
# Packages that the project imports or that build it.
_USED = frozenset(
    {"cuda", "cuda_ext", "hatchling", "mesonpy", "numpy", "pytest", "scikit_build_core", "setuptools"}
)


@click.command(
    epilog="""\b
    Examples:
      cuda-ext init my-project
      cuda-ext init my-project --backend hatchling --publish
    """
)
@click.argument("directory", metavar="[DIR]", default=".", type=DIRECTORY)
@click.option(
    "--backend",
    type=click.Choice(_BACKENDS),
    help="The build backend; by default setuptools.",
)
@click.option("--name", metavar="NAME", type=TEXT, help="The project's name; by default that of DIR.")
@click.option(
    "--publish/--no-publish",
    default=None,
    help="Add a workflow that publishes the wheel when a tag is pushed.",
)
@click.option("--force", is_flag=True, help="Replace existing files.")
def init(directory: Path, backend: str | None, name: str | None, publish: bool | None, force: bool) -> None:
    """Write a project to start from.

    It has one kernel, a Python module that launches it, a test, and a workflow that runs this test on GitHub.
    DIR is created if it does not exist. Existing files are never overwritten without --force. In a terminal,
    the command asks for the backend and the publishing workflow if no option says them.
    """
    project = normalize_name(directory.resolve().name if name is None else name)
    is_asking = sys.stdin.isatty() and sys.stdout.isatty()
    if backend is None:
        backend = _BACKENDS[0]
        if is_asking:
            backend = click.prompt("Build backend", default=backend, type=click.Choice(_BACKENDS))
    if publish is None:
        publish = is_asking and click.confirm("Publish a release for each tag, with a workflow on GitHub?")
    files = _render_files(project, backend)
    if not publish:
        del files[_RELEASE]
    write_files(directory, files, force=force)
    click.echo(f"Wrote the project {project}, which {backend} builds:")
    for file in files:
        click.echo(f"  {directory / file}")
    click.echo("\nNext:")
    if directory.resolve() != Path.cwd():
        # cd would take a name that begins with "-" for an option.
        prefix = f"{os.curdir}{os.sep}" if str(directory).startswith("-") else ""
        click.echo(f"  cd {_quote(f'{prefix}{directory}')}")
    click.echo('  pip install ".[test]"')
    click.echo("  pytest")


def _quote(path: str) -> str:
    """`path` as one argument in this system's shell."""
    if sys.platform == "win32":  # paths have no quotes there
        return f'"{path}"' if " " in path else path
    return shlex.quote(path)


def normalize_name(text: str) -> str:
    """Return the distribution's name. Raises :class:`Failure` if that is no usable name.

    >>> normalize_name("My Project.2")
    'my-project-2'
    """
    name = re.sub(r"[-_.\s]+", "-", text).strip("-").lower()
    if flaw := _flaw(name):
        raise Failure(f"{text!r} is not a name for a package: {flaw}", remedy="give another one with --name")
    return name


def _package(name: str) -> str:
    """Return the import package of the distribution `name`."""
    return name.replace("-", "_")


def _flaw(name: str) -> str | None:
    package = _package(name)
    if not name:
        return "it has no letter"
    if invalid := re.search(r"[^a-z0-9-]", name):
        return f"{invalid[0]!r} is not one of the letters a to z, digits, '-', '_' and '.'"
    if name[0].isdigit():
        return "it begins with a digit"
    if keyword.iskeyword(package):
        return f"{package!r} is a keyword of Python"
    if package in sys.stdlib_module_names | {"test"}:
        return f"{package!r} is a module of the standard library"
    if package in _USED:
        return f"{package!r} is a package that the project uses"
    return None


def _render_files(name: str, backend: str) -> dict[str, str]:
    """Return the text of each file, by its path in the project."""
    from cuda_ext.builder.rendering import templates

    files = templates("cuda_ext.cli.init")
    context = {"name": name, "package": _package(name), "backend": backend}
    return {
        path.format(package=_package(name)): files.get_template(f"{template}.j2").render(context)
        for path, template in _FILES.items()
        if _ONLY_OF.get(path, backend) == backend
    }


def write_files(directory: Path, files: Mapping[str, str], *, force: bool = False) -> None:
    """Write `files`, by their paths in `directory`, which is created if necessary.

    With `force`, existing files are replaced. Raises :class:`Failure` if any of them exists or cannot be
    written; then nothing is changed.
    """
    if directory.exists() and not directory.is_dir():
        raise Failure("is a file", where=directory, remedy="name a directory")
    existing = [name for name in files if os.path.lexists(directory / name)]
    if existing and not force:
        listed = "".join(f"\n  {directory / name}" for name in existing)
        raise Failure(
            "nothing was written, because these files exist",
            where=directory,
            remedy=f"move them, name another directory, or replace them with --force:{listed}",
        )
    with ExitStack() as written:
        try:
            for name, text in files.items():
                _write(directory / name, text, written)
        except OSError as error:
            place = error.filename or directory
            raise Failure(f"{error.strerror}", where=place, remedy="nothing was written") from None
        written.pop_all()


def _write(path: Path, text: str, undo: ExitStack) -> None:
    """Write one file; `undo` removes it again, with the directories that were created for it."""
    for parent in reversed(path.parents):
        if not parent.exists():
            if parent.is_symlink():
                raise Failure(
                    f"is a link to {parent.readlink()}, which does not exist",
                    where=parent,
                    remedy="create that, or remove the link; nothing was written",
                )
            parent.mkdir()
            undo.callback(_remove, parent, directory=True)
    if os.path.lexists(path):  # to be replaced
        if path.is_symlink() or not path.is_file():
            raise Failure("is not a regular file", where=path, remedy="move it; nothing was written")
        former = path.read_bytes()
        undo.callback(replace_file, path, former)
        replace_file(path, text.encode())
        return
    with path.open("x", encoding="utf-8", newline="\n") as file:
        undo.callback(_remove, path)
        file.write(text)


def _remove(path: Path, directory: bool = False) -> None:
    with suppress(OSError):
        path.rmdir() if directory else path.unlink()
