"""Does jobs, and compiles whole libraries and modules in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cuda_ext.compiler.fatbin_packing import pack
from cuda_ext.compiler.jobs import CompileJob, Job, LinkJob, Outcome, Product, SignatureJob, group_jobs
from cuda_ext.compiler.library import Library, build_library, compile_log, missing_jobs
from cuda_ext.compiler.module_plan import CompiledModule, LibraryPlan, ModulePlan, assemble, library_plans
from cuda_ext.compiler.products import PackedLibrary
from cuda_ext.compiler.translation_unit import Compiler
from cuda_ext.errors import BuildError, CompilationError, ToolchainError
from cuda_ext.formats.fatbin import read_fatbin
from cuda_ext.manifest import Unit
from cuda_ext.toolchain.nvfatbin import write_fatbin
from cuda_ext.toolchain.nvjitlink import link_job

__all__ = ["compile_library", "compile_module", "compile_products", "pack_library", "perform"]


def perform(jobs: Sequence[Job], compiler: Compiler) -> list[Product]:
    """Do `jobs`, a group of :func:`~cuda_ext.compiler.jobs.group_jobs`. Raises :class:`CompilationError`."""
    match jobs[0]:
        case LinkJob() as job:
            return [link_job(job)]
        case SignatureJob(unit, architecture):
            return [compiler.reflect(unit, architecture)]
        case CompileJob(unit):
            return list(compiler.compile(unit, [job.architecture for job in jobs]))


def pack_library(plan: LibraryPlan, products: Mapping[Job, Outcome]) -> PackedLibrary:
    """Build the library of `plan` from all its `products`, and put its images into files.

    Raises :class:`BuildError` for failed jobs, and if anything that was asked for is missing.
    """
    if plan.only:
        return PackedLibrary(Unit((plan.only.described,), ()), (), (), {}, compile_log(plan, products))
    library = build_library(plan, products)
    if plan.emit == "fatbin":
        name = f"{library.stem}.fatbin"
        return pack(library, {name: _fatbin(library, name, plan)}, [name] * len(library.images))
    names = [f"{library.stem}.{i.architecture}.{i.architecture.kind}" for i in library.images]
    files = {name: image.data for name, image in zip(names, library.images, strict=True)}
    return pack(library, files, names)


def compile_products(plan: LibraryPlan, compiler: Compiler) -> dict[Job, Outcome]:
    """Do all jobs of `plan` in this process, one after the other."""
    products: dict[Job, Outcome] = {}
    while jobs := missing_jobs(plan, products):
        for group in group_jobs(jobs):
            try:
                products.update(zip(group, perform(group, compiler), strict=True))
            except CompilationError as error:
                products.update(dict.fromkeys(group, error))
    return products


def compile_library(plan: LibraryPlan, compiler: Compiler) -> PackedLibrary:
    """Compile the library of `plan` in this process. Raises :class:`BuildError`."""
    return pack_library(plan, compile_products(plan, compiler))


def compile_module(
    plan: ModulePlan, compiler: Compiler, report: Callable[[str], None] = lambda _: None
) -> CompiledModule:
    """Compile every unit of `plan` for its architectures, in this process.

    `report` receives the compiler's warnings. Raises :class:`~cuda_ext.errors.BuildError` with one message
    for all units that fail.
    """
    libraries: list[PackedLibrary] = []
    failures: list[str] = []
    for library_plan in library_plans(plan):
        try:
            libraries.append(compile_library(library_plan, compiler))
        except ToolchainError:
            raise
        except BuildError as error:
            failures.append(str(error))
    if failures:
        raise CompilationError("\n\n".join(dict.fromkeys(failures)))
    for log in dict.fromkeys(log for library in libraries for log in library.log):
        report(log)
    return assemble(plan, libraries, compiler.name, compiler.version)


def _fatbin(library: Library, name: str, plan: LibraryPlan) -> bytes:
    fatbin = library.container or write_fatbin(
        ((image.architecture, image.data) for image in library.images), plan.compress
    )
    entries = {entry.architecture for entry in read_fatbin(fatbin)}
    if missing := [str(i.architecture) for i in library.images if str(i.architecture) not in entries]:
        raise BuildError(
            f"built for {', '.join(missing)}, but not found in it",
            where=name,
            remedy="leave these architectures out, or set emit to another form than fatbin",
        )
    return fatbin
