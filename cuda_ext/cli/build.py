"""``cuda-ext build``."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import cuda_ext
from cuda_ext.cli import completion
from cuda_ext.cli.failure import Failure
from cuda_ext.cli.output import counted, echo_json, shown, size
from cuda_ext.cli.project import project_in
from cuda_ext.cli.values import DIRECTORY, FILE, NEW_DIRECTORY, TEXT
from cuda_ext.errors import BuildError, ConfigError

if TYPE_CHECKING:
    from cuda_ext.builder.package.generate import Package
    from cuda_ext.builder.project import Project

__all__ = ["build"]


@click.command(
    epilog="""\b
    Examples:
      cuda-ext build
      cuda-ext build my-project --arch native --report build/kernels.html
      cuda-ext build --output build/python --depfile build/kernels.d --json
    """
)
@click.argument("directory", metavar="[DIR]", default=".", type=DIRECTORY)
@click.option(
    "--arch",
    "architectures",
    metavar="sm_90",
    type=TEXT,
    multiple=True,
    shell_complete=completion.targets,
    help="What to compile for, as often as needed. By default, what the project says.",
)
@click.option("-j", "--jobs", metavar="N", type=click.IntRange(1, 9999), help="Compile in so many processes.")
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=NEW_DIRECTORY,
    help="Put the packages below this directory, by their import names, and not into the source tree.",
)
@click.option("--report", metavar="FILE", type=FILE, help="Write an HTML page about the build.")
@click.option("--trace", metavar="FILE", type=FILE, help="Write a trace for Perfetto or Chrome.")
@click.option(
    "--depfile", metavar="FILE", type=FILE, help="Write what the output depends on, for Ninja and Make."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def build(
    directory: Path,
    architectures: Sequence[str],
    jobs: int | None,
    output: Path | None,
    report: Path | None,
    trace: Path | None,
    depfile: Path | None,
    as_json: bool,
) -> None:
    """Compile the kernels of a project in place.

    DIR holds the project's pyproject.toml; it is the current directory by default. The packages that its
    [tool.cuda_ext] table describes are put into the source tree, among the Python modules, where version
    control ignores them. Nothing is installed, and nothing is compiled twice.

    With --output they go where another build tool wants them, and packages that earlier builds have put
    there under other names are removed. --depfile tells that tool when to run this again. The outputs in the
    depfile are then the directories of the top-level packages.
    """
    from cuda_ext.builder.package.depfile import is_depfile
    from cuda_ext.builder.report.account import check_overwritable
    from cuda_ext.filesystem.atomic_directory import replace_file
    from cuda_ext.toolchain.process import ending_in_order

    began = time.perf_counter()
    project = project_in(directory)
    places = _places(project, output)
    if depfile:
        check_overwritable(depfile, "depfile", is_depfile)
        rule = _rule(project, places, output)
    said = {
        "CUDAARCHS": ";".join(architectures),
        "MAX_JOBS": jobs,
        "CUDA_EXT_REPORT": report and report.absolute(),
        "CUDA_EXT_TRACE": trace and trace.absolute(),
    }
    environ = {**os.environ, **{name: str(value) for name, value in said.items() if value}}
    with ending_in_order():
        try:
            packages = _built(project, places, output, environ)
        except BuildError as error:
            message = str(error)
            if architectures and message.startswith("CUDAARCHS:"):
                message = message.replace("CUDAARCHS:", "--arch:", 1)
            raise Failure(message) from None
        _remove_others(project, places, output)
        for package in packages:
            package.write(places[package.name])
        for made in _outputs(places, output):
            os.utime(made)  # it is up to date, even where nothing had to be written
        if depfile:
            replace_file(depfile, rule.encode())
    summaries = [_summary(package, places[package.name]) for package in packages]
    if as_json:
        echo_json({"modules": summaries, "seconds": round(time.perf_counter() - began, 3)})
        return
    for summary in summaries:
        contents = [counted(len(summary["kernels"]), "kernel"), counted(summary["images"], "image")]
        contents.append(size(summary["bytes"]))
        click.echo(f"{summary['module']}: {', '.join(contents)} in {shown(Path(summary['directory']))}")


def _places(project: Project, output: Path | None) -> dict[str, Path]:
    """Where each module's package goes. Raises :class:`ConfigError` for what is not there, or taken."""
    from cuda_ext.builder.sources.layout import check_place, source_directory

    places = {}
    for module in project.modules:
        try:
            place = (
                output / Path(*module.name.split(".")) if output else source_directory(project, module.name)
            )
        except ConfigError as error:
            raise ConfigError(f"{error}; make one of them, or choose a directory with --output") from None
        check_place(module, place)
        places[module.name] = place
    return places


def _built(
    project: Project, places: Mapping[str, Path], output: Path | None, environ: Mapping[str, str]
) -> list[Package]:
    """The packages, as they lie in their places."""
    from cuda_ext.builder.package.editable import build_editable, is_editable, recorded
    from cuda_ext.builder.sources.layout import in_place

    report = partial(click.echo, err=True)
    if output:
        return list(project.build(report, environ))
    if any(map(is_editable, places.values())):  # an editable install stays one, and as it was made
        records = list(filter(None, map(recorded, places.values())))
        cudaarchs = records[0]["cudaarchs"] if records else ""
        said = {"CUDAARCHS": cudaarchs, **environ} if cudaarchs else environ
        return list(map(in_place, build_editable(project, places.__getitem__, report, said, cudaarchs)))
    return list(map(in_place, project.build(report, environ)))


def _remove_others(project: Project, places: Mapping[str, Path], output: Path | None) -> None:
    """Take out of `output` what earlier builds left of modules that had another name."""
    from cuda_ext.builder.sources.layout import package_places, remove_others

    if output is None:
        return
    for top in {name.partition(".")[0] for name in places}:
        # In a source tree there may also be what cuda_ext.save made.
        sources = {place.resolve() for place in package_places(project.root, top, project.package_dir)}
        if (output / top).resolve() not in sources:
            remove_others(output / top, places.values())


def _outputs(places: Mapping[str, Path], output: Path | None) -> set[Path]:
    """The directories that another build tool knows as outputs."""
    return {output / name.partition(".")[0] for name in places} if output else set(places.values())


def _rule(project: Project, places: Mapping[str, Path], output: Path | None) -> str:
    """What the outputs depend on, before they are made."""
    from cuda_ext.builder.package.depfile import depfile
    from cuda_ext.builder.sources.inputs import TABLE, searched_directories

    inputs = {TABLE, *map(str, project.source_files()), *searched_directories(project)}
    return depfile(
        sorted(map(os.path.normpath, _outputs(places, output))),
        [cuda_ext.__file__, *(str(project.root / name) for name in sorted(inputs))],
    )


def _summary(package: Package, directory: Path) -> dict[str, Any]:
    from cuda_ext.manifest import FILE_NAME, loads

    manifest = loads(package.files[FILE_NAME], package.name)
    return {
        "module": package.name,
        "directory": str(directory.absolute()),
        "compiler": package.compiler,
        "kernels": [kernel.expression for kernel in manifest.kernels],
        "images": sum(len(unit.images) for unit in manifest.units),
        "files": sorted(package.files),
        "bytes": sum(map(len, package.files.values())),
    }
