"""Do jobs, and compile whole libraries and modules in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cuda_ext.compiler.fatbin_packing import pack
from cuda_ext.compiler.jobs import CompileJob, Job, LinkJob, Outcome, Product
from cuda_ext.compiler.library import compile_log, library_images, missing_jobs
from cuda_ext.compiler.module_plan import CompiledModule, LibraryPlan, ModulePlan, assemble
from cuda_ext.compiler.products import CompiledImage, Library
from cuda_ext.compiler.signatures.reflection import read_image
from cuda_ext.compiler.translation_unit import Compiler, SourceKind
from cuda_ext.errors import BuildError, CompilationError, ToolchainError, join_errors
from cuda_ext.filesystem.inner_path import is_file_name
from cuda_ext.formats.fatbin import read_fatbin
from cuda_ext.toolchain.nvfatbin import WriteImage, write_fatbin


def perform(job: Job, compiler: Compiler) -> Product:
    """Do `job`. Raises :class:`CompilationError`."""
    match job:
        case LinkJob(_, inputs, (architecture,)):
            from cuda_ext.toolchain.nvjitlink import link  # most sources are not linked

            return (read_image(architecture, link(inputs, architecture)),)
        case CompileJob(unit, architectures):
            return compiler.compile(unit, architectures)


def pack_library(
    plan: LibraryPlan, products: Mapping[Job, Outcome], write_image: WriteImage | None = None
) -> Library:
    """Build the library of `plan` from all its `products`, and put its images into files.

    `write_image` compresses an image, if not nvFatbin alone.

    Raises :class:`BuildError` for failed jobs, and if a requested image or instantiation is missing.
    """
    images, signatures = library_images(plan, products)
    log = compile_log(plan, products)
    if plan.emit == "fatbin":
        files = [(f"{plan.stem}.fatbin", _fatbin(plan, images, write_image))] * len(images)
    else:
        files = [(f"{plan.stem}.{i.architecture}.{i.architecture.kind}", i.data) for i in images]
    for name, _ in files:
        if not is_file_name(name):
            problem = "is longer than 200 characters, or not a name of a file on every system"
            raise BuildError(problem, where=name, remedy="rename the source")
    return pack(plan, images, signatures, files, log)


def compile_products(plan: LibraryPlan, compiler: Compiler) -> dict[Job, Outcome]:
    """Do all jobs of `plan` in this process, one after the other."""
    products: dict[Job, Outcome] = {}
    while jobs := missing_jobs(plan, products):
        for job in jobs:
            try:
                products[job] = perform(job, compiler)
            except CompilationError as error:
                products[job] = error
    return products


def compile_library(plan: LibraryPlan, compiler: Compiler) -> Library:
    """Compile the library of `plan` in this process. Raises :class:`BuildError`."""
    return pack_library(plan, compile_products(plan, compiler))


def compile_module(plan: ModulePlan, compiler_of: Callable[[SourceKind], Compiler]) -> CompiledModule:
    """Compile every library of `plan` in this process; `compiler_of` returns the compiler of a kind.

    Raises :class:`~cuda_ext.errors.BuildError` with one message for all units that fail.
    """
    libraries: list[Library] = []
    failures: list[BuildError] = []
    for library_plan in plan.libraries:
        try:
            libraries.append(compile_library(library_plan, compiler_of(library_plan.units[0].kind)))
        except ToolchainError:
            raise
        except BuildError as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise CompilationError(join_errors(failures))
    return assemble(plan, libraries, compiler_of)


def _fatbin(plan: LibraryPlan, images: Sequence[CompiledImage], write_image: WriteImage | None) -> bytes:
    unit = plan.units[0]
    if unit.kind == "fatbin" and len(plan.units) == 1:
        fatbin = unit.source  # it is shipped unchanged
    else:
        fatbin = write_fatbin([(i.architecture, i.data) for i in images], plan.compress, write_image)
    entries = {entry.architecture for entry in read_fatbin(fatbin)}
    if missing := [str(i.architecture) for i in images if str(i.architecture) not in entries]:
        raise BuildError(
            f"built for {', '.join(missing)}, but not found in it",
            where=f"{plan.stem}.fatbin",
            remedy="leave these architectures out, or set emit to another form than fatbin",
        )
    return fatbin
