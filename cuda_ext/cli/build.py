"""``cuda-ext build``: compile the kernels of a project in place, or into a directory of another tool."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import cuda_ext
from cuda_ext.cli.environment import ARCHITECTURES, environment_with
from cuda_ext.cli.terminal import (
    DIRECTORY,
    FILE,
    NEW_DIRECTORY,
    Failure,
    echo_json,
    find_project,
    naming_errors,
    shorten_path,
)
from cuda_ext.errors import ConfigError
from cuda_ext.formats.quantities import format_count, format_size

if TYPE_CHECKING:
    from cuda_ext.builder.package.generate import Package
    from cuda_ext.builder.project import Project


@click.command(
    epilog="""\b
    Examples:
      cuda-ext build
      cuda-ext build my-project --arch native --report build/kernels.html
      cuda-ext build --output build/python --depfile build/kernels.d --json
    """
)
@click.argument("directory", metavar="[DIR]", default=".", type=DIRECTORY)
@ARCHITECTURES
@click.option("-j", "--jobs", metavar="N", type=click.IntRange(1, 9999), help="Use N processes.")
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=NEW_DIRECTORY,
    help="Write the packages into this directory, under their import names, instead of the source tree.",
)
@click.option("--report", metavar="FILE", type=FILE, help="Write an HTML page about the build.")
@click.option("--trace", metavar="FILE", type=FILE, help="Write a trace for Perfetto or Chrome.")
@click.option(
    "--depfile",
    metavar="FILE",
    type=FILE,
    help="Write the dependencies of the output, for Ninja and Make.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show the compilers' commands.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def build(
    directory: Path,
    architectures: Sequence[str],
    jobs: int | None,
    output: Path | None,
    report: Path | None,
    trace: Path | None,
    depfile: Path | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Compile the kernels of a project in place.

    DIR is the directory of the project's pyproject.toml, by default the current one. The command compiles
    only what has changed, and installs nothing. It writes the packages that the [tool.cuda_ext] table
    describes into the source tree, among the Python modules. Version control ignores them.

    For another build tool, --output chooses the directory; other files there stay. --depfile tells that tool
    when to run this command again. The outputs in the depfile are the directories of the top-level packages.
    """
    from cuda_ext.builder.package.depfile import is_depfile, render_depfile
    from cuda_ext.builder.package.in_place import check_outside, write_in_place
    from cuda_ext.cli.doctor.this_project import check_backend
    from cuda_ext.filesystem.atomic_directory import replace_file
    from cuda_ext.filesystem.ownership import check_replaceable
    from cuda_ext.toolchain.process import ending_in_order

    began = time.perf_counter()
    project = find_project(directory)
    # Another build tool knows the directories of the top-level packages.
    tops = {module.name.partition(".")[0] for module in project.modules}
    places = _find_places(project, output)
    outputs = {output / top for top in tops} if output else set(places.values())
    for where, file in {
        "--report": report,
        "--trace": trace,
        "--depfile": depfile,
        "tool.cuda_ext.report": project.settings.report and project.root / project.settings.report,
        "tool.cuda_ext.trace": project.settings.trace and project.root / project.settings.trace,
    }.items():
        if file:
            check_outside(where, file, places.values())
    if depfile:
        for other, option in ((report, "--report"), (trace, "--trace")):
            if other and other.resolve() == depfile.resolve():
                raise Failure(f"{option} names this file, too", where="--depfile", remedy="name another")
        check_replaceable(depfile, "depfile of a build", is_depfile)
        inputs = _list_inputs(project)  # before the outputs exist
    options = {
        "CUDAARCHS": ("--arch", ";".join(architectures)),
        "MAX_JOBS": ("--jobs", jobs),
        "CUDA_EXT_REPORT": ("--report", report and report.absolute()),
        "CUDA_EXT_TRACE": ("--trace", trace and trace.absolute()),
    }
    with ending_in_order(), environment_with(options) as environ:
        packages = _build(project, places, output, environ, verbose)
        if output:
            for package in packages:
                package.write(places[package.name])
        else:
            write_in_place(project, packages, places)
        for path in outputs:
            with naming_errors(path):
                os.utime(path)  # it is up to date, even if nothing had to be written
        if depfile:
            outside = {file for package in packages for file in package.outside}
            targets = sorted(map(os.path.normpath, outputs))
            rule = render_depfile(targets, [cuda_ext.__file__, *sorted(inputs | outside)])
            replace_file(depfile, os.fsencode(rule))
    for flaw in () if output else check_backend(project.root):
        click.echo(f"warning: {flaw.subject}: {flaw.text}; {flaw.remedy}", err=True)
    summaries = [_summarize(package, places[package.name]) for package in packages]
    if as_json:
        echo_json({"modules": summaries, "seconds": round(time.perf_counter() - began, 3)})
        return
    lines = []
    for summary in summaries:
        kernels, images = len(summary["kernels"]), summary["images"]
        counts = f"{format_count(kernels, 'kernel')}, {format_count(images, 'image')}"
        place = shorten_path(Path(summary["directory"]))
        lines.append(f"{summary['module']}: {counts}, {format_size(summary['bytes'])} in {place}")
    click.echo("\n".join(lines))


def _find_places(project: Project, output: Path | None) -> dict[str, Path]:
    """Return the directory for each module's package.

    Raises :class:`ConfigError` if there is no such place, or something else is there.
    """
    from cuda_ext.builder.package.in_place import check_place

    places = {}
    for module in project.modules:
        try:
            place = (
                output / Path(*module.name.split(".")) if output else project.source_directory(module.name)
            )
        except ConfigError as error:
            error.remedy += ", or choose a directory with --output"
            raise
        check_place(module, place)
        places[module.name] = place
    return places


def _build(
    project: Project,
    places: Mapping[str, Path],
    output: Path | None,
    environ: Mapping[str, str],
    verbose: bool,
) -> list[Package]:
    """Build the packages; those of an editable install, in `places`, stay that."""
    from cuda_ext.builder.editable_package import build_editable
    from cuda_ext.builder.editable_record import is_editable, read_record
    from cuda_ext.builder.session import build_project

    compile_for = partial(build_project, project, partial(click.echo, err=True), verbose=verbose)
    if output or not any(map(is_editable, places.values())):
        return compile_for(environ)
    # An editable install stays one, with its architectures.
    records = list(filter(None, map(read_record, places.values())))
    cudaarchs = records[0]["cudaarchs"] if records else ""
    variables = {"CUDAARCHS": cudaarchs, **environ} if cudaarchs else environ
    return build_editable(project, places.__getitem__, partial(compile_for, variables), cudaarchs)


def _list_inputs(project: Project) -> set[str]:
    """Return the table, sources, headers and searched directories, which a depfile names."""
    from cuda_ext.builder.sources.inputs import TABLE, searched_directories

    names = {TABLE, *map(str, project.source_files()), *searched_directories(project)}
    return {str(project.root / name) for name in names}


def _summarize(package: Package, directory: Path) -> dict[str, Any]:
    return {
        "module": package.name,
        "directory": str(directory.absolute()),
        "compiler": package.compiler,
        "kernels": list(package.kernels),
        "images": package.images,
        "files": sorted(package.files),
        "bytes": sum(map(len, package.files.values())),
    }
